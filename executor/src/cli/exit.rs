//! What the program says by its exit code. `docs/terminal.md` has the same table, and a test holds
//! the two together.

use std::process::ExitCode;

macro_rules! exits {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal,)+) => {
        $($(#[doc = $doc])+ pub const $name: u8 = $code;)+

        /// Every exit code with what it means, for the documentation and the man page.
        pub const ALL: &[(u8, &str)] = &[$(($code, concat!($($doc),+).trim_ascii()),)+];
    };
}

exits! {
    /// It was done.
    DONE = 0,
    /// It was done, and what it looked at is not as it should be.
    FOUND_WRONG = 1,
    /// The command line or the configuration is wrong; nothing was done.
    USAGE = 2,
    /// A rule refused the call; its code, message and hint are on standard error.
    REFUSED = 3,
    /// Something broke inside the executor.
    FAULT = 4,
    /// The executor cannot be reached, or went away in the middle.
    UNREACHABLE = 5,
    /// A person has to approve first, and nobody did.
    NOT_APPROVED = 6,
    /// Interrupted; the executor stopped the call.
    INTERRUPTED = 130,
}

/// Says why on standard error, and ends with a code.
pub fn because(code: u8, why: impl std::fmt::Display) -> ExitCode {
    eprintln!("sage-executor: {why}");
    ExitCode::from(code)
}
