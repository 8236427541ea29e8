//! Reading a body to its cap, which counts what comes out of decompression, and what goes in as well.

use std::io::{self, Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use protocol::refusal::Code;

use crate::tools::Failure;

/// How a body is coded. One coding at most: a second one is how a small answer becomes a huge one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
    Deflate,
}

impl Coding {
    /// The coding that the header names.
    pub(super) fn of(header: &str) -> Result<Self, Failure> {
        let named: Vec<String> = header
            .split(',')
            .map(|coding| coding.trim().to_ascii_lowercase())
            .filter(|coding| !coding.is_empty() && coding != "identity")
            .collect();
        match named.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Plain),
            ["gzip" | "x-gzip"] => Ok(Self::Gzip),
            ["deflate"] => Ok(Self::Deflate),
            _ => Err(Failure::refuse(
                Code::UnsupportedType,
                "The page is compressed in a way that was not asked for.".to_owned(),
                "Fetch another page.",
            )),
        }
    }
}

/// Reads at most `max` bytes, and says whether there is more.
pub(super) fn read(
    source: &mut dyn Read,
    coding: Coding,
    max: usize,
) -> io::Result<(Vec<u8>, bool)> {
    let mut raw = Vec::new();
    // One more, to know whether it was all.
    let most = max as u64 + 1;
    source.take(most).read_to_end(&mut raw)?;
    let cut = raw.len() > max;
    raw.truncate(max);
    match coding {
        Coding::Plain => Ok((raw, cut)),
        Coding::Gzip => decoded(MultiGzDecoder::new(&raw[..]), max, cut),
        // The name means the zlib form, and some servers send the raw one.
        Coding::Deflate if is_zlib(&raw) => decoded(ZlibDecoder::new(&raw[..]), max, cut),
        Coding::Deflate => decoded(DeflateDecoder::new(&raw[..]), max, cut),
    }
}

fn decoded(mut decoder: impl Read, max: usize, cut: bool) -> io::Result<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    match decoder.by_ref().take(max as u64 + 1).read_to_end(&mut text) {
        // What ends early because we stopped reading is cut, not broken.
        Err(_) if cut => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let more = text.len() > max;
    text.truncate(max);
    Ok((text, more || cut))
}

fn is_zlib(raw: &[u8]) -> bool {
    matches!(raw, [method, flags, ..]
        if method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::{Coding, read};

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).and_then(|()| encoder.finish()).expect("it compresses")
    }

    #[test]
    fn b43_the_cap_counts_what_comes_out() {
        let bomb = gzip(&vec![b'A'; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let (text, more) = read(&mut &bomb[..], Coding::Gzip, 100_000).expect("it decodes");
        assert_eq!((text.len(), more), (100_000, true));
    }

    #[test]
    fn b43_a_body_of_exactly_the_cap_is_whole() {
        for (length, more) in [(99, false), (100, false), (101, true)] {
            let text = vec![b'x'; length];
            for (coding, bytes) in [(Coding::Plain, text.clone()), (Coding::Gzip, gzip(&text))] {
                let (read, cut) = read(&mut &bytes[..], coding, 100).expect("it reads");
                assert_eq!((read.len(), cut), (length.min(100), more), "{coding:?}");
            }
        }
    }

    #[test]
    fn b43_members_are_joined_and_a_broken_end_is_an_error() {
        let two = [gzip(b"first "), gzip(b"second")].concat();
        assert_eq!(read(&mut &two[..], Coding::Gzip, 100).expect("it decodes").0, b"first second");
        let mut broken = gzip(b"some text that is long enough to have an end");
        let end = broken.len() - 6;
        broken[end] ^= 0xff;
        assert!(read(&mut &broken[..], Coding::Gzip, 100).is_err());
        assert!(read(&mut &broken[..end - 4], Coding::Gzip, 100).is_err());
    }

    #[test]
    fn b43_deflate_is_read_in_both_forms_and_other_codings_are_refused() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(b"zlib").expect("it compresses");
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
        raw.write_all(b"raw").expect("it compresses");
        let (zlib, raw) = (zlib.finish().expect("it ends"), raw.finish().expect("it ends"));
        assert_eq!(read(&mut &zlib[..], Coding::Deflate, 9).expect("it decodes").0, b"zlib");
        assert_eq!(read(&mut &raw[..], Coding::Deflate, 9).expect("it decodes").0, b"raw");
        for header in ["br", "zstd", "gzip, gzip", "gzip,br", "bogus"] {
            assert!(Coding::of(header).is_err(), "{header}");
        }
        assert_eq!(Coding::of(" GZIP ").expect("gzip"), Coding::Gzip);
        assert_eq!(Coding::of("identity").expect("nothing"), Coding::Plain);
    }
}
