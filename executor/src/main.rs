//! The executor's doorway: which role, then the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    executor::cli::main()
}
