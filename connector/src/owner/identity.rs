//! What makes a process that process: its start and the boot, as the kernel prints them.
//!
//! A value of another form counts as none, so that a record that was cut or forged is never taken for a
//! process that is surely another one.

use std::io::{self, ErrorKind};

/// When a process started, and which boot this is; both in the form the kernel prints.
pub(super) fn identity(pid: i32) -> io::Result<(String, String)> {
    let odd =
        |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{what} is not readable"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in the second field can hold anything, so the fields are counted after its end.
    let after = stat.rsplit_once(')').map(|(_, after)| after).unwrap_or_default();
    let start = after.split_whitespace().nth(19).filter(|text| is_ticks(text));
    let boot = boot()?;
    let start = start.ok_or_else(|| odd("the start time"))?.to_owned();
    let boot = Some(boot.trim()).filter(|boot| is_boot(boot)).ok_or_else(|| odd("the boot id"))?;
    Ok((start, boot.to_owned()))
}

/// The boot's id. A unit with `ProcSubset=pid` has no /proc/sys; it passes systemd's `%b` instead, the same
/// id without its dashes.
fn boot() -> io::Result<String> {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let passed = std::env::var("SAGE_BOOT_ID").ok().and_then(|id| with_dashes(&id));
            passed.ok_or(error)
        }
        read => read,
    }
}

pub(super) fn with_dashes(id: &str) -> Option<String> {
    let part = |range| id.get(range);
    let parts = [part(0..8)?, part(8..12)?, part(12..16)?, part(16..20)?, part(20..32)?];
    (id.len() == 32).then(|| parts.join("-"))
}

/// An unsigned decimal of 64 bits as the kernel prints it: no sign, no leading zero.
pub(super) fn is_ticks(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|ticks| ticks.to_string() == text)
}

/// A lower-case UUID.
pub(super) fn is_boot(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(at, char)| match at {
            8 | 13 | 18 | 23 => char == '-',
            _ => matches!(char, '0'..='9' | 'a'..='f'),
        })
}
