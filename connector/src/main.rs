//! The doorway of `sage-connector`.

use std::process::ExitCode;

fn main() -> ExitCode {
    connector::run()
}
