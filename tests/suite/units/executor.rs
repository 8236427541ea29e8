//! The executor as a unit: it starts when it is needed, and comes back whatever happens to it.

use harness::systemd::SystemdBox;

use super::{Instance, PEER, STRANGER, users};

fn main_pid(inside: &SystemdBox, unit: &str) -> String {
    inside.property(unit, "MainPID")
}

#[test]
fn it_starts_with_the_first_connection_and_what_is_decided_reaches_the_remote() {
    starts_and_reaches_the_remote(&SystemdBox::new());
}

pub(super) fn starts_and_reaches_the_remote(inside: &SystemdBox) {
    users(inside);
    let notes = Instance::new(inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    notes.start_socket(inside);
    assert_eq!(inside.property(&unit, "ActiveState"), "inactive");
    let said = notes.say(inside, "write strategy/plan.md: hello\ncommit strategy/plan.md: A plan");
    assert!(said.contains("pushed to origin/main"), "{said}\n{}", inside.journal(&unit));
    assert_eq!(notes.remote_subject(inside), "A plan");
    assert_eq!(inside.property(&unit, "ActiveState"), "active");
    assert_eq!(inside.property(&unit, "StatusText"), "serving");
    assert_eq!(inside.property(&unit, "User"), "sage-executor");

    // A user who is not listed is turned away, and the audit says so.
    let refused = notes.try_say(inside, STRANGER, "git status of strategy");
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("does not list this user"), "{said}");
    let audit = inside.run("cat /var/lib/sage-executor/notes/audit.jsonl");
    let uid = inside.run(&format!("id -u {STRANGER}"));
    let line = audit.lines().find(|line| line.contains("turned_away")).expect("it is audited");
    assert!(line.contains(&format!("\"peer\":{uid}")), "{line}");
    assert!(
        !audit.contains(notes.marker.token())
            && !inside.journal(&unit).contains(notes.marker.token())
    );

    // The token: in its own place, for the service alone, and in nobody's environment or arguments.
    let credential = format!("/run/credentials/{unit}/git-token");
    for user in [PEER, STRANGER, "sage-connector"] {
        assert!(!inside.try_run_as(user, &format!("cat {credential}")).status.success(), "{user}");
    }
    let pid = main_pid(inside, &unit);
    let seen = inside.run(&format!("cat /proc/{pid}/environ /proc/{pid}/cmdline | tr '\\0' '\\n'"));
    assert!(
        seen.contains("CREDENTIALS_DIRECTORY") && !seen.contains(notes.marker.token()),
        "{seen}"
    );
}

#[test]
fn it_comes_back_after_a_kill_and_stops_when_told() {
    comes_back_and_stops(&SystemdBox::new());
}

pub(super) fn comes_back_and_stops(inside: &SystemdBox) {
    users(inside);
    let notes = Instance::new(inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    notes.start_socket(inside);
    notes.say(inside, "git status of strategy");
    let before = main_pid(inside, &unit);
    inside.run(&format!("kill -KILL {before}"));
    inside.until("it is back", |inside| {
        let now = main_pid(inside, &unit);
        inside.property(&unit, "ActiveState") == "active" && now != before && now != "0"
    });
    inside.until("systemd counts it", |inside| inside.property(&unit, "NRestarts") == "1");
    let said = notes.say(inside, "git status of strategy");
    assert!(said.contains("Nothing to commit"), "{said}");

    inside.run(&format!("systemctl stop '{unit}'"));
    assert_eq!(inside.property(&unit, "Result"), "success");
    assert!(inside.run("journalctl --no-pager --output=cat").contains("Stopped "));
    // The socket is still there, and the next caller starts it again.
    let said = notes.say(inside, "git status of strategy");
    assert!(said.contains("Nothing to commit"), "{said}");
}

#[test]
fn a_wrong_configuration_does_not_take_the_socket_down_and_is_tried_again() {
    let inside = SystemdBox::new();
    users(&inside);
    let notes = Instance::new(&inside, "notes");
    let (unit, socket) =
        (notes.unit("sage-executor", "service"), notes.unit("sage-executor", "socket"));
    let config = "/etc/sage/notes/executor.json";
    inside.run(&format!("cp {config} /root/good.json; echo '{{}}' > {config}"));
    notes.start_socket(&inside);
    let failed = notes.try_say(&inside, PEER, "git status of strategy");
    let said = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert!(said.contains("no greeting in time"), "{said}");
    let journal = inside.journal(&unit);
    assert!(journal.contains("missing field"), "it says what is wrong: {journal}");
    inside.until("it was tried again", |inside| inside.property(&unit, "NRestarts") != "0");
    assert_eq!(inside.property(&socket, "ActiveState"), "active");
    inside.run(&format!("cp /root/good.json {config}"));
    inside.until("it runs", |inside| inside.property(&unit, "ActiveState") == "active");
    let said = notes.say(&inside, "git status of strategy");
    assert!(said.contains("Nothing to commit"), "{said}");
}

#[test]
fn one_that_hangs_is_killed_by_the_watchdog_and_started_again() {
    is_watched(&SystemdBox::new());
}

pub(super) fn is_watched(inside: &SystemdBox) {
    users(inside);
    let notes = Instance::new(inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    inside.run(&format!(
        "mkdir -p '/etc/systemd/system/{unit}.d'
         printf '[Service]\\nWatchdogSec=2s\\n' > '/etc/systemd/system/{unit}.d/short.conf'
         systemctl daemon-reload"
    ));
    notes.start_socket(inside);
    notes.say(inside, "git status of strategy");
    let before = main_pid(inside, &unit);
    // The control: it lives on for several times the limit, for it shows its pulse.
    let beats = |inside: &SystemdBox| inside.property(&unit, "WatchdogTimestampMonotonic");
    for _ in 0..4 {
        let last = beats(inside);
        inside.until("it shows its pulse", |inside| beats(inside) != last);
    }
    assert_eq!(main_pid(inside, &unit), before);
    inside.run(&format!("kill -STOP {before}"));
    inside.until("it is back", |inside| {
        let now = main_pid(inside, &unit);
        inside.property(&unit, "ActiveState") == "active" && now != before && now != "0"
    });
    assert!(inside.journal(&unit).contains("Watchdog timeout"), "{}", inside.journal(&unit));
}

#[test]
fn two_instances_know_nothing_of_each_other() {
    let inside = SystemdBox::new();
    users(&inside);
    let (notes, plans) = (Instance::new(&inside, "notes"), Instance::new(&inside, "plans"));
    for instance in [&notes, &plans] {
        instance.start_socket(&inside);
        let said = instance.say(&inside, "git status of strategy");
        assert!(said.contains("Nothing to commit"), "{said}");
    }
    let unit = notes.unit("sage-executor", "service");
    let pid = main_pid(&inside, &unit);
    let sees = |path: &str| {
        let line = format!("nsenter -t {pid} -m test -e {path}");
        inside.try_run(&line).status.success()
    };
    // (The root is shared, so the other's mount points are there, with nothing behind them.)
    for own in [
        "/etc/sage/notes/executor.json",
        "/srv/sage/notes/strategy/README.md",
        "/var/lib/sage-executor/notes/audit.jsonl",
    ] {
        assert!(sees(own), "{own}");
        let other = own.replace("notes", "plans");
        inside.run(&format!("test -e {other}"));
        assert!(!sees(&other), "{other}");
    }
    for never in ["/home/owner/notes.json", "/run/dbus/system_bus_socket", "/run/systemd/private"] {
        inside.run(&format!("test -e {never}"));
        assert!(!sees(never), "{never}");
    }
}

#[test]
fn new_programs_take_over_when_their_package_is_installed() {
    let inside = SystemdBox::new();
    users(&inside);
    let notes = Instance::new(&inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    notes.start_socket(&inside);
    notes.say(&inside, "git status of strategy");
    let before = main_pid(&inside, &unit);
    inside.run(&format!("dpkg --install {}/sage-executor_*.deb", inside.shared().display()));
    inside.until("the new one runs", |inside| {
        let now = main_pid(inside, &unit);
        now != before && now != "0" && inside.property(&unit, "ActiveState") == "active"
    });
    let said = notes.say(&inside, "git status of strategy");
    assert!(said.contains("Nothing to commit"), "{said}");
    inside.run("dpkg --remove sage-executor");
    assert_eq!(inside.property(&unit, "LoadState"), "not-found");
    // What is the owner's stays.
    inside.run(
        "test -f /var/lib/sage-executor/notes/audit.jsonl && test -d /srv/sage/notes/strategy",
    );
}
