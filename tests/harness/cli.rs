//! Sage's programs as a person or a script runs them: with arguments, variables, a pipe or a
//! terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::programs::program;

/// What a program said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// Standard output. On a terminal, standard error is in it too.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A program about to be run.
#[derive(Debug)]
pub struct Run {
    command: Command,
    input: String,
}

impl Run {
    /// `sage-executor` with an environment of nothing but PATH.
    pub fn executor<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::of("sage-executor", arguments)
    }

    /// Any program of ours.
    pub fn of<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::new(program(name));
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
        Self { command, input: String::new() }
    }

    /// With a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With this on standard input.
    #[must_use]
    pub fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// Runs it in pipes.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn piped(mut self) -> Said {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // It may end without reading.
        let _ = stdin.write_all(self.input.as_bytes());
        drop(stdin);
        said(&child.wait_with_output().expect("it ends"))
    }

    /// Runs it in pipes, and interrupts it (SIGINT, as Ctrl-C does) once something is so.
    ///
    /// # Panics
    /// When it does not start, or that does not come about.
    #[must_use]
    pub fn interrupted_when(mut self, so: impl Fn() -> bool) -> Said {
        let child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let until = Instant::now() + Duration::from_secs(60);
        while !so() {
            assert!(Instant::now() < until, "it did not come so far");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid is small"));
        kill(pid, Signal::SIGINT).expect("it is our child");
        said(&child.wait_with_output().expect("it ends"))
    }

    /// Runs it on a terminal of 100 columns, typing the input.
    ///
    /// # Panics
    /// When there is no terminal to be had.
    #[must_use]
    pub fn on_a_terminal(mut self) -> Said {
        let size = Winsize { ws_row: 50, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal can be had");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let child = self.command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let mut child = child.expect("it starts");
        // The program alone holds the other end from here on, so that reading ends with it.
        drop(self.command);
        drop(pty.slave);
        let mut terminal = File::from(pty.master);
        terminal.write_all(self.input.as_bytes()).expect("it can be typed");
        let mut shown = Vec::new();
        let mut buffer = [0; 4096];
        // The end of a terminal is an error (EIO).
        while let Ok(length @ 1..) = terminal.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..length]);
        }
        let status = child.wait().expect("it ends");
        Said {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&shown).replace("\r\n", "\n"),
            err: String::new(),
        }
    }
}

fn said(output: &Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
