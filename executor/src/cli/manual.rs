//! `sage-executor completions` and `sage-executor man`, from the command line's own definition.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit;

/// What `completions` takes.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// What `man` takes.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// Where to write a page per command. Without it, the main page goes to standard output.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints a shell's completions.
pub fn completions(arguments: &Completions) -> ExitCode {
    let mut text = Vec::new();
    let mut command = super::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "sage-executor", &mut text);
    done(io::stdout().write_all(&text))
}

/// Prints or writes the manual.
pub fn man(arguments: &Man) -> ExitCode {
    let mut command = super::Arguments::command();
    command.build();
    done(match &arguments.folder {
        None => page(&command, &mut io::stdout()),
        Some(folder) => std::fs::create_dir_all(folder).and_then(|()| pages(&command, folder, "")),
    })
}

fn page(command: &clap::Command, out: &mut impl Write) -> io::Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    man.render(out)?;
    if command.get_name() == "sage-executor" {
        writeln!(out, ".SH EXIT STATUS")?;
        for (code, meaning) in exit::ALL {
            writeln!(out, ".TP\n\\fB{code}\\fR\n{meaning}")?;
        }
    }
    Ok(())
}

fn pages(command: &clap::Command, folder: &Path, before: &str) -> io::Result<()> {
    let name = format!("{before}{}", command.get_name());
    let named = command.clone().name(name.clone());
    let mut text = Vec::new();
    page(&named, &mut text)?;
    std::fs::write(folder.join(format!("{name}.1")), text)?;
    let commands = command.get_subcommands().filter(|one| !one.is_hide_set());
    for one in commands.filter(|one| one.get_name() != "help") {
        pages(one, folder, &format!("{name}-"))?;
    }
    Ok(())
}

fn done(written: io::Result<()>) -> ExitCode {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => exit::because(exit::FAULT, error),
        Ok(()) => ExitCode::SUCCESS,
    }
}
