//! REST v10: the connections, the faults, and what every answer has in common.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, PoisonError};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use super::fault::{Fault, error_body, page};
use super::model::Request;
use super::socket::{Cuttable, End, Order};
use super::state::Shared;

/// An answer before it is HTTP.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        let body = if status == 204 { String::new() } else { body.to_string() };
        Self {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
        }
    }

    pub(super) fn error(status: u16, code: u64) -> Self {
        Self::json(status, &error_body(code))
    }

    pub(super) fn html(status: u16, text: &str) -> Self {
        let kind = ("content-type".to_owned(), "text/html; charset=UTF-8".to_owned());
        Self { status, headers: vec![kind], body: page(text) }
    }
}

/// Serves until the runtime goes or the task is aborted.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let reset = shared.with(|state| {
            let reset = state.reset_connections > 0;
            state.reset_connections = state.reset_connections.saturating_sub(1);
            reset
        });
        if reset {
            let _ = stream.set_zero_linger();
            continue;
        }
        let _ = stream.set_nodelay(true);
        let (shared, order) = (Arc::clone(&shared), Order::default());
        let stream = TokioIo::new(Cuttable::new(stream, Arc::clone(&order)));
        tokio::spawn(async move {
            let service = service_fn(|request| handle(request, &shared, &order));
            // A connection that ends badly is what some tests are about.
            let _ =
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
        });
    }
}

async fn handle(
    request: HttpRequest<Incoming>,
    shared: &Shared,
    order: &Order,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut request = read(request).await;
    let fault = shared.with(|state| {
        request.at = state.clock.now();
        state.seen.requests.push(request.clone());
        state.fault_for(&request)
    });
    let end = |bytes, reset| {
        *order.lock().unwrap_or_else(PoisonError::into_inner) = Some(End { bytes, reset });
    };
    let answer = match fault {
        None => shared.with(|state| state.respond(&request)),
        Some(Fault::Error { status, code }) => {
            shared.with(|state| state.counted(&request, |_| Answer::error(status, code)))
        }
        Some(Fault::Answer { status, headers, body }) => Answer { status, headers, body },
        Some(Fault::RateLimit(limit)) => {
            let (headers, body) = limit.answer();
            Answer { status: 429, headers, body }
        }
        Some(Fault::Html(status)) => Answer::html(status, "Bad day"),
        Some(Fault::Hang) => pending().await,
        Some(Fault::Close) => {
            end(0, false);
            Answer::error(500, 0)
        }
        Some(Fault::Reset) => {
            end(0, true);
            Answer::error(500, 0)
        }
        Some(Fault::LoseResponse) => {
            end(0, false);
            shared.with(|state| state.respond(&request))
        }
        Some(Fault::ResetResponse) => {
            end(0, true);
            shared.with(|state| state.respond(&request))
        }
        Some(Fault::CutAfter(bytes)) => {
            end(bytes, false);
            shared.with(|state| state.respond(&request))
        }
        Some(Fault::GarbleResponse(body)) => {
            Answer { body, ..shared.with(|state| state.respond(&request)) }
        }
        Some(Fault::HoldRequest(gate)) => {
            gate.passed().await;
            shared.with(|state| state.respond(&request))
        }
        Some(Fault::HoldResponse(gate)) => {
            let answer = shared.with(|state| state.respond(&request));
            gate.passed().await;
            answer
        }
        Some(Fault::Headers(headers)) => {
            let mut answer = shared.with(|state| state.respond(&request));
            answer.headers.extend(headers);
            answer
        }
    };
    Ok(respond(answer))
}

async fn read(request: HttpRequest<Incoming>) -> Request {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    Request {
        method: head.method.as_str().to_owned(),
        path: path.strip_prefix("/api/v10").unwrap_or(path).to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        at: 0,
    }
}

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(Bytes::from(answer.body))).expect("headers of the fake are valid")
}
