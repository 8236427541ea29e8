//! Which characters a page's bytes are, as browsers decide it: the byte order mark, the header, the
//! page's own `<meta>`, and only then a guess. UTF-7 is no encoding.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How far into a page its `<meta>` is looked for, in bytes.
const PRESCAN: usize = 4096;

/// Decodes a page. The second is whether characters were lost or guessed.
#[must_use]
pub fn decode(bytes: &[u8], header: Option<&str>, html: bool) -> (String, bool) {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        let (text, broken) = encoding.decode_without_bom_handling(&bytes[mark..]);
        return (text.into_owned(), broken);
    }
    let meta = || if html { meta_label(bytes) } else { None };
    let label = |name: &str| Encoding::for_label(name.as_bytes());
    let known = header.and_then(label).or_else(|| {
        let found = label(&meta()?)?;
        // It could not have been read so far, were it true.
        Some(if found == UTF_16LE || found == UTF_16BE { UTF_8 } else { found })
    });
    let misnamed = header.is_some_and(|name| label(name).is_none());
    match known {
        Some(encoding) => {
            let (text, broken) = encoding.decode_without_bom_handling(bytes);
            (text.into_owned(), broken || misnamed)
        }
        None => match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), misnamed && !text.is_ascii()),
            // Cut in the middle of a character at the cap.
            Err(error) if error.error_len().is_none() => {
                (String::from_utf8_lossy(bytes).into_owned(), true)
            }
            Err(_) => (WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(), true),
        },
    }
}

/// The label in the first `<meta>` that has one.
fn meta_label(bytes: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN)]).to_ascii_lowercase();
    start.split("<meta").skip(1).find_map(|tag| {
        let tag = tag.split('>').next()?;
        let after = tag.split_once("charset")?.1.trim_start().strip_prefix('=')?;
        let value = after.trim_start().trim_start_matches(['"', '\'']);
        let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c)));
        let label = &value[..end.unwrap_or(value.len())];
        (!label.is_empty()).then(|| label.to_owned())
    })
}
