//! The same text without its escapes: a credential in a URL query, a JSON string or a shell line
//! is still that credential.

/// An unescaped text that knows where each of its bytes came from.
#[derive(Debug)]
pub(super) struct View {
    /// The text without escapes.
    pub(super) text: Vec<u8>,
    /// For each byte of `text` where it began in the original, and the original's length.
    origin: Vec<usize>,
}

impl View {
    /// Unescapes a text; `None` when there is nothing to unescape.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let first = (0..text.len()).find(|&at| escape(&text[at..]).is_some())?;
        let mut view =
            Self { text: text[..first].to_vec(), origin: (0..first).collect::<Vec<_>>() };
        let mut at = first;
        while at < text.len() {
            let (byte, length) = escape(&text[at..]).unwrap_or((text[at], 1));
            view.text.push(byte);
            view.origin.push(at);
            at += length;
        }
        view.origin.push(text.len());
        Some(view)
    }

    /// Where a position lies in the original text.
    pub(super) fn origin(&self, at: usize) -> usize {
        self.origin[at]
    }
}

/// The byte an escape stands for, and the escape's length. Only ASCII comes out of it, so that a
/// finding never begins or ends inside a character.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    match *text.first()? {
        b'%' => hex(text.get(1..3)?).map(|byte| (byte, 3)),
        b'\\' => {
            // JSON inside JSON doubles its backslashes.
            let slashes = text.iter().take(8).take_while(|&&byte| byte == b'\\').count();
            let (byte, length) = backslash(&text[slashes..])?;
            Some((byte, slashes + length))
        }
        // A colour of a terminal: letters at its end must not be glued to what follows.
        0x1b => {
            let inside = text.get(2..)?.iter().take(16).take_while(|byte| **byte < b'@').count();
            (text[1] == b'[' && text.get(2 + inside)?.is_ascii_alphabetic())
                .then_some((b' ', 3 + inside))
        }
        _ => None,
    }
}

/// What follows a backslash.
fn backslash(text: &[u8]) -> Option<(u8, usize)> {
    match *text.first()? {
        b'n' | b'r' | b't' => Some((b'\n', 1)),
        b'u' if text.get(1..3)? == b"00" => hex(text.get(3..5)?).map(|byte| (byte, 5)),
        b'x' => hex(text.get(1..3)?).map(|byte| (byte, 3)),
        mark if mark.is_ascii_punctuation() && mark != b'\\' => Some((mark, 1)),
        _ => None,
    }
}

/// Two hexadecimal digits as an ASCII character.
fn hex(digits: &[u8]) -> Option<u8> {
    let [high, low] = *digits else { return None };
    let value = char::from(high).to_digit(16)? * 16 + char::from(low).to_digit(16)?;
    let byte = u8::try_from(value).ok()?;
    (byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).then_some(byte)
}
