//! `sage-executor mcp`: the tools for an MCP client, on standard input and output.
//!
//! This is a client of the executor and nothing more: it opens the socket, holds no authority, and
//! puts nothing but the protocol on standard output. The end of the input ends it; a call that is
//! dropped or cancelled is stopped by the executor.
//!
//! MCP has no turns. Here one lasts until a commit, which uses up its reviews anyway, or until the
//! executor says that it has made its calls; the next call then begins another. `--turn` fixes it.
//!
//! A client's roots (folders on its own machine) are not asked for and widen nothing: what can be
//! reached is what the executor's configuration names.

mod describe;

use std::process::ExitCode;

use protocol::refusal::{Code, Fault, Outcome, Refusal};
use protocol::reply::{Plan, Reply};
use protocol::service::{Description, Request};
use protocol::tool::{ToolCall, ToolName};
use protocol::turn::{Origin, Turn};
use protocol::wire::{Client, WireError};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationSchema, InputRequest, InputRequests,
    InputRequiredResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::connect::{self, ConnectError, Speaker, Where};
use super::paint::Paper;
use super::{exit, render};

/// The name of the one question that is ever asked.
const APPROVAL: &str = "approval";

/// What `mcp` takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    speaker: Speaker,
}

/// Serves until the input ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::because(exit::FAULT, error),
    };
    let code = runtime.block_on(serve(arguments));
    // A read of standard input cannot be called off; nobody waits for it.
    runtime.shutdown_background();
    code
}

async fn serve(arguments: &Arguments) -> ExitCode {
    let server = match Server::connect(arguments).await {
        Ok(server) => server,
        Err(error @ ConnectError::Wire(_)) => return exit::because(exit::UNREACHABLE, error),
        Err(error) => return exit::because(exit::USAGE, error),
    };
    match server.serve(rmcp::transport::stdio()).await {
        Ok(service) => match service.waiting().await {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => exit::because(exit::FAULT, error),
        },
        // A client that leaves before it has said anything is no fault of ours.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => ExitCode::SUCCESS,
        Err(error) => exit::because(exit::USAGE, error),
    }
}

/// The executor as an MCP client sees it.
struct Server {
    place: Where,
    /// What the executor offered when this began.
    description: Description,
    /// Whether the caller named the turn, which then is not changed.
    fixed: bool,
    turn: Mutex<Turn>,
    client: Mutex<Option<Client>>,
}

impl Server {
    async fn connect(arguments: &Arguments) -> Result<Self, ConnectError> {
        let (client, description) = arguments.place.connect().await?;
        let turn = arguments.speaker.turn(&description, Origin::Mcp);
        Ok(Self {
            place: arguments.place.clone(),
            description,
            fixed: arguments.speaker.turn.is_some(),
            turn: Mutex::new(turn),
            client: Mutex::new(Some(client)),
        })
    }

    async fn client(&self) -> Result<Client, WireError> {
        let mut client = self.client.lock().await;
        match &*client {
            Some(client) => Ok(client.clone()),
            None => {
                let socket = self.place.socket().map_err(|e| WireError::Lost(e.to_string()))?;
                let fresh = Client::connect(&socket).await?;
                Ok(client.insert(fresh).clone())
            }
        }
    }

    /// Sends a request. When the connection was lost it is asked for once more under the same id,
    /// which the executor answers from its record when it had acted already.
    async fn send(&self, request: Request) -> Outcome {
        for _ in 0..2 {
            let answer = match self.client().await {
                Ok(client) => client.call(request.clone()).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(outcome) => return outcome,
                Err(WireError::Lost(_)) => *self.client.lock().await = None,
                Err(error) => return Outcome::Fault(Fault::new(error.to_string())),
            }
        }
        Outcome::Fault(Fault::new(
            "the connection to the executor was lost twice; what became of the call is in its audit",
        ))
    }

    /// Makes a call in the turn there is, or in a new one when that has made its calls.
    async fn call(&self, call: ToolCall, approved: Option<String>) -> Outcome {
        let turn = self.turn.lock().await.clone();
        let outcome = self.send(connect::request(&turn, call.clone(), approved.clone())).await;
        match &outcome {
            Outcome::Refusal(no) if no.code == Code::TooManyCalls && !self.fixed => {
                let turn = self.next_turn(&turn).await;
                self.send(connect::request(&turn, call, approved)).await
            }
            Outcome::Reply(Reply::Committed(_)) if !self.fixed => {
                self.next_turn(&turn).await;
                outcome
            }
            _ => outcome,
        }
    }

    /// Begins another turn, unless another call did already.
    async fn next_turn(&self, ended: &Turn) -> Turn {
        let mut turn = self.turn.lock().await;
        if turn.id == ended.id {
            turn.id = connect::fresh_id(Origin::Mcp);
        }
        turn.clone()
    }

    async fn answer(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if ToolName::parse(&request.name).is_none() {
            let said = format!("there is no tool named {:?}", request.name);
            return Err(ErrorData::invalid_params(said, None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = match ToolCall::from_json(&request.name, arguments) {
            Ok(call) => call,
            Err(no) => return Ok(refused(&no).into()),
        };
        let given = request.input_responses.unwrap_or_default().remove(APPROVAL);
        let approved = match given.map(serde_json::from_value::<ElicitResult>) {
            None => None,
            Some(Ok(said)) if said.action == ElicitationAction::Accept => request.request_state,
            Some(_) => return Ok(refused(&declined()).into()),
        };
        match self.call(call.clone(), approved).await {
            Outcome::Reply(Reply::ApprovalNeeded(plan)) => self.approve(call, plan, context).await,
            outcome => Ok(result(&outcome).into()),
        }
    }

    /// Has the person asked whether the plan is right, in the way that the client's protocol has.
    async fn approve(
        &self,
        call: ToolCall,
        plan: Plan,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asks = context.client_capabilities().and_then(|can| can.elicitation);
        // A client that names neither form nor URL is of a time when there were only forms.
        if !asks.is_some_and(|how| how.form.is_some() || how.url.is_none()) {
            let turn = self.turn.lock().await.id.clone();
            return Ok(refused(&nobody_to_ask(&plan, &turn)).into());
        }
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: render::plan(Paper::PLAIN, &plan) + "\nCommit and push this?",
            requested_schema: ElicitationSchema::new(Default::default()),
        };
        if context.protocol_version().is_some_and(|v| v >= ProtocolVersion::V_2026_07_28) {
            let question = InputRequest::Elicitation(ElicitRequest::new(question));
            let questions = InputRequests::from([(APPROVAL.to_owned(), question)]);
            // The digest comes back through the client; the executor holds it against the content.
            return Ok(InputRequiredResult::new(Some(questions), Some(plan.digest)).into());
        }
        match context.peer.create_elicitation(question).await {
            Ok(said) if said.action == ElicitationAction::Accept => {
                Ok(result(&self.call(call, Some(plan.digest)).await).into())
            }
            Ok(_) => Ok(refused(&declined()).into()),
            Err(error) => {
                let said = format!("The client could not ask the requester: {error}.");
                let hint = "Nothing was committed. Call git_commit again.";
                Ok(refused(&Refusal::new(Code::ApprovalNeeded, said, hint)).into())
            }
        }
    }
}

fn declined() -> Refusal {
    Refusal::new(
        Code::ApprovalNeeded,
        "The requester did not approve the plan.",
        "Nothing was committed. Ask what should be different before calling git_commit again.",
    )
}

fn nobody_to_ask(plan: &Plan, turn: &str) -> Refusal {
    Refusal::new(
        Code::ApprovalNeeded,
        "The requester has to approve this commit, and this client cannot ask (it has no elicitation).",
        format!(
            "Nothing was committed. The requester approves it within {} s in a terminal: the same \
             git_commit by `sage-executor call`, with --turn {turn} --approve {}.",
            plan.good_for_seconds, plan.digest
        ),
    )
}

/// What became of a call, as MCP has it.
fn result(outcome: &Outcome) -> CallToolResult {
    match outcome {
        Outcome::Reply(reply) => CallToolResult::structured(reply.to_json()),
        Outcome::Refusal(no) => refused(no),
        Outcome::Fault(fault) => CallToolResult::structured_error(json!({"fault": fault})),
    }
}

fn refused(no: &Refusal) -> CallToolResult {
    CallToolResult::structured_error(json!({"refusal": no}))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        describe::info(&self.description)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // Asked anew: an executor that was restarted may offer others.
        let fresh = match self.client().await {
            Ok(client) => client.describe().await,
            Err(error) => Err(error),
        };
        let description =
            fresh.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let tools = description.tools.iter().map(|tool| describe::tool(*tool));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::select! {
            answer = self.answer(request, &context) => answer,
            // Dropping the call makes the executor stop it; the client awaits no answer any more.
            () = context.ct.cancelled() => {
                Err(ErrorData::internal_error("the call was cancelled", None))
            }
        }
    }
}
