//! Lines of a stream, each at most so long.
//!
//! A longer line is read to its end and dropped, so that it costs neither memory nor the lines after
//! it. What is kept of it is its beginning, from which one can tell what it was.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// How much of a line that is too long is kept.
const BEGINNING: usize = 64;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of a line that was longer than the limit.
    TooLong(Vec<u8>),
}

/// The next line; `None` at the end. A last line that nothing ends is a line.
pub(super) async fn next<R: AsyncBufRead + Unpin>(
    source: &mut R,
    limit: usize,
) -> io::Result<Option<Line>> {
    let (mut line, mut length) = (Vec::new(), 0_usize);
    loop {
        let available = source.fill_buf().await?;
        if available.is_empty() {
            return Ok((length > 0).then(|| finish(line, length, limit)));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        length = length.saturating_add(part.len());
        if length <= limit {
            line.extend_from_slice(part);
        } else if line.len() < BEGINNING {
            line.extend_from_slice(&part[..part.len().min(BEGINNING)]);
        } else {
            line.truncate(BEGINNING);
            line.shrink_to_fit();
        }
        let used = part.len() + usize::from(end.is_some());
        source.consume(used);
        if end.is_some() {
            return Ok(Some(finish(line, length, limit)));
        }
    }
}

fn finish(mut line: Vec<u8>, length: usize, limit: usize) -> Line {
    if length > limit {
        line.truncate(BEGINNING);
        return Line::TooLong(line);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Line::Whole(line)
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::{Line, next};

    async fn all(text: &[u8], limit: usize, buffer: usize) -> Vec<Line> {
        let mut source = BufReader::with_capacity(buffer, text);
        let mut lines = Vec::new();
        while let Some(line) = next(&mut source, limit).await.expect("memory can be read") {
            lines.push(line);
        }
        lines
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_at_line_feeds_and_at_nothing_else() {
        for buffer in [1, 2, 7, 8192] {
            let lines = all("a\r\n\n\u{2028}b\rc\nd".as_bytes(), 100, buffer).await;
            assert_eq!(lines, [whole("a"), whole(""), whole("\u{2028}b\rc"), whole("d")]);
        }
        assert_eq!(all(b"", 100, 8).await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_neither_memory_nor_the_next_one() {
        let long = format!("{}\nnext\n", "x".repeat(5000));
        for buffer in [1, 64, 8192] {
            let lines = all(long.as_bytes(), 4999, buffer).await;
            let [Line::TooLong(beginning), second] = &lines[..] else { panic!("{lines:?}") };
            assert!(
                beginning.iter().all(|byte| *byte == b'x') && beginning.len() <= super::BEGINNING
            );
            assert_eq!(*second, whole("next"));
            assert_eq!(all(long.as_bytes(), 5000, buffer).await[0], whole(&"x".repeat(5000)));
        }
    }
}
