//! Server-sent events: bytes in, the data of events out.
//!
//! A line is only read once all of it is there, so a character that was split between two pieces is
//! whole again. Lines have a limit; what was received is never kept beyond the event it belongs to.

/// The longest line, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Splits a stream into events.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: String,
    has_data: bool,
}

/// A line or an event is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Takes the next piece; gives the data of each event that is complete with it.
    pub(super) fn take(&mut self, mut piece: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut events = Vec::new();
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.extend(&piece[..end])?;
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.end_of_line(&line)?);
        }
        self.extend(piece)?;
        Ok(events)
    }

    /// The stream is over: an event whose empty line is missing still counts.
    pub(super) fn finish(mut self) -> Result<Option<String>, TooLong> {
        let line = std::mem::take(&mut self.line);
        let last = self.end_of_line(&line)?;
        Ok(last.or_else(|| self.event()))
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_of_line(&mut self, line: &[u8]) -> Result<Option<String>, TooLong> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(self.event());
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.data.len() + value.len() > MAX_LINE_BYTES {
                return Err(TooLong);
            }
            if self.has_data {
                self.data.push('\n');
            }
            self.data.push_str(&String::from_utf8_lossy(value));
            self.has_data = true;
        }
        Ok(None)
    }

    fn event(&mut self) -> Option<String> {
        std::mem::take(&mut self.has_data).then(|| std::mem::take(&mut self.data))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Events, MAX_LINE_BYTES, TooLong};

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(events.take(piece).expect("it is short"));
        }
        all.extend(events.finish().expect("it is short"));
        all
    }

    #[test]
    fn comments_and_other_fields_are_left_out_and_lines_of_data_are_joined() {
        let text = b": ping\r\n\r\nevent: x\r\nid: 1\r\ndata: a\r\ndata:b\r\n\r\ndata: last";
        assert_eq!(read(&[text]), ["a\nb", "last"]);
        assert_eq!(read(&[b"\n\n\n"]), [""; 0]);
        assert_eq!(read(&[b"data\n\ndata:\n\n"]), [""]);
    }

    #[test]
    fn a_line_that_does_not_end_is_given_up() {
        let mut events = Events::default();
        let piece = vec![b'x'; MAX_LINE_BYTES / 2];
        assert_eq!(events.take(&piece), Ok(Vec::new()));
        assert_eq!(events.take(&piece), Ok(Vec::new()));
        assert_eq!(events.take(b"x"), Err(TooLong));
    }

    #[test]
    fn an_event_of_many_lines_is_given_up() {
        let mut events = Events::default();
        let line = [b"data:".to_vec(), vec![b'x'; MAX_LINE_BYTES - 10], b"\n".to_vec()].concat();
        assert_eq!(events.take(&line), Ok(Vec::new()));
        assert_eq!(events.take(&line), Err(TooLong));
    }

    proptest! {
        #[test]
        fn how_the_stream_is_split_makes_no_difference(
            texts in proptest::collection::vec("[^\r\n]{0,12}", 0..6),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let stream: String = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
            let bytes = stream.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), texts);
        }
    }
}
