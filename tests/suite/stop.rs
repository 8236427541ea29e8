//! STOP (J6): the operator's brake holds at once, over every crash, and takes nothing else away.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::calls::{self, ROOT};
use harness::cli::Said;
use harness::dice::Dice;
use harness::programs::program;
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{
    Branches, Committed, Diff, Edited, FileList, FileText, Hits, Log, Plan, Reply, Reserved,
    ShownCommit, Status, Written,
};
use protocol::tool::ToolCall;
use serde_json::{Value, json};

use crate::check;
use crate::full_disk::SmallDisk;
use crate::vault;

mod under_way;

const NOTHING: [&str; 0] = [];

pub(crate) fn stop(world: &World) -> Said {
    let said = world.command("stop", &NOTHING);
    assert_eq!(said.code, 0, "{said:?}");
    said
}

pub(crate) fn resume(world: &World) -> Said {
    let said = world.command("resume", &NOTHING);
    assert_eq!(said.code, 0, "{said:?}");
    said
}

fn write(text: &str) -> ToolCall {
    calls::write(ROOT, "plans/three.md", text)
}

fn is_refused(world: &World) {
    let no = world.turn("Owner").refused_by(Code::Stopped, write("while stopped\n"));
    assert!(no.hint.contains("resume"), "{no}");
    assert!(world.describe().stopped.is_some());
}

fn goes_on(world: &World) {
    world.turn("Owner").reply::<Written>(write(&format!("{:?}\n", Instant::now())));
    assert_eq!(world.describe().stopped, None);
}

fn of_event(world: &World, event: &str) -> Vec<Value> {
    world.audit_lines().into_iter().filter(|line| line["event"] == event).collect()
}

fn chain_holds(world: &World) {
    let state = world.state();
    let (holds, said) =
        world.executor_command(&["audit".as_ref(), "verify".as_ref(), state.as_os_str()]);
    assert!(holds, "{said}");
}

/// Every tool that a stop halts.
fn halted() -> Vec<ToolCall> {
    vec![
        write("new\n"),
        calls::edit(ROOT, "README.md", "a", "b"),
        calls::reserve(ROOT, "A decision"),
        calls::commit(ROOT, "A commit", &["plans/three.md"]),
        calls::pull(ROOT),
        calls::push(ROOT),
        calls::web_fetch("https://example.invalid/"),
        calls::web_search("anything"),
    ]
}

#[test]
fn while_it_stands_what_writes_or_reaches_the_network_is_refused_and_reading_goes_on() {
    let world = vault::builder(None).web(json!({"searxng": "http://127.0.0.1:9"})).build();
    let turn = world.turn("Owner");
    goes_on(&world);
    turn.reply::<Reserved>(calls::reserve(ROOT, "A decision"));
    assert!(stop(&world).out.contains("halted after"));

    let before = Snapshot::of_clone(world.clone_dir().dir());
    for call in halted() {
        let no = turn.refused_by(Code::Stopped, call);
        assert!(no.message.contains("the operator has stopped"), "{no}");
        assert!(no.hint.contains("sage-executor resume"), "{no}");
    }
    before.assert_same_bytes(&Snapshot::of_clone(world.clone_dir().dir()), "while stopped");

    turn.reply::<FileText>(calls::read(ROOT, "README.md"));
    turn.reply::<FileList>(calls::list(ROOT, "", ""));
    turn.reply::<Hits>(calls::search(ROOT, "a", ""));
    turn.reply::<Status>(calls::status(ROOT, ""));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Log>(calls::log(ROOT, "", "", 3));
    turn.reply::<ShownCommit>(calls::show(ROOT, "HEAD", ""));
    turn.reply::<Branches>(calls::branches(ROOT, ""));

    resume(&world);
    goes_on(&world);
    turn.reply::<Edited>(calls::edit(ROOT, "plans/three.md", "Instant", "instant"));
}

#[test]
fn it_is_said_by_describe_doctor_and_the_audit_who_stopped_and_when() {
    let world = World::new_plain();
    let sound = world.command("doctor", &NOTHING);
    assert!(sound.code == 0 && sound.out.contains("stop: none stands"), "{}", sound.out);
    let before = jiff::Timestamp::now();
    stop(&world);
    let me = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(me).expect("it looks").expect("a user").name;

    let stopped = world.describe().stopped.expect("it is stopped");
    assert!(stopped.by.contains(&name), "{stopped:?}");
    let since: jiff::Timestamp = stopped.since.parse().expect("an instant");
    assert!(before <= since && since <= jiff::Timestamp::now());
    let said = world.command("doctor", &NOTHING);
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.out.contains("✗ stop: STOPPED since"), "{}", said.out);
    assert!(said.out.contains("sage-executor resume --config"), "{}", said.out);
    let lines = of_event(&world, "stopped");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["order"]["uid"], me.as_raw());
    assert_eq!(lines[0]["order"]["at"], stopped.since.as_str());
    assert_eq!(of_event(&world, "halted").len(), 1);

    let again = stop(&world);
    assert!(again.out.contains("stopped already") && again.out.contains(&name), "{again:?}");
    resume(&world);
    let lines = of_event(&world, "resumed");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["order"]["uid"], me.as_raw());
    assert!(resume(&world).out.contains("no stop stands"));
    chain_holds(&world);
}

#[test]
fn it_survives_kills_and_restarts_and_needs_no_running_executor() {
    let mut world = World::new_plain();
    stop(&world);
    for _ in 0..2 {
        world.restart();
        is_refused(&world);
    }
    let started = of_event(&world, "started");
    assert!(started[0]["stopped"].is_null());
    assert!(started[1]["stopped"]["at"].is_string(), "{started:#?}");

    world.kill_executor();
    let said = resume(&world);
    assert!(said.out.contains("no executor runs"), "{said:?}");
    world.start();
    goes_on(&world);
    world.kill_executor();
    let said = stop(&world);
    assert!(said.out.contains("starts stopped"), "{said:?}");
    assert_eq!(of_event(&world, "stopped").last().expect("a line")["executor"], "not running");
    world.start();
    is_refused(&world);
    resume(&world);
    goes_on(&world);
    chain_holds(&world);
}

/// Starts a command and kills it somewhere on its way.
fn killed_command(world: &World, name: &str, after: Duration) {
    let mut child = Command::new(program("sage-executor"))
        .args([name.as_ref(), "--config".as_ref(), world.config_file().as_os_str()])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // Not to wait for anything: the instant of the kill is what is thrown for.
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().expect("it is our child");
}

#[test]
fn killed_at_any_instant_the_stop_stands_or_it_does_not_and_everyone_agrees() {
    let mut world = World::new_plain();
    let mut dice = Dice::new(6);
    let marker = world.state().join("STOP");
    let mut seen = [0, 0];
    for round in 0..48 {
        let name = if marker.exists() { "resume" } else { "stop" };
        killed_command(&world, name, Duration::from_micros(dice.below(12_000)));
        let stands = marker.exists();
        seen[usize::from(stands)] += 1;
        // The executor sees it from the file itself, killed and started again or not.
        if round % 4 == 0 {
            world.strike();
            world.restart();
        }
        if stands { is_refused(&world) } else { goes_on(&world) }
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}: one of the two never came");
    world.restart();
    chain_holds(&world);
}

#[test]
fn pending_approvals_are_void_after_it() {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    let commit = || calls::commit(ROOT, "One change", &["plans/one.md"]);
    let plan: Plan = world.turn("Owner").reply(commit());
    stop(&world);
    assert_eq!(of_event(&world, "stopped")[0]["approvalsVoided"], 1);
    match world.turn("Owner").call_approved(commit(), &plan.digest) {
        Outcome::Refusal(no) => assert_eq!(no.code, Code::Stopped),
        other => panic!("{other:?}"),
    }
    resume(&world);
    match world.turn("Owner").call_approved(commit(), &plan.digest) {
        Outcome::Refusal(no) => {
            assert_eq!(no.code, Code::ApprovalNeeded);
            assert!(no.message.contains("the operator stopped it"), "{no}");
        }
        other => panic!("{other:?}"),
    }
    // The positive control: a new plan can be approved.
    let plan: Plan = world.turn("Owner").reply(commit());
    match world.turn("Owner").call_approved(commit(), &plan.digest) {
        Outcome::Reply(Reply::Committed(Committed { .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_call_again_is_done_once_it_is_lifted() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    stop(&world);
    let refused = turn.call_as("c", write("once\n"));
    assert!(matches!(&refused, Outcome::Refusal(no) if no.code == Code::Stopped), "{refused:?}");
    resume(&world);
    let done = turn.call_as("c", write("once\n"));
    assert!(matches!(done, Outcome::Reply(_)), "{done:?}");
}

#[test]
fn a_file_of_that_name_is_enough() {
    let world = World::new_plain();
    goes_on(&world);
    std::fs::write(world.state().join("STOP"), "").expect("it is ours");
    is_refused(&world);
    assert_eq!(of_event(&world, "stopped")[0]["order"]["uid"], nix::unistd::getuid().as_raw());
    std::fs::remove_file(world.state().join("STOP")).expect("it is ours");
    goes_on(&world);
}

#[test]
fn it_holds_on_a_full_disk_too() {
    let mut world = World::new_plain();
    world.kill_executor();
    let disk = SmallDisk::over(&world.state());
    world.start();
    goes_on(&world);
    let filler = disk.fill();
    // What is left in the audit's last page takes some lines more.
    while let Outcome::Reply(_) = world.turn("Owner").call(calls::list_roots()) {}
    let said = world.command("stop", &["--wait", "1"]);
    // That everything has halted cannot be written down, and so is not known.
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the marker is in place"), "{said:?}");
    is_refused(&world);
    std::fs::remove_file(filler).expect("it is ours");
    resume(&world);
    goes_on(&world);
    chain_holds(&world);
    world.kill_executor();
}

#[test]
fn only_the_state_directorys_owner_and_root_can_stop() {
    let world = World::builder().build_stopped();
    // Where somebody else could read the configuration.
    let open = tempfile::Builder::new().prefix("sage-stop-").tempdir().expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(open.path(), mode(0o755)).expect("it is ours");
    let state = open.path().join("state");
    std::fs::create_dir(&state).expect("it is ours");
    std::fs::set_permissions(&state, mode(0o700)).expect("it is ours");
    let text = std::fs::read_to_string(world.config_file()).expect("it is there");
    let mut config: Value = serde_json::from_str(&text).expect("it is JSON");
    config["stateDir"] = json!(state);
    let file = open.path().join("executor.json");
    std::fs::write(&file, config.to_string()).expect("it is ours");
    std::fs::set_permissions(&file, mode(0o644)).expect("it is ours");
    let (daemon, other) = (65_534, 12_345);
    std::os::unix::fs::chown(&state, Some(daemon), Some(daemon)).expect("the suite runs as root");

    let stop_as = |uid: Option<u32>| {
        let mut command = Command::new(program("sage-executor"));
        command.args(["stop".as_ref(), "--config".as_ref(), file.as_os_str()]).env_clear();
        command.current_dir("/");
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.output().expect("it starts")
    };
    let refused = stop_as(Some(other));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("run this as that user or as root") || said.contains("another user"),
        "{said}"
    );
    assert!(!state.join("STOP").exists());
    let done = stop_as(None);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for name in ["STOP", "audit.jsonl", "audit.head"] {
        let owner = std::fs::metadata(state.join(name)).expect(name).uid();
        assert_eq!(owner, daemon, "{name}");
    }
    check_audit(&state);
}

fn check_audit(state: &std::path::Path) {
    let text = std::fs::read_to_string(state.join("audit.jsonl")).expect("there is an audit");
    let line: Value = serde_json::from_str(text.trim_end()).expect("one line");
    assert_eq!((&line["event"], &line["order"]["uid"]), (&json!("stopped"), &json!(0)));
}

#[test]
fn a_commit_after_it_is_sound() {
    let world = World::new_plain();
    stop(&world);
    resume(&world);
    check::commit_works(&world, &world.turn("Owner"), "plans/one.md");
    check::sound(&world);
}
