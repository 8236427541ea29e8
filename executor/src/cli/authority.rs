//! `sage-executor authority`.

use std::process::ExitCode;

/// Prints the table.
pub fn run() -> ExitCode {
    print!("{}", table());
    ExitCode::SUCCESS
}

/// The authority table as text, one row per step and one per tool.
#[must_use]
pub fn table() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let _ = writeln!(text, "{:<16} {:<15} {:<15} {:<13} token", "step", "files", "exec", "network");
    for row in policy::authority::TABLE {
        let token = if row.token { "its path" } else { "no" };
        let (files, exec) = (format!("{:?}", row.files), format!("{:?}", row.exec));
        let network = format!("{:?}", row.network);
        let _ = writeln!(
            text,
            "{:<16} {files:<15} {exec:<15} {network:<13} {token}",
            row.step.as_str()
        );
    }
    let _ = writeln!(text, "\n{:<16} steps", "tool");
    for tool in protocol::tool::ToolName::ALL {
        let steps: Vec<&str> =
            policy::authority::steps(*tool).iter().map(|step| step.as_str()).collect();
        let steps = if steps.is_empty() {
            "none: answered from memory".to_owned()
        } else {
            steps.join(", ")
        };
        let _ = writeln!(text, "{:<16} {steps}", tool.as_str());
    }
    text
}
