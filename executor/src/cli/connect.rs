//! Where the executor is, and for whom a command calls it.

use std::path::PathBuf;

use protocol::service::{Description, Request};
use protocol::tool::ToolCall;
use protocol::turn::{Origin, Turn};
use protocol::wire::{Client, WireError};

use crate::config::Config;

/// Where the executor is.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Where {
    /// The executor's socket. Without it and without --config, `$SAGE_SOCKET`.
    #[arg(long, value_name = "FILE", global = true)]
    pub socket: Option<PathBuf>,
    /// The executor's configuration, for its socket.
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "socket")]
    pub config: Option<PathBuf>,
}

/// For whom a command calls.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Speaker {
    /// Whom the call is for, by role name. Without it, the one requester that you may speak for.
    #[arg(long = "as", value_name = "REQUESTER", global = true)]
    pub requester: Option<String>,
    /// The turn the call belongs to: reviews and cut outputs last as long as it does. Without it,
    /// a new one.
    #[arg(long, value_name = "ID", env = "SAGE_TURN", hide_env_values = true, global = true)]
    pub turn: Option<String>,
}

/// Why a command cannot call.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody said where the executor is.
    #[error("where is the executor? Name its socket with --socket, --config or $SAGE_SOCKET")]
    NoSocket,
    /// The configuration cannot be read.
    #[error("{0}")]
    Config(String),
    /// It is not there, or does not want this user.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Where {
    /// The socket.
    ///
    /// # Errors
    /// When nothing names it, or the configuration is not one.
    pub fn socket(&self) -> Result<PathBuf, ConnectError> {
        match (&self.config, &self.socket) {
            (Some(config), _) => {
                let shown = config.display();
                let text = std::fs::read_to_string(config)
                    .map_err(|error| ConnectError::Config(format!("{shown}: {error}")))?;
                let config = Config::parse(&text)
                    .map_err(|problem| ConnectError::Config(format!("{shown}:{problem}")))?;
                Ok(config.socket)
            }
            (None, Some(socket)) => Ok(socket.clone()),
            // By hand: a variable that is set must not clash with --config.
            (None, None) => std::env::var_os("SAGE_SOCKET")
                .filter(|socket| !socket.is_empty())
                .map(PathBuf::from)
                .ok_or(ConnectError::NoSocket),
        }
    }

    /// Connects, and asks what there is.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self) -> Result<(Client, Description), ConnectError> {
        let client = Client::connect(&self.socket()?).await?;
        let description = client.describe().await?;
        Ok((client, description))
    }
}

impl Speaker {
    /// The turn of these arguments. Whether this user may speak for the requester, the executor
    /// decides.
    pub(crate) fn turn(&self, description: &Description, origin: Origin) -> Turn {
        let only = match description.requesters.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        };
        Turn {
            id: self.turn.clone().unwrap_or_else(|| fresh_id(origin)),
            requester: self.requester.clone().or(only),
            origin,
        }
    }
}

/// A request of a turn, under a new id.
pub(crate) fn request(turn: &Turn, call: ToolCall, approved: Option<String>) -> Request {
    Request { id: fresh_id(turn.origin), turn: turn.clone(), call, approved }
}

/// An id that nobody else has.
pub(crate) fn fresh_id(origin: Origin) -> String {
    let mut bytes = [0u8; 12];
    // getrandom blocks only before the system has any entropy, and then waits for it.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("{}-{}", origin.as_str(), crate::audit::hex(&bytes))
}
