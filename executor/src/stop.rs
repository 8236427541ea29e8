//! STOP (J6): the operator's brake on everything that writes or reaches the network.
//!
//! The marker is a file, `stateDir/STOP`. Its being there is the stop; what it holds only says who
//! and when. So a stop needs no running daemon, outlives every crash, and a plain `touch` will do. The state
//! directory is the daemon's user's alone: who may stop and resume is decided by the kernel, nothing
//! on the socket can, and no peer needs to be trusted for it.
//!
//! What must stay true: a call that writes is on the list of running ones *before* it looks for the
//! marker, and whoever heeds a marker reads that list *after* the marker is there. So a call either
//! sees the marker or is found and cancelled; there is no moment between.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use confine::cancel::Canceller;
use policy::fence;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{PushState, Reply};
use protocol::tool::ToolName;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::approval::Approvals;
use crate::audit::Audit;

/// The marker's name in the state directory.
pub const MARKER: &str = "STOP";

/// Who resumed, until that is in the audit.
const RESUMED: &str = "RESUMED";

/// Who gave an order, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// When: RFC 3339, UTC.
    pub at: String,
    /// The user who ran the command.
    pub uid: u32,
    /// That user's name.
    #[serde(default)]
    pub user: Option<String>,
    /// The user who logged in, where the kernel knows and it is another: who is behind a `sudo`.
    #[serde(default)]
    pub login: Option<String>,
}

impl Order {
    /// An order of whoever runs this process, now.
    #[must_use]
    pub fn now() -> Self {
        let uid = nix::unistd::getuid().as_raw();
        let login = fs::read_to_string("/proc/self/loginuid").ok();
        let login: Option<u32> = login.and_then(|text| text.trim().parse().ok());
        let login = login.filter(|login| ![u32::MAX, uid].contains(login));
        Self {
            at: jiff::Timestamp::now().to_string(),
            uid,
            user: name_of(uid),
            login: login.map(|uid| name_of(uid).unwrap_or_else(|| format!("uid {uid}"))),
        }
    }

    /// Of a marker that says nothing itself, such as an empty file: its owner, and when it was made.
    fn of_file(file: &fs::Metadata) -> Self {
        let at = jiff::Timestamp::from_second(file.mtime()).unwrap_or_default();
        Self { at: at.to_string(), uid: file.uid(), user: None, login: None }
    }

    /// Who, in words.
    #[must_use]
    pub fn who(&self) -> String {
        let user = self.user.clone().unwrap_or_else(|| format!("uid {}", self.uid));
        match &self.login {
            None => user,
            Some(login) => format!("{user} (logged in as {login})"),
        }
    }
}

fn name_of(uid: u32) -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    user.ok().flatten().map(|user| user.name)
}

/// The stop that stands, if one does. A marker that cannot be looked at counts as one.
#[must_use]
pub fn standing(state_dir: &Path) -> Option<Order> {
    let marker = state_dir.join(MARKER);
    let file = match fs::symlink_metadata(&marker) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => return Some(Order { at: String::new(), uid: 0, user: None, login: None }),
    };
    let said = file.is_file().then(|| fs::read_to_string(&marker).ok()).flatten();
    let order = said.and_then(|text| serde_json::from_str(&text).ok());
    Some(order.unwrap_or_else(|| Order::of_file(&file)))
}

/// Puts the marker there, durably, unless one is there already: the stop that then stands, and
/// whether it is a new one.
///
/// # Errors
/// When there is no marker afterwards.
pub fn place(state_dir: &Path, order: &Order) -> io::Result<(Order, bool)> {
    if let Some(standing) = standing(state_dir) {
        return Ok((standing, false));
    }
    let marker = state_dir.join(MARKER);
    if put(state_dir, MARKER, order).is_err() {
        // A full disk has room for an empty file more often than for one with a text.
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&marker)?;
    }
    File::open(state_dir)?.sync_all()?;
    Ok((standing(state_dir).unwrap_or_else(|| order.clone()), true))
}

/// Takes the marker away, durably; whether there was one. First it is noted who did.
///
/// # Errors
/// When the marker is still there.
pub fn lift(state_dir: &Path, order: &Order) -> io::Result<bool> {
    if standing(state_dir).is_none() {
        return Ok(false);
    }
    if let Err(error) = put(state_dir, RESUMED, order) {
        tracing::warn!(%error, "who resumed cannot be noted");
    }
    fs::remove_file(state_dir.join(MARKER))?;
    File::open(state_dir)?.sync_all()?;
    Ok(true)
}

/// Who resumed, told once.
pub fn take_resumed(state_dir: &Path) -> Option<Order> {
    let path = state_dir.join(RESUMED);
    let order = fs::read_to_string(&path).ok()?;
    let _ = fs::remove_file(&path);
    serde_json::from_str(&order).ok()
}

/// Whole or not at all.
fn put(state_dir: &Path, name: &str, order: &Order) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".order-").tempfile_in(state_dir)?;
    file.write_all(serde_json::to_string(order)?.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(state_dir.join(name)).map(drop).map_err(|error| error.error)
}

/// Names that come and go in the state directory.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches from now on. To be made before the process is confined, which needs fewer calls then.
    ///
    /// # Errors
    /// When the user's watches are used up.
    pub fn of(state_dir: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC)?;
        let names =
            WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ONLYDIR;
        inotify::add_watch(&watch, state_dir, names)?;
        Ok(Self(watch))
    }

    /// Looks at once, and again whenever a name came or went, on a thread of its own for as long as
    /// the process lives. Calls look for themselves: this is for what is under way already.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn keep(self, look: impl Fn() + Send + 'static) -> io::Result<()> {
        let watching = move || {
            let mut events = [0; 4096];
            loop {
                look();
                match rustix::io::read(&self.0, &mut events) {
                    Ok(1..) | Err(rustix::io::Errno::INTR) => {}
                    // A daemon that no longer sees a stop must not go on.
                    other => {
                        tracing::error!(?other, "stops can no longer be noticed");
                        std::process::exit(1);
                    }
                }
            }
        };
        std::thread::Builder::new().name("stops".to_owned()).spawn(watching).map(drop)
    }
}

/// The outcome of a call that a stop cancelled: what stands is said, and why the rest was not done.
pub fn told(tool: ToolName, since: &str, outcome: Outcome) -> Outcome {
    let no = fence::stopped(tool, since);
    match outcome {
        Outcome::Refusal(refusal) if refusal.code == Code::Cancelled => Outcome::Refusal(Refusal {
            message: format!(
                "{} It was under way and was cancelled; nothing was changed.",
                no.message
            ),
            ..no
        }),
        Outcome::Reply(Reply::Committed(mut done)) => {
            if let PushState::Failed { code: code @ Code::Cancelled, message } = &mut done.push {
                (*code, *message) = (Code::Stopped, format!("{} {}", no.message, no.hint));
            }
            Outcome::Reply(Reply::Committed(done))
        }
        other => other,
    }
}

/// The brake of a running daemon.
#[derive(Debug)]
pub struct Brake {
    state_dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heeded: Option<Heeded>,
    running: HashMap<u64, Running>,
    next: u64,
}

/// A stop that is in force.
#[derive(Debug)]
struct Heeded {
    order: Order,
    since: Instant,
    cancelled: usize,
    halted: bool,
}

#[derive(Debug)]
struct Running {
    canceller: Canceller,
    cut: bool,
}

/// A call that is on the list of running ones.
#[derive(Debug)]
pub struct Seat<'a> {
    brake: &'a Brake,
    audit: &'a Audit,
    approvals: &'a Approvals,
    id: u64,
}

impl Brake {
    /// The brake of a state directory, released until somebody looks.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_path_buf(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call on the list; to be done before [`Brake::look`].
    pub fn enter<'a>(
        &'a self,
        canceller: Canceller,
        audit: &'a Audit,
        approvals: &'a Approvals,
    ) -> Seat<'a> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.running.insert(id, Running { canceller, cut: false });
        Seat { brake: self, audit, approvals, id }
    }

    /// Looks for the marker, and heeds what it finds: the stop that stands, if one does.
    pub fn look(&self, audit: &Audit, approvals: &Approvals) -> Option<Order> {
        let mut state = self.state();
        let standing = standing(&self.state_dir);
        let known = state.heeded.as_ref().map(|heeded| &heeded.order);
        if known == standing.as_ref() {
            return standing;
        }
        if known.is_some() {
            let by = take_resumed(&self.state_dir);
            tracing::warn!(by = by.as_ref().map(Order::who), "RESUMED");
            write_down(audit, "resumed", json!({"order": by}));
            state.heeded = None;
        }
        if let Some(order) = &standing {
            state.heed(order.clone(), audit, approvals);
        }
        standing
    }
}

impl State {
    fn heed(&mut self, order: Order, audit: &Audit, approvals: &Approvals) {
        let since = Instant::now();
        for running in self.running.values_mut() {
            running.cut = true;
            running.canceller.cancel();
        }
        let (cancelled, voided) = (self.running.len(), approvals.void());
        tracing::warn!(by = order.who(), at = order.at, cancelled, "STOPPED");
        let said = json!({"order": order, "cancelled": cancelled, "approvalsVoided": voided});
        write_down(audit, "stopped", said);
        self.heeded = Some(Heeded { order, since, cancelled, halted: false });
        self.halted(audit, approvals);
    }

    /// Says so once nothing that was cancelled is left.
    fn halted(&mut self, audit: &Audit, approvals: &Approvals) {
        let cut = self.running.values().any(|running| running.cut);
        let Some(heeded) = self.heeded.as_mut().filter(|heeded| !heeded.halted && !cut) else {
            return;
        };
        heeded.halted = true;
        // A commit that was just being judged may have made a plan after the others were voided.
        approvals.void();
        let after = u64::try_from(heeded.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let said =
            json!({"order": heeded.order, "cancelled": heeded.cancelled, "afterMicros": after});
        write_down(audit, "halted", said);
    }
}

/// That it cannot be written down stops no stop.
fn write_down(audit: &Audit, event: &str, fields: serde_json::Value) {
    if let Err(error) = audit.append(event, fields) {
        tracing::error!(%error, event, "the audit cannot be written");
    }
}

impl Seat<'_> {
    /// Since when the stop stands that cancelled this call, if one did.
    #[must_use]
    pub fn cut(&self) -> Option<String> {
        let state = self.brake.state();
        let cut = state.running.get(&self.id).is_some_and(|running| running.cut);
        let since = || state.heeded.as_ref().map(|heeded| heeded.order.at.clone());
        // It may be resumed already.
        cut.then(|| since().unwrap_or_else(|| "and resumed since".to_owned()))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.brake.state();
        state.running.remove(&self.id);
        state.halted(self.audit, self.approvals);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use confine::cancel;

    use super::{Brake, MARKER, Order, lift, place, standing, take_resumed};
    use crate::approval::Approvals;
    use crate::audit::{Audit, files};

    fn events(dir: &std::path::Path) -> Vec<String> {
        let lines = files::newest(dir).expect("it reads");
        lines.iter().map(|line| line["event"].as_str().expect("a word").to_owned()).collect()
    }

    #[test]
    fn the_marker_stands_until_it_is_lifted_and_says_who_and_when() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(standing(dir.path()), None);
        let order = Order::now();
        assert_eq!(place(dir.path(), &order).expect("it is placed"), (order.clone(), true));
        let second = Order { at: "later".to_owned(), ..order.clone() };
        let again = place(dir.path(), &second).expect("it is there");
        assert_eq!(again, (order.clone(), false), "the first one stays");
        assert_eq!(standing(dir.path()), Some(order.clone()));
        assert!(lift(dir.path(), &second).expect("it is lifted"));
        assert_eq!(standing(dir.path()), None);
        assert_eq!(take_resumed(dir.path()), Some(second.clone()));
        assert_eq!(take_resumed(dir.path()), None, "it is told once");
        assert!(!lift(dir.path(), &second).expect("nothing is there"));
    }

    #[test]
    fn whatever_has_the_markers_name_is_a_stop() {
        let dir = tempfile::tempdir().expect("a folder");
        let marker = dir.path().join(MARKER);
        let me = nix::unistd::getuid().as_raw();
        for text in ["", "{", "stop!", "[]"] {
            fs::write(&marker, text).expect("it writes");
            assert_eq!(standing(dir.path()).expect(text).uid, me);
        }
        fs::remove_file(&marker).expect("it is ours");
        std::os::unix::fs::symlink("nowhere", &marker).expect("a link");
        assert!(standing(dir.path()).is_some(), "a link to nowhere");
        fs::remove_file(&marker).expect("it is ours");
        fs::create_dir(&marker).expect("a folder");
        assert!(standing(dir.path()).is_some(), "a folder");
    }

    #[test]
    fn a_stop_cancels_what_runs_and_is_said_when_that_is_gone() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(dir.path(), 1 << 20).expect("it opens");
        let (brake, approvals) = (Brake::new(dir.path()), Approvals::default());
        let (guard, cancel) = cancel::pair().expect("descriptors");
        let seat = brake.enter(guard.canceller(), &audit, &approvals);
        assert_eq!(brake.look(&audit, &approvals), None);
        assert!(!cancel.is_cancelled() && seat.cut().is_none());

        let (order, _) = place(dir.path(), &Order::now()).expect("it is placed");
        assert_eq!(brake.look(&audit, &approvals), Some(order.clone()));
        assert!(cancel.is_cancelled());
        assert_eq!(seat.cut(), Some(order.at.clone()));
        assert_eq!(brake.look(&audit, &approvals), Some(order.clone()), "a second look");
        assert_eq!(events(dir.path()), ["stopped"]);
        // One that comes now sees the stop and is not waited for.
        let (late, _) = cancel::pair().expect("descriptors");
        let late = brake.enter(late.canceller(), &audit, &approvals);
        assert!(brake.look(&audit, &approvals).is_some() && late.cut().is_none());
        drop(seat);
        assert_eq!(events(dir.path()), ["stopped", "halted"]);
        drop(late);

        lift(dir.path(), &Order::now()).expect("it is lifted");
        assert_eq!(brake.look(&audit, &approvals), None);
        assert_eq!(events(dir.path()), ["stopped", "halted", "resumed"]);
    }
}
