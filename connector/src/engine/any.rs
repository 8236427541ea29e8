//! The engine that the binding names: one type for all of them, so that whoever runs turns does not
//! care which it is.

use std::io;
use std::path::Path;

use confine::grants::Grants;

use super::config::{EngineConfig, EngineKind};
use super::context::{Context, ContextError};
use super::openai::{OpenAi, OpenAiError};
use super::pi::{Pi, PiError};
use super::rules::Rules;
use super::{Answer, Engine, EngineError, ToolRunner};
use crate::prompt::Prompt;

/// An engine of any kind.
#[derive(Debug)]
pub enum AnyEngine {
    /// Fixed phrases.
    Rules(Rules),
    /// A model behind an endpoint.
    OpenAi(Box<OpenAi>),
    /// A model behind pi.
    Pi(Box<Pi>),
}

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A context file is not what it must be.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The `openai` section names something that does not hold.
    #[error(transparent)]
    OpenAi(#[from] OpenAiError),
    /// The `pi` section names something that does not hold.
    #[error(transparent)]
    Pi(#[from] PiError),
}

impl AnyEngine {
    /// The engine of a binding, whose folder is `folder`. It opens the files that the section names
    /// and reaches out to nobody.
    ///
    /// # Errors
    /// When a file that the section names is missing, not private, or not what it must be.
    pub fn new(config: &EngineConfig, folder: &Path) -> Result<Self, SetupError> {
        let context = config.context.as_ref().map(Context::load).transpose()?.unwrap_or_default();
        match (config.kind, &config.openai, &config.pi) {
            (EngineKind::OpenAi, Some(section), _) => {
                Ok(Self::OpenAi(Box::new(OpenAi::new(section, context, folder)?)))
            }
            (EngineKind::Pi, _, Some(section)) => {
                Ok(Self::Pi(Box::new(Pi::new(section, context, folder)?)))
            }
            // The binding was refused when a kind lacks its section.
            (EngineKind::Rules | EngineKind::OpenAi | EngineKind::Pi, ..) => Ok(Self::Rules(Rules)),
        }
    }

    /// The context files that the engine's model is told first; absent without a model.
    #[must_use]
    pub fn context(&self) -> Option<&Context> {
        match self {
            Self::Rules(_) => None,
            Self::OpenAi(engine) => Some(engine.context()),
            Self::Pi(engine) => Some(engine.context()),
        }
    }

    /// The model's name; absent without one.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Rules(_) => None,
            Self::OpenAi(engine) => Some(engine.model()),
            Self::Pi(engine) => Some(engine.model()),
        }
    }

    /// Whether what the engine needs can be reached, for `check`. It makes no model run.
    ///
    /// # Errors
    /// Why not, on one line, for the operator.
    pub async fn probe(&self) -> Result<String, String> {
        match self {
            Self::Rules(_) => Ok("the rules engine needs nothing".to_owned()),
            Self::OpenAi(engine) => engine.probe().await,
            Self::Pi(engine) => engine.probe().await,
        }
    }
}

impl AnyEngine {
    /// The TCP ports that this process itself connects to for the engine.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        match self {
            Self::Rules(_) | Self::Pi(_) => Vec::new(),
            Self::OpenAi(engine) => vec![engine.port()],
        }
    }

    /// What this process must itself be able to reach, so that the engine's child can: a child never
    /// has more than its parent. Empty for an engine without a child.
    ///
    /// # Errors
    /// When the child's program cannot be read.
    pub fn child_grants(&self) -> io::Result<Grants> {
        match self {
            Self::Rules(_) | Self::OpenAi(_) => Ok(Grants::default()),
            Self::Pi(engine) => engine.child_grants(),
        }
    }
}

impl Engine for AnyEngine {
    fn name(&self) -> &'static str {
        match self {
            Self::Rules(engine) => engine.name(),
            Self::OpenAi(engine) => engine.name(),
            Self::Pi(engine) => engine.name(),
        }
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        match self {
            Self::Rules(engine) => engine.run_turn(prompt, tools).await,
            Self::OpenAi(engine) => engine.run_turn(prompt, tools).await,
            Self::Pi(engine) => engine.run_turn(prompt, tools).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::AnyEngine;

    fn engine(section: Value) -> AnyEngine {
        let config = serde_json::from_value(section).expect("a section");
        AnyEngine::new(&config, std::path::Path::new("/nonexistent")).expect("an engine")
    }

    /// Asks an endpoint that answers so; what it was asked, and what came of it.
    async fn probe(status: &str, body: &str) -> (String, Result<String, String>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("it listens").port();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("it comes");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a head"));
            }
            stream.write_all(answer.as_bytes()).await.expect("it reads");
            String::from_utf8(request).expect("a head is text")
        };
        let section = json!({"baseUrl": format!("http://127.0.0.1:{port}/v1"), "model": "m1"});
        let engine = engine(json!({"kind": "openai", "openai": section}));
        tokio::join!(serve, engine.probe())
    }

    #[tokio::test]
    async fn a_probe_tells_whether_the_endpoint_is_there_and_knows_the_model() {
        let (asked, found) = probe("200 OK", r#"{"data": [{"id": "m1"}]}"#).await;
        assert!(asked.starts_with("GET /v1/models HTTP/1.1\r\n"), "{asked}");
        assert_eq!(found.as_deref(), Ok("the endpoint is there and knows m1"));
        let (_, found) = probe("200 OK", r#"{"data": [{"id": "m2"}]}"#).await;
        assert!(found.expect_err("another model").contains("does not list m1"));
        let (_, found) = probe("401 Unauthorized", r#"{"error": {"message": "no key"}}"#).await;
        assert!(found.expect_err("no key").contains("no key"));
        let (_, found) = probe("404 Not Found", "").await;
        assert!(found.is_ok());
        let rules = engine(json!({"kind": "rules"}));
        assert!(rules.probe().await.is_ok());
        let section = json!({"baseUrl": "http://127.0.0.1:1/v1", "model": "m1"});
        let gone = engine(json!({"kind": "openai", "openai": section}));
        assert!(gone.probe().await.expect_err("nobody is there").contains("cannot connect"));
    }
}
