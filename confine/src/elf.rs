//! The one thing that we need of an ELF file: which loader it names.
//!
//! The kernel opens that loader with the right to execute, so it needs a grant of its own.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PT_INTERP: u32 = 3;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// More program headers than any real program has.
const MOST_HEADERS: u16 = 128;
/// The kernel's own bound on the loader's path.
const LONGEST_PATH: u64 = 4096;

/// The loader that a 64-bit little-endian ELF program names; `None` for a static one.
///
/// # Errors
/// The file cannot be read or is no such program.
pub(crate) fn interpreter(program: &Path) -> io::Result<Option<PathBuf>> {
    let file = File::open(program)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).map_err(|_| not_elf())?;
    // Magic, 64-bit, little-endian.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Err(not_elf());
    }
    let table = u64_at(&header, 32);
    let size = u16_at(&header, 54);
    let count = u16_at(&header, 56);
    if usize::from(size) != PROGRAM_HEADER || count > MOST_HEADERS {
        return Err(not_elf());
    }
    for index in 0..u64::from(count) {
        let mut entry = [0; PROGRAM_HEADER];
        let at = index.checked_mul(u64::from(size)).and_then(|step| table.checked_add(step));
        file.read_exact_at(&mut entry, at.ok_or_else(not_elf)?).map_err(|_| not_elf())?;
        if u32_at(&entry, 0) == PT_INTERP {
            return path_at(&file, u64_at(&entry, 8), u64_at(&entry, 32)).map(Some);
        }
    }
    Ok(None)
}

fn path_at(file: &File, offset: u64, length: u64) -> io::Result<PathBuf> {
    if !(2..=LONGEST_PATH).contains(&length) {
        return Err(not_elf());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| not_elf())?];
    file.read_exact_at(&mut bytes, offset).map_err(|_| not_elf())?;
    let end = bytes.iter().position(|byte| *byte == 0).ok_or_else(not_elf)?;
    bytes.truncate(end);
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

fn not_elf() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a 64-bit ELF program")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_a_dynamic_program_is_found() {
        let loader = interpreter(Path::new("/bin/sh")).expect("an ELF program");
        assert!(loader.is_some_and(|path| path.is_absolute() && path.exists()));
    }

    #[test]
    fn what_is_not_an_elf_program_is_an_error_and_not_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        let mut elf = std::fs::read("/bin/sh").expect("a shell");
        // A program header table far outside the file.
        elf[32..40].fill(0xff);
        for bytes in [&b""[..], b"#!/bin/sh\n", &elf[..63], &elf] {
            std::fs::write(&path, bytes).expect("a file");
            let error = interpreter(&path).expect_err("no ELF program");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
