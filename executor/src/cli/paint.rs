//! Whether there are colours, how wide the terminal is, and who pages.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use anstyle::{AnsiColor, Style};

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR, CLICOLOR=0 or TERM=dumb says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a command prints on.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// Whether there are colours.
    pub colours: bool,
    /// How many columns there are; nothing is cut where nobody looks at the width.
    pub width: Option<usize>,
}

/// What a piece of text is, and so how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A heading.
    Strong,
    /// What stands beside the point.
    Faint,
    /// A line that was added, a staged path.
    Added,
    /// A line that was removed, a path that is not staged.
    Removed,
    /// A place in a diff.
    Place,
    /// A hash.
    Hash,
    /// A branch.
    Branch,
}

impl Look {
    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Strong => Style::new().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Added | Self::Branch => colour(AnsiColor::Green),
            Self::Removed => colour(AnsiColor::Red),
            Self::Place => colour(AnsiColor::Cyan),
            Self::Hash => colour(AnsiColor::Yellow),
        }
    }
}

impl Paper {
    /// Paper without colours, of any width: a file, a pipe.
    pub const PLAIN: Self = Self { colours: false, width: None };

    /// What standard output is.
    #[must_use]
    pub fn of_stdout(when: When) -> Self {
        let variable = |name: &str| std::env::var_os(name);
        let terminal = io::stdout().is_terminal();
        let width = terminal.then(|| {
            let columns = variable("COLUMNS").and_then(|text| text.to_str()?.parse().ok());
            let asked = || rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_col);
            columns.or_else(|| asked().ok().map(usize::from)).filter(|width| *width > 0)
        });
        Self { colours: has_colours(when, terminal, variable), width: width.flatten() }
    }

    /// The text in its look.
    #[must_use]
    pub fn paint(self, look: Look, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let style = look.style();
        format!("{style}{text}{style:#}")
    }
}

/// <https://no-color.org> and <https://bixense.com/clicolors>, in that order.
fn has_colours(when: When, terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if set("NO_COLOR").is_some() => false,
        When::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        When::Auto => {
            terminal
                && set("CLICOLOR").is_none_or(|value| value != "0")
                && set("TERM").is_none_or(|value| value != "dumb")
        }
    }
}

/// Prints a text, through a pager when somebody sits there.
///
/// The pager is `$SAGE_PAGER`, else `$PAGER`, else `less`; an empty one or `cat` is none. It is
/// started directly and not by a shell: its words are split at spaces. `LESS` is set to `FRX` unless
/// it is set. Without a usable `TERM` there is none unless one is named.
///
/// # Errors
/// When standard output cannot be written, other than because the reader left.
pub fn print(text: &str, page: bool) -> io::Result<()> {
    if page && io::stdout().is_terminal() && paged(text) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Whether a pager took the text.
fn paged(text: &str) -> bool {
    let named = std::env::var("SAGE_PAGER").or_else(|_| std::env::var("PAGER"));
    // less would ask first whether it may, on a terminal that it cannot drive.
    let can = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
    let named = named.unwrap_or_else(|_| if can { "less" } else { "cat" }.to_owned());
    let mut words = named.split_whitespace();
    let Some(program) = words.next().filter(|program| *program != "cat") else { return false };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // Whoever leaves the pager early has seen enough.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Look, Paper, When, has_colours};

    /// When, whether on a terminal, the variables, and whether there are colours.
    type Case = (When, bool, &'static [(&'static str, &'static str)], bool);

    #[test]
    fn colours_follow_the_usual_conventions() {
        let cases: &[Case] = &[
            (When::Auto, true, &[], true),
            (When::Auto, false, &[], false),
            (When::Auto, true, &[("NO_COLOR", "1")], false),
            (When::Auto, true, &[("NO_COLOR", "")], true),
            (When::Auto, true, &[("CLICOLOR", "0")], false),
            (When::Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (When::Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (When::Auto, true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
            (When::Auto, true, &[("TERM", "dumb")], false),
            (When::Always, false, &[("NO_COLOR", "1")], true),
            (When::Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ];
        for (when, terminal, variables, expected) in cases {
            let variable = |name: &str| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            assert_eq!(has_colours(*when, *terminal, variable), *expected, "{variables:?}");
        }
    }

    #[test]
    fn paint_stays_off_plain_paper() {
        assert_eq!(Paper::PLAIN.paint(Look::Added, "+x"), "+x");
        let colours = Paper { colours: true, width: None };
        assert_eq!(colours.paint(Look::Added, "+x"), "\u{1b}[32m+x\u{1b}[0m");
    }
}
