//! A marker that must appear nowhere, and a watch over every process of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use memchr::memmem;

use super::server::Gate;

/// A word that nobody else has, with the forms in which it could leak.
#[derive(Debug, Clone)]
pub struct Marker {
    token: String,
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl Default for Marker {
    fn default() -> Self {
        Self::new()
    }
}

impl Marker {
    /// A new one.
    #[must_use]
    pub fn new() -> Self {
        let word = || RandomState::new().build_hasher().finish();
        let token = format!("{:016x}{:016x}{:016x}", word(), word(), word());
        let (head, tail) = token.split_at(token.len() / 2);
        let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut forms = vec![
            ("its first half", head.as_bytes().to_vec()),
            ("its second half", tail.as_bytes().to_vec()),
            ("hexadecimal", hex.into_bytes()),
        ];
        for (offset, name) in ["base64", "base64, one off", "base64, two off"].iter().enumerate() {
            forms.push((name, base64_inside(&token, offset)));
        }
        Self { token, forms }
    }

    /// The word.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The form in which it is in there, if it is.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        let hit = self.forms.iter().find(|(_, form)| memmem::find(bytes, form).is_some());
        hit.map(|(name, _)| *name)
    }

    /// The files below a folder that hold it, in content or in name.
    ///
    /// # Errors
    /// When something cannot be read: a search that looked at less proves nothing.
    pub fn find_below(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                found.extend(self.find_below(&path)?);
            }
            let content = if metadata.is_file() {
                fs::read(&path)?
            } else if metadata.is_symlink() {
                fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            let named = self.find(path.as_os_str().as_bytes()).is_some();
            if named || self.find(&content).is_some() {
                found.push(path);
            }
        }
        Ok(found)
    }
}

/// What every base64 text holds that encodes the word behind some multiple of three bytes and
/// `offset` more, whatever stands around it.
fn base64_inside(token: &str, offset: usize) -> Vec<u8> {
    let padded = [&vec![0; offset][..], token.as_bytes()].concat();
    let whole = padded.len() / 3 * 3;
    let text = STANDARD_NO_PAD.encode(&padded[..whole]);
    // The first group holds foreign bits when the word does not begin with it.
    text.as_bytes()[if offset == 0 { 0 } else { 4 }..].to_vec()
}

/// A process as everybody can see it.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Whether it is dead and not reaped.
    pub zombie: bool,
    /// Its name, 15 bytes at most.
    pub name: String,
    /// Its arguments, each ended by a NUL.
    pub arguments: Vec<u8>,
    /// Its environment, each entry ended by a NUL; empty when we may not see it.
    pub environment: Vec<u8>,
}

impl Process {
    /// Looks at one, unless it is gone.
    #[must_use]
    pub fn look(pid: u32) -> Option<Self> {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}"));
        let stat = String::from_utf8_lossy(&read("stat").ok()?).into_owned();
        let (before, after) = stat.rsplit_once(") ")?;
        let mut fields = after.split(' ');
        Some(Self {
            pid,
            zombie: fields.next()? == "Z",
            parent: fields.next()?.parse().ok()?,
            name: before.split_once('(')?.1.to_owned(),
            arguments: read("cmdline").unwrap_or_default(),
            environment: read("environ").unwrap_or_default(),
        })
    }

    /// Every process there is.
    ///
    /// # Panics
    /// Without /proc.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::look)
    }

    /// Whether it has to do with a folder: names it in its arguments or environment.
    #[must_use]
    pub fn concerns(&self, folder: &Path) -> bool {
        let name = folder.as_os_str().as_bytes();
        [&self.arguments, &self.environment].iter().any(|text| memmem::find(text, name).is_some())
    }

    /// Whether its memory holds these bytes.
    ///
    /// # Errors
    /// When it is gone, or may not be looked into.
    pub fn memory_holds(pid: u32, needle: &[u8]) -> io::Result<bool> {
        let mut memory = fs::File::open(format!("/proc/{pid}/mem"))?;
        for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
            let mut words = line.split_whitespace();
            let (range, rights) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let Some((start, end)) = range.split_once('-') else { continue };
            let bounds = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16));
            let (Ok(start), Ok(end)) = bounds else { continue };
            if !rights.starts_with('r') || line.ends_with("[vvar]") || line.ends_with("[vsyscall]")
            {
                continue;
            }
            memory.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            // A region that goes away meanwhile ends the read early.
            let _ = (&mut memory).take(end - start).read_to_end(&mut bytes);
            if memmem::find(&bytes, needle).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a watch saw.
#[derive(Debug, Default)]
pub struct Report {
    /// How often it looked at every process.
    pub passes: u64,
    /// How often it saw a process of the watched folder, by name.
    pub seen: BTreeMap<String, u64>,
    /// Where the marker was: process, place and form.
    pub found: Vec<String>,
    /// Whether the memory of git's https helper held the token while it was waiting.
    pub helper_held_token: bool,
    /// Whether the helper could have left a core dump.
    pub could_dump: bool,
    /// Why the helper's memory could not be looked into, if so.
    pub blind: Option<String>,
}

/// A thread that looks at every process over and over.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

/// The name of git's https helper, as the kernel cuts it.
pub const HELPER: &str = "git-remote-http";
/// The name under which a watch counts the program when git runs it as askpass.
pub const ASKPASS: &str = "askpass";

impl Watch {
    /// Starts one for processes that concern a folder. It lets requests through the gate only after
    /// a whole look at everything that began when they were held, and that saw git's https helper.
    #[must_use]
    pub fn start(marker: &Marker, folder: &Path, gate: Option<Arc<Gate>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (marker, folder, told) = (marker.clone(), folder.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut report = Report::default();
            loop {
                let last = told.load(Ordering::Acquire);
                let held = gate.as_ref().map_or(0, |gate| gate.arrived());
                let helper = report.pass(&marker, &folder);
                if let (Some(gate), Some(helper)) = (&gate, helper) {
                    report.look_into(helper, &marker, held > 0);
                    gate.release(held);
                }
                if last {
                    return report;
                }
            }
        });
        Self { stop, thread }
    }

    /// Ends it, after one more whole look.
    ///
    /// # Panics
    /// When it panicked.
    #[must_use]
    pub fn finish(self) -> Report {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the watch does not panic")
    }
}

impl Report {
    /// Looks at every process once. Says which one is the helper.
    fn pass(&mut self, marker: &Marker, folder: &Path) -> Option<u32> {
        let mut helper = None;
        for process in Process::all() {
            for (place, text) in
                [("arguments", &process.arguments), ("environment", &process.environment)]
            {
                if let Some(form) = marker.find(text) {
                    self.found.push(format!("{} of {} ({form})", place, process.name));
                }
            }
            if process.concerns(folder) {
                let asked = memmem::find(&process.arguments, b"Password for ").is_some();
                let name = if asked { ASKPASS } else { &process.name };
                *self.seen.entry(name.to_owned()).or_default() += 1;
                if process.name == HELPER {
                    helper = Some(process.pid);
                }
            }
        }
        self.passes += 1;
        helper
    }

    /// The positive control: the token is near, in the one memory where it must be.
    fn look_into(&mut self, helper: u32, marker: &Marker, held: bool) {
        if !held || self.helper_held_token {
            return;
        }
        let limits = fs::read_to_string(format!("/proc/{helper}/limits")).unwrap_or_default();
        let core = limits.lines().find(|line| line.starts_with("Max core file size"));
        self.could_dump |= core.is_none_or(|line| line.split_whitespace().nth(4) != Some("0"));
        match Process::memory_holds(helper, marker.token().as_bytes()) {
            Ok(holds) => self.helper_held_token = holds,
            Err(error) => self.blind = Some(error.to_string()),
        }
    }
}
