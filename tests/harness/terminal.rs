//! A program of ours on a terminal of its own, and a person who types there and reads along.
//!
//! The terminal is the program's controlling one, so that Ctrl-C is a signal whenever the program does
//! not read keys itself.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

use crate::programs::program;

/// How long anything may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program on a terminal. Dropping it kills it.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Up to where it was read.
    read: usize,
}

impl Terminal {
    /// Starts a program, with nothing in its environment but PATH and a terminal's name.
    ///
    /// # Panics
    /// When there is no terminal to be had, or it does not start.
    #[must_use]
    pub fn start<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        let size = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal can be had");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(program(name))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let child = command.spawn().expect("it starts");
        // The program alone holds the other end from here on, so that reading ends with it.
        drop(command);
        drop(pty.slave);
        let mut screen = File::from(pty.master);
        let keys = screen.try_clone().expect("a descriptor");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error (EIO).
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend_from_slice(&buffer[..length]);
            }
        });
        Self { child, keys, shown, read: 0 }
    }

    /// Presses keys.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it can be typed");
    }

    /// Waits until a text is shown after what was read before; everything up to its end.
    ///
    /// # Panics
    /// When it is not shown in two minutes.
    pub fn read_to(&mut self, text: &str) -> String {
        let limit = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            let new = &shown[self.read..];
            let found = new.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let end = at + text.len();
                self.read += end;
                return String::from_utf8_lossy(&new[..end]).into_owned();
            }
            let new = String::from_utf8_lossy(new);
            assert!(Instant::now() < limit, "{text:?} is not shown, but {new:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn shown(&self) -> Vec<u8> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything that was shown so far.
    #[must_use]
    pub fn all(&self) -> String {
        String::from_utf8_lossy(&self.shown()).into_owned()
    }

    /// Whether the terminal echoes and gathers lines by itself, as programs expect to find it.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[must_use]
    pub fn is_as_usual(&self) -> bool {
        let modes = tcgetattr(&self.keys).expect("it is there").local_flags;
        modes.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid is small");
        kill(Pid::from_raw(pid), signal).expect("it is our child");
    }

    /// Waits for the end; the exit code.
    ///
    /// # Panics
    /// When it does not end in two minutes, or was killed.
    pub fn ended(&mut self) -> i32 {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status.code().expect("it was not killed");
            }
            assert!(Instant::now() < limit, "it does not end; it showed {:?}", self.all());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
