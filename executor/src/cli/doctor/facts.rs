//! The facts, each by the very check that the start or a call makes.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use confine::grants::Grants;
use confine::kernel::{COVERAGE, KernelSupport};
use policy::git::Remote;
use policy::repository;
use protocol::wire::{Client, PROTOCOL_VERSION, WireError};

use super::{Arguments, Fact};
use crate::audit::files;
use crate::config::{Config, GitConfig, Peer, RootConfig, UserRef};
use crate::git::child::Git;
use crate::git::repo;
use crate::records::Python;
use crate::stop;
use crate::tools::Failure;
use crate::workplace;
use crate::{credential, daemon};

/// Everything there is to look at. Without a configuration, the machine alone.
pub(super) fn all(arguments: &Arguments) -> Vec<Fact> {
    let shown = arguments.config.display().to_string();
    let loaded = Config::load(&arguments.config);
    let said = loaded.as_ref().map(|_| shown.clone()).map_err(ToString::to_string);
    let otherwise = "correct it; `sage-executor init` writes a valid one to compare with";
    let mut facts = vec![Fact::of("configuration", said, otherwise)];
    let config = loaded.ok();
    let kernel = KernelSupport::detect();
    let kernel = arguments.assume_landlock.map_or(kernel, |abi| kernel.limited_to(abi));
    facts.extend(landlock(config.as_ref(), kernel));
    facts.push(seccomp(std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").ok()));
    facts.push(clock(config.as_ref(), SystemTime::now()));
    let Some(config) = config else { return facts };
    facts.push(git(&config));
    facts.extend(python(&config));
    facts.extend(config.peers.iter().map(peer));
    facts.push(state_dir(&config.state_dir));
    facts.push(stop(&config.state_dir, &shown));
    facts.push(Fact::of(
        "socket folder",
        daemon::check_socket_dir(&config.socket)
            .map(|()| folder_of(&config.socket).display().to_string())
            .map_err(|error| format!("{error:#}")),
        "make the folder, or name another `socket`",
    ));
    facts.extend(config.roots.iter().flat_map(|root| self::root(root, kernel)));
    facts.extend(disks(&config, arguments.min_free));
    facts.push(running(&config, &shown));
    facts
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The grants of the roots' remotes decide which ABI is needed.
fn needs(config: Option<&Config>) -> Grants {
    let mut grants = Grants::default();
    for root in config.iter().flat_map(|config| &config.roots) {
        let Some(GitConfig::Full(git)) = &root.git else { continue };
        if let Ok(Remote::Https { port, .. }) = Remote::parse(&git.remote) {
            grants.connect_ports.push(port);
        }
    }
    grants
}

fn landlock(config: Option<&Config>, kernel: KernelSupport) -> Vec<Fact> {
    let grants = needs(config);
    let missing = kernel.missing(&grants);
    let needed = KernelSupport::needed(&grants);
    let says = format!("ABI {} (needed: {needed})", kernel.abi());
    let next = match config {
        Some(config) if config.allow_degraded => {
            "a newer kernel; until then `allowDegraded` runs without what is named below"
        }
        _ => {
            "a newer kernel with Landlock, also in its `lsm=` list; `allowDegraded` runs without what is named below"
        }
    };
    let mut facts = vec![if missing.is_empty() {
        Fact::good("landlock", says)
    } else {
        Fact::wrong("landlock", says, next)
    }];
    for row in COVERAGE {
        let fact = format!("held: {}", row.what);
        facts.push(match row.otherwise {
            _ if kernel.abi() >= row.landlock_since => Fact::good(fact, "by Landlock"),
            Some(ring) => Fact::good(fact, ring),
            None if !missing.contains(&row.what) => Fact::good(fact, "not needed here"),
            None => Fact::wrong(
                fact,
                "by nothing",
                format!("a kernel with Landlock ABI {}", row.landlock_since),
            ),
        });
    }
    facts
}

fn seccomp(actions: Option<String>) -> Fact {
    let actions = actions.unwrap_or_default();
    let has = |action: &str| actions.split_whitespace().any(|word| word == action);
    if has("errno") && has("kill_process") {
        Fact::good("seccomp", "filters can be set")
    } else {
        Fact::wrong("seccomp", "this kernel sets no filters", "a kernel with CONFIG_SECCOMP_FILTER")
    }
}

/// A clock that is behind makes the audit's times, certificates and deadlines wrong.
fn clock(config: Option<&Config>, now: SystemTime) -> Fact {
    const YEAR_2025: u64 = 1_735_689_600;
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let next = "set the clock (`timedatectl set-ntp true`)";
    if seconds < YEAR_2025 {
        return Fact::wrong("clock", "it says that this is before 2025", next);
    }
    let audit = config.and_then(|config| {
        let last = files::newest(&config.state_dir).ok()?.pop()?;
        last["time"].as_str()?.parse::<jiff::Timestamp>().ok()
    });
    match audit {
        Some(last) if u64::try_from(last.as_second()).unwrap_or(0) > seconds + 60 => {
            Fact::wrong("clock", format!("the audit's last line is of {last}, in the future"), next)
        }
        _ => Fact::good("clock", "it does not contradict the audit"),
    }
}

fn git(config: &Config) -> Fact {
    let found = Git::find(config.git_program.as_deref());
    let said = found
        .map(|git| format!("{}.{} at {}", git.version.0, git.version.1, git.program.display()));
    Fact::of("git", said, "name another in `gitProgram`")
}

fn python(config: &Config) -> Option<Fact> {
    config.roots.iter().any(|root| root.protocol.is_some()).then(|| {
        let found = Python::find(config.python_program.as_deref());
        let said = found.map(|_| "found, for the record protocol".to_owned());
        Fact::of("python", said, "name another in `pythonProgram`")
    })
}

fn peer(peer: &Peer) -> Fact {
    let whom = if peer.requesters.is_empty() {
        "speaks for nobody".to_owned()
    } else {
        format!("may speak for {}", peer.requesters.join(", "))
    };
    match &peer.user {
        UserRef::Uid(uid) => Fact::good(format!("peer {uid}"), whom),
        UserRef::Name(name) => match nix::unistd::User::from_name(name) {
            Ok(Some(_)) => Fact::good(format!("peer {name}"), whom),
            _ => Fact::wrong(
                format!("peer {name}"),
                "there is no such user",
                format!("make it (`useradd --system {name}`), or correct `peers`"),
            ),
        },
    }
}

fn state_dir(path: &Path) -> Fact {
    if !path.exists() && folder_of(path).is_dir() {
        return Fact::good("state", format!("{} will be made at the first start", path.display()));
    }
    Fact::of(
        "state",
        daemon::check_state_dir(path)
            .map(|()| path.display().to_string())
            .map_err(|error| format!("{error:#}")),
        "make the folder above it, or name another `stateDir`",
    )
}

fn stop(state_dir: &Path, shown: &str) -> Fact {
    match stop::standing(state_dir) {
        None => Fact::good("stop", "none stands"),
        Some(order) => Fact::wrong(
            "stop",
            format!("STOPPED since {} by {}: nothing is written or fetched", order.at, order.who()),
            format!("when it may go on: `sage-executor resume --config {shown}`"),
        ),
    }
}

fn root(root: &RootConfig, kernel: KernelSupport) -> Vec<Fact> {
    let name = format!("root {}", root.name);
    let mut facts = Vec::new();
    if let Some(GitConfig::Full(git)) = &root.git
        && let Some(token) = &git.token_file
    {
        let said = credential::check_token_file(token).map(|()| token.display().to_string());
        let fact = format!("token of {}", root.name);
        facts.push(Fact::of(&fact, said, "put the token there, with mode 0600"));
        if facts.iter().any(|fact| !fact.ok) {
            return facts;
        }
    }
    match workplace::open_root(root, &kernel.allow_degraded(true)) {
        Err(why) => facts.push(Fact::of(&name, Err(why), "make or clone it, or correct `roots`")),
        Ok(opened) => {
            facts.push(Fact::good(&name, root.path.display().to_string()));
            facts.extend(opened.git.as_ref().map(|git| {
                let judged = opened.read(|| {
                    let state = repo::state(&repo::locate(&opened.path, None)?)?;
                    repository::may_write(&git.terms, &state).map_err(Failure::Refusal)
                });
                let name = format!("clone {}", root.name);
                match judged {
                    Ok(_) => Fact::good(
                        name,
                        format!("on {}, origin as configured", git.terms.branch.as_str()),
                    ),
                    Err(Failure::Refusal(no)) => {
                        Fact::wrong(name, format!("{}: {}", no.code, no.message), no.hint)
                    }
                    Err(Failure::Fault(fault)) => {
                        Fact::wrong(name, fault.message, "look at the repository with git")
                    }
                }
            }));
        }
    }
    facts
}

fn disks(config: &Config, least: u64) -> Vec<Fact> {
    let roots = config.roots.iter().filter(|root| root.write).map(|root| root.path.as_path());
    let mut seen = Vec::new();
    let mut facts = Vec::new();
    for path in std::iter::once(config.state_dir.as_path()).chain(roots) {
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let Ok(disk) = rustix::fs::statvfs(there) else { continue };
        if seen.contains(&disk.f_fsid) {
            continue;
        }
        seen.push(disk.f_fsid);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
        let fact = format!("disk of {}", path.display());
        // A file system without a fixed number of files says 0 of 0.
        facts.push(if free < least || (disk.f_files > 0 && disk.f_favail < 100) {
            Fact::wrong(
                fact,
                format!("{free} MiB and {} files are free", disk.f_favail),
                "make room: without it no call is written down, and so none acts",
            )
        } else {
            Fact::good(fact, format!("{free} MiB free"))
        });
    }
    facts
}

fn running(config: &Config, shown: &str) -> Fact {
    let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
        runtime.block_on(async { Client::connect(&config.socket).await?.describe().await })
    });
    let start = format!("start it: `sage-executor serve --config {shown}`");
    match asked {
        Err(error) => Fact::wrong("daemon", error.to_string(), "free some memory or descriptors"),
        Ok(Ok(said)) if !said.degraded.is_empty() => Fact::wrong(
            "daemon",
            format!("it runs DEGRADED, without: {}", said.degraded.join("; ")),
            "a newer kernel; see the lines about Landlock",
        ),
        Ok(Ok(said)) => {
            Fact::good("daemon", format!("it answers, protocol version {}", said.protocol_version))
        }
        Ok(Err(WireError::UnknownPeer)) => Fact::good(
            "daemon",
            format!("it answers, protocol version {PROTOCOL_VERSION}; this user is no peer"),
        ),
        Ok(Err(error @ (WireError::Connect { .. } | WireError::Lost(_)))) => {
            Fact::wrong("daemon", error.to_string(), start)
        }
        Ok(Err(error)) => {
            Fact::wrong("daemon", error.to_string(), "restart it, of the same version")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::{clock, seccomp};

    #[test]
    fn a_kernel_without_filters_and_a_clock_of_1970_are_found() {
        assert!(seccomp(Some("kill_process kill_thread trap errno log allow\n".to_owned())).ok);
        assert!(!seccomp(Some("kill_thread\n".to_owned())).ok);
        assert!(!seccomp(None).ok);
        let wrong = clock(None, UNIX_EPOCH);
        assert!(!wrong.ok && wrong.next.is_some_and(|next| next.contains("timedatectl")));
    }
}
