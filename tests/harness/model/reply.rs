//! What the endpoint says to one request, byte by byte, well or badly.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    piece: usize,
    end: End,
    silent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Cut,
    Hang,
}

impl Reply {
    fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), kind.to_owned())],
            body: body.into(),
            piece: usize::MAX,
            end: End::Good,
            silent: false,
        }
    }

    /// An answer in words, as a stream, with usage.
    #[must_use]
    pub fn say(text: &str) -> Self {
        let half = text.floor_char_boundary(text.len() / 2);
        Self::stream(&[
            delta(json!({"role": "assistant", "content": &text[..half]})),
            delta(json!({"content": &text[half..]})),
            finish("stop"),
            usage(100, 10),
        ])
    }

    /// A call of one tool, as a stream, with usage.
    #[must_use]
    pub fn call(tool: &str, arguments: &Value) -> Self {
        Self::calls(&[(tool, arguments.clone())])
    }

    /// Calls of several tools at once, as a stream whose arguments come in pieces.
    #[must_use]
    pub fn calls(calls: &[(&str, Value)]) -> Self {
        let mut chunks = vec![delta(json!({"role": "assistant", "content": null}))];
        for (index, (tool, arguments)) in calls.iter().enumerate() {
            let id = format!("call_{index}_{tool}");
            let text = arguments.to_string();
            let half = text.floor_char_boundary(text.len() / 2);
            chunks.push(call_piece(json!({"index": index, "id": id, "type": "function",
                    "function": {"name": tool, "arguments": ""}})));
            for part in [&text[..half], &text[half..]] {
                let function = json!({"arguments": part});
                chunks.push(call_piece(json!({"index": index, "function": function})));
            }
        }
        chunks.extend([finish("tool_calls"), usage(100, 10)]);
        Self::stream(&chunks)
    }

    /// These chunks as a stream, and `[DONE]`.
    #[must_use]
    pub fn stream(chunks: &[Value]) -> Self {
        let mut reply = Self::stream_without_done(chunks);
        reply.body.extend_from_slice(b"data: [DONE]\n\n");
        reply
    }

    /// These chunks as a stream that just ends.
    #[must_use]
    pub fn stream_without_done(chunks: &[Value]) -> Self {
        let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        Self::new(200, "text/event-stream; charset=utf-8", events)
    }

    /// These bytes as a stream.
    #[must_use]
    pub fn raw_stream(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    /// A JSON body, from an endpoint that does not stream.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// A body of another kind.
    #[must_use]
    pub fn other(status: u16, kind: &str, body: &str) -> Self {
        Self::new(status, kind, body)
    }

    /// An error.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "scripted"}});
        Self::new(status, "application/json", body.to_string())
    }

    /// Nothing at all, not even a status.
    #[must_use]
    pub fn silent() -> Self {
        Self { silent: true, ..Self::new(200, "", "") }
    }

    /// With another header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body in pieces of so many bytes, each on its own way.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// Only the first bytes of the body, as a share of all, and then the connection breaks.
    #[must_use]
    pub fn cut_at(mut self, percent: usize) -> Self {
        self.body.truncate(self.body.len() * percent / 100);
        self.end = End::Cut;
        self
    }

    /// Only the first bytes of the body, as a share of all, and then nothing, for ever.
    #[must_use]
    pub fn hang_at(mut self, percent: usize) -> Self {
        self.body.truncate(self.body.len() * percent / 100);
        self.end = End::Hang;
        self
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn into_response(self) -> hyper::Response<Pieces> {
        let mut response = hyper::Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        let pieces = self.body.chunks(self.piece.min(self.body.len().max(1)));
        let pieces = pieces.map(Bytes::copy_from_slice).collect();
        let body = Pieces { pieces, end: self.end, rests: false };
        response.body(body).expect("a script's headers are well formed")
    }
}

/// A chunk with a delta.
#[must_use]
pub fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// A chunk with a piece of a call.
#[must_use]
pub fn call_piece(piece: Value) -> Value {
    delta(json!({"tool_calls": [piece]}))
}

/// The chunk that says why it ends.
#[must_use]
pub fn finish(reason: &str) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m1",
        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// The chunk that says what was used.
#[must_use]
pub fn usage(input: u64, output: u64) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m1", "choices": [],
        "usage": {"prompt_tokens": input, "completion_tokens": output,
            "total_tokens": input + output}})
}

/// A body in pieces, with an end of its own.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    end: End,
    /// Between two pieces it rests once, so that each is sent before the next.
    rests: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if std::mem::take(&mut self.rests) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.rests = true;
        match (self.pieces.pop_front(), self.end) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, End::Good) => Poll::Ready(None),
            (None, End::Cut) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            (None, End::Hang) => {
                self.rests = false;
                Poll::Pending
            }
        }
    }
}
