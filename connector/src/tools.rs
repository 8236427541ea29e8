//! The one door to the executor.
//!
//! It connects when it is first needed and again when the connection was lost. Effects happen once:
//! a call whose connection ended before the answer is asked for once more *under the same id*, which
//! the executor answers from its record when it had acted already, and with nothing else. It is never
//! repeated under another id, and no other failure is retried.

use std::path::PathBuf;

use protocol::refusal::Outcome;
use protocol::service::{Description, Request};
use protocol::wire::{Client, WireError};

/// A connection to the executor that mends itself between calls.
#[derive(Debug)]
pub struct Tools {
    socket: PathBuf,
    client: Option<Client>,
}

impl Tools {
    /// Names the socket; connects at the first call.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, client: None }
    }

    /// What the executor offers.
    ///
    /// # Errors
    /// When it cannot be reached. It acts on nothing, so that a lost connection is tried once more.
    pub async fn describe(&mut self) -> Result<Description, WireError> {
        match self.describe_once().await {
            Err(WireError::Lost(_)) => self.describe_once().await,
            other => other,
        }
    }

    /// Does one call. Dropping the future makes the executor stop the work.
    ///
    /// # Errors
    /// When the executor cannot be reached, or the connection was lost twice: what became of the call
    /// is then not known here.
    pub async fn call(&mut self, request: Request) -> Result<Outcome, WireError> {
        match self.call_once(request.clone()).await {
            Err(WireError::Lost(_)) => self.call_once(request).await,
            other => other,
        }
    }

    async fn describe_once(&mut self) -> Result<Description, WireError> {
        let answer = self.connected().await?.describe().await;
        self.forget_if_lost(answer)
    }

    async fn call_once(&mut self, request: Request) -> Result<Outcome, WireError> {
        let answer = self.connected().await?.call(request).await;
        self.forget_if_lost(answer)
    }

    async fn connected(&mut self) -> Result<Client, WireError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::connect(&self.socket).await?;
        self.client = Some(client.clone());
        Ok(client)
    }

    fn forget_if_lost<T>(&mut self, answer: Result<T, WireError>) -> Result<T, WireError> {
        if answer.is_err() {
            self.client = None;
        }
        answer
    }
}
