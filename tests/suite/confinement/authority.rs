//! Each row of the authority table, as the executor really grants it: the step runs under its row,
//! and what takes the place of git and python attempts everything that some row allows.

use std::path::{Path, PathBuf};

use ::confine::grants::Rights;
use harness::confine;
use harness::rows::{Setting, Spot};
use policy::authority::{Exec, Files, Network, Row, Step, TABLE};

use super::{ALLOWED, EACCES, EPERM, PROBE};

/// What the row says of it, in the words of the table's documentation.
fn may(spot: Spot, row: &Row) -> (bool, bool) {
    use Spot::{GitDir, Locks, Objects, Registry, Remote, Token, Work};
    let in_root = matches!(spot, Work | GitDir | Objects | Locks | Registry);
    let from_files = match row.files {
        Files::ReadRoot => (in_root, false),
        Files::WriteRoot => (in_root, in_root),
        Files::WriteGitDir => (in_root, matches!(spot, GitDir | Objects)),
        Files::ReadObjects => (spot == Objects, false),
        Files::WriteObjects => (spot == Objects, spot == Objects),
        Files::WriteLocks => (in_root, spot == Locks),
        Files::WriteRegistry => (in_root, matches!(spot, Locks | Registry)),
        Files::None | Files::ReadResolver | Files::ReadAuthorities => (false, false),
    };
    match spot {
        Token => (row.token, false),
        Remote => (row.exec == Exec::GitLocalRemote, row.step == Step::PushLocal),
        _ => from_files,
    }
}

/// Every attempt, with what comes of it under the row.
fn attempts(setting: &Setting, row: &Row) -> Vec<(String, i32)> {
    let landlock = |may: bool| if may { ALLOWED } else { EACCES };
    let mut all = Vec::new();
    for spot in Spot::ALL {
        let file = setting.path(spot.file());
        let (reads, writes) = may(spot, row);
        all.push((format!("read {}", file.display()), landlock(reads)));
        all.push((format!("write {}", file.display()), landlock(writes)));
        let beside = file.with_file_name("made");
        // One file of its folder, and not the folder.
        let makes = writes && !(spot == Spot::Registry && row.files == Files::WriteRegistry);
        all.push((format!("make {}", beside.display()), landlock(makes)));
    }
    let starts = |may: bool| match row.exec {
        Exec::None | Exec::Git | Exec::Python | Exec::Itself => EPERM,
        Exec::GitRemoteHttps | Exec::GitLocalRemote => landlock(may),
    };
    let helper = setting.path("exec/git-remote-https");
    let is_https = row.exec == Exec::GitRemoteHttps;
    all.push((format!("exec {}", helper.display()), starts(is_https)));
    all.push(("exec /bin/sh".to_owned(), starts(row.exec == Exec::GitLocalRemote)));
    all.push(("exec /bin/true".to_owned(), starts(false)));
    let [granted, other] = setting.ports;
    let connects = |may: bool| match row.network {
        Network::None | Network::OneConnection => EPERM,
        // Neither is the port of DNS.
        Network::Dns => EACCES,
        Network::RemotePort => landlock(may),
    };
    all.push((format!("connect {granted}"), connects(true)));
    all.push((format!("connect {other}"), connects(false)));
    all
}

#[test]
fn every_step_touches_starts_and_reaches_exactly_what_its_row_says() {
    let setting = Setting::new(Path::new(PROBE));
    let mut attempted: Vec<(String, Vec<i32>)> = Vec::new();
    for row in TABLE {
        let attempts = attempts(&setting, row);
        let lines: Vec<&str> = attempts.iter().map(|(line, _)| line.as_str()).collect();
        let numbers = setting.run(row.step, &lines.join("\n"));
        let numbers: Vec<i32> =
            numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), attempts.len(), "{row:?}");
        let wrong: Vec<String> = attempts
            .iter()
            .zip(&numbers)
            .filter(|((_, expected), found)| expected != *found)
            .map(|((line, expected), found)| format!("{line}: {found} and not {expected}"))
            .collect();
        assert!(wrong.is_empty(), "{row:?}:\n{}", wrong.join("\n"));
        if attempted.is_empty() {
            attempted = lines.iter().map(|line| ((*line).to_owned(), Vec::new())).collect();
        }
        for ((_, found), number) in attempted.iter_mut().zip(numbers) {
            found.push(number);
        }
    }
    // Nothing but a ring refuses any of it.
    let lines: Vec<&str> = attempted.iter().map(|(line, _)| line.as_str()).collect();
    let free = confine::attempts(&lines.join("\n"));
    assert!(free.split(' ').all(|number| number == "0"), "{free}");
}

#[test]
fn nothing_that_the_daemon_may_write_may_be_executed_and_no_folder_is_executable() {
    let setting = Setting::new(Path::new(PROBE));
    let grants = setting.workplace.daemon_grants();
    assert!(grants.connect_ports.is_empty(), "a remote on this machine needs no port");
    let changes = |rights: Rights| {
        [Rights::WRITE_FILE, Rights::MAKE_FILE, Rights::REFER, Rights::REMOVE_FILE]
            .iter()
            .any(|right| rights.contains(*right))
    };
    let (executable, others): (Vec<_>, Vec<_>) =
        grants.files.iter().partition(|grant| grant.rights.contains(Rights::EXECUTE));
    let written: Vec<PathBuf> =
        others.iter().filter(|grant| changes(grant.rights)).map(|one| one.path.clone()).collect();
    let expected = ["state", "tree", "remote.git"].map(|name| setting.path(name));
    let devices = [PathBuf::from("/dev/null")];
    let unexpected =
        written.iter().filter(|path| !expected.contains(path) && !devices.contains(path));
    assert_eq!(unexpected.count(), 0, "{written:?}");
    assert!(expected.iter().all(|path| written.contains(path)), "{written:?}");
    assert!(!executable.is_empty());
    for grant in executable {
        assert!(!changes(grant.rights), "{grant:?}");
        assert!(!grant.path.is_dir(), "{grant:?}");
        assert!(!written.iter().any(|path| grant.path.starts_with(path)), "{grant:?}");
    }
}
