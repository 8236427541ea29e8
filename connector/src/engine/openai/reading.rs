//! A stream, read piece by piece until its end. It does no I/O.

use super::completion::{Completion, Unusable};
use super::sse::{Events, TooLong};

/// The longest stream, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// What is known of a stream so far.
#[derive(Debug)]
pub(super) struct Reading {
    events: Events,
    completion: Completion,
    most_bytes: usize,
    received: usize,
    done: bool,
}

impl Reading {
    /// Before the first piece of an answer that may have so many bytes.
    pub(super) fn new(most_bytes: usize) -> Self {
        let (events, completion) = (Events::default(), Completion::default());
        Self { events, completion, most_bytes, received: 0, done: false }
    }

    /// Takes the next piece; whether the stream says that it is done.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<bool, Unusable> {
        self.received += piece.len();
        if self.received > MAX_BODY_BYTES {
            return Err(Unusable::TooLong);
        }
        for event in self.events.take(piece)? {
            if !self.done {
                self.event(&event)?;
            }
        }
        Ok(self.done)
    }

    /// The answer, at the end of the stream; `None` when it ended in the middle. `[DONE]` may be
    /// missing when the endpoint said why it ended.
    pub(super) fn end(mut self) -> Result<Option<Completion>, Unusable> {
        let rest = std::mem::take(&mut self.events).finish()?;
        if let Some(event) = rest.filter(|_| !self.done) {
            self.event(&event)?;
        }
        Ok((self.done || self.completion.is_whole()).then_some(self.completion))
    }

    fn event(&mut self, event: &str) -> Result<(), Unusable> {
        if event.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        self.completion.add(event, self.most_bytes)
    }
}

impl From<TooLong> for Unusable {
    fn from(_: TooLong) -> Self {
        Self::TooLong
    }
}

/// For the fuzz target: a stream is read the same however it is split.
///
/// # Panics
/// When that does not hold.
pub fn any_split_reads_the_same(stream: &[u8]) {
    let read = |size: usize| {
        let mut reading = Reading::new(4096);
        for piece in stream.chunks(size) {
            if reading.take(piece)? {
                break;
            }
        }
        reading.end()
    };
    let whole = read(stream.len().max(1));
    for size in [1, 2, 7] {
        assert_eq!(read(size), whole, "in pieces of {size}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::any_split_reads_the_same;

    proptest! {
        #[test]
        fn a_stream_is_read_the_same_however_it_is_split(
            lines in proptest::collection::vec((0..6usize, any::<String>()), 0..12),
        ) {
            let stream: String = lines.iter().map(|(kind, text)| match kind {
                0 => "data: [DONE]\n\n".to_owned(),
                1 => format!(": {text}\n"),
                2 => format!("data: {text}\n\n"),
                3 => "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\r\n\r\n".to_owned(),
                _ => {
                    let delta = serde_json::json!({"choices": [{"delta": {"content": text}}]});
                    format!("data: {delta}\n\n")
                }
            }).collect();
            any_split_reads_the_same(stream.as_bytes());
        }
    }
}
