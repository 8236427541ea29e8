//! `sage-executor doctor` (O1): everything that can be wrong in a first installation is made wrong, and
//! gives its line and the next step.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::cli::{Run, Said};
use harness::git::Repo;
use harness::world::World;
use serde_json::{Value, json};

fn configuration(world: &World) -> Value {
    let text = std::fs::read_to_string(world.base().join("executor.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn run(world: &World, text: &str, more: &[&str]) -> Said {
    let file = world.base().join("doctor.json");
    std::fs::write(&file, text).expect("it can be written");
    mode(&file, 0o600);
    let file = file.display().to_string();
    Run::executor(["doctor", "--config", &file].iter().chain(more)).piped()
}

/// The wrong facts, as `(fact, says, next)`.
fn wrong(world: &World, config: &Value, more: &[&str]) -> Vec<(String, String, String)> {
    let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
    wrong_in(&run(world, &config.to_string(), &more))
}

fn wrong_in(said: &Said) -> Vec<(String, String, String)> {
    let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    let facts = report["facts"].as_array().expect("a list");
    let wrong: Vec<_> = facts
        .iter()
        .filter(|fact| fact["ok"] == false)
        .map(|fact| {
            let word = |key: &str| fact[key].as_str().unwrap_or_default().to_owned();
            (word("fact"), word("says"), word("next"))
        })
        .collect();
    assert_eq!(report["ok"], wrong.is_empty());
    assert_eq!(said.code, i32::from(!wrong.is_empty()), "{said:?}");
    wrong
}

#[test]
fn a_sound_installation_has_a_tick_on_each_line_and_ends_with_0() {
    let world = World::builder().vault().notes().build();
    let said = run(&world, &configuration(&world).to_string(), &[]);
    assert_eq!(said.code, 0, "{}", said.out);
    assert!(said.out.lines().all(|line| line.starts_with("✓ ")), "{}", said.out);
    for fact in
        ["configuration", "landlock", "seccomp", "clock", "git", "python", "state", "daemon"]
    {
        assert!(said.out.contains(&format!("✓ {fact}: ")), "{fact} in {}", said.out);
    }
    for fact in
        ["socket folder", "root strategy", "clone strategy", "root notes", "disk of ", "peer "]
    {
        assert!(said.out.contains(fact), "{fact} in {}", said.out);
    }
}

/// How a configuration is made wrong, which fact says so, what it says, and the next step.
type Case = (&'static str, Value, &'static str, &'static str, &'static str);

#[test]
fn each_wrong_entry_of_the_configuration_has_its_line_and_its_next_step() {
    let world = World::builder().notes().build();
    let old_git = world.base().join("old-git");
    std::fs::write(&old_git, "#!/bin/sh\necho git version 2.20.1\n").expect("it can be written");
    mode(&old_git, 0o755);
    let base = world.base().display().to_string();
    let https = json!({
        "branch": "main", "remote": "https://git.example.com/o/r.git",
        "author": "Sage <sage@example.invalid>", "tokenFile": format!("{base}/token"),
    });
    std::fs::create_dir_all(world.base().join("open/deep")).expect("it can be made");
    mode(&world.base().join("open"), 0o777);
    let cases: Vec<Case> = vec![
        ("/gitProgram", json!(old_git), "git", "2.20.1 is too old", "install git 2.39"),
        ("/gitProgram", json!("/nonexistent/git"), "git", "/nonexistent/git", "gitProgram"),
        (
            "/peers/0/user",
            json!("nobody-of-this-name"),
            "peer nobody-of-this-name",
            "no such user",
            "useradd",
        ),
        ("/stateDir", json!(format!("{base}/none/state")), "state", "none/state", "stateDir"),
        ("/stateDir", json!(format!("{base}/open")), "state", "mode 0700", "chmod 0700"),
        (
            "/socket",
            json!(format!("{base}/open/x.sock")),
            "socket folder",
            "changed by others",
            "chmod o-w",
        ),
        (
            "/socket",
            json!(format!("{base}/none/x.sock")),
            "socket folder",
            "none",
            "make the folder",
        ),
        (
            "/socket",
            json!(format!("{base}/state/x.sock")),
            "daemon",
            "cannot connect",
            "sage-executor serve",
        ),
        ("/roots/1/path", json!(format!("{base}/none")), "root notes", "none", "make or clone it"),
        (
            "/roots/0/git/remote",
            json!(format!("{base}/other.git")),
            "clone strategy",
            "remote_mismatch",
            "set-url",
        ),
        ("/roots/0/git/branch", json!("trunk"), "clone strategy", "wrong_branch", "checks out"),
        ("/roots/0/git", https, "token of strategy", "token", "put the token there"),
    ];
    for (pointer, value, fact, says, next) in cases {
        let mut config = configuration(&world);
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        config.pointer_mut(parent).expect("it is there")[key] = value;
        let found = wrong(&world, &config, &[]);
        let line = found.iter().find(|(name, _, _)| name == fact);
        let (_, said, step) = line.unwrap_or_else(|| panic!("{pointer}: {found:?}"));
        assert!(said.contains(says) && step.contains(next), "{pointer}: {found:?}");
    }
}

#[test]
fn a_broken_configuration_is_one_line_and_the_machine_is_looked_at_all_the_same() {
    let world = World::new_plain();
    let said = run(&world, "{\n  \"sockt\": 1\n}", &["--json"]);
    let found = wrong_in(&said);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("doctor.json:2:3: sockt: there is no such key"), "{found:?}");
    assert!(found[0].2.contains("did you mean `socket`?"), "{found:?}");
    assert!(said.out.contains("\"landlock\""));
    let file = world.base().join("doctor.json");
    std::fs::write(&file, configuration(&world).to_string()).expect("it can be written");
    mode(&file, 0o666);
    let words = ["doctor", "--json", "--config", &file.display().to_string()].map(str::to_owned);
    let found = wrong_in(&Run::executor(words).piped());
    assert!(
        found[0].1.contains("others can write it") && found[0].2.contains("chmod go-w"),
        "{found:?}"
    );
}

#[test]
fn a_token_file_that_others_can_read_is_found_and_never_read() {
    let world = World::new_plain();
    let token = world.base().join("token");
    std::fs::write(&token, "marker-of-a-token\n").expect("it can be written");
    mode(&token, 0o644);
    let mut config = configuration(&world);
    config["roots"][0]["git"]["remote"] = json!("https://git.example.com/o/r.git");
    config["roots"][0]["git"]["tokenFile"] = json!(token);
    let said = run(&world, &config.to_string(), &["--json"]);
    let found = wrong_in(&said);
    let line = found.iter().find(|(fact, _, _)| fact == "token of strategy").expect("it is found");
    assert!(line.1.contains("mode 0644") && line.2.contains("chmod 0600"), "{line:?}");
    assert!(!said.out.contains("marker-of-a-token"));
}

#[test]
fn what_belongs_to_somebody_else_is_found() {
    let world = World::new_plain();
    let mut config = configuration(&world);
    let (state, token) = (world.base().join("others"), world.base().join("token"));
    std::fs::create_dir(&state).expect("it can be made");
    mode(&state, 0o700);
    std::fs::write(&token, "a-token\n").expect("it can be written");
    mode(&token, 0o600);
    config["stateDir"] = json!(state);
    config["roots"][0]["git"]["remote"] = json!("https://git.example.com/o/r.git");
    config["roots"][0]["git"]["tokenFile"] = json!(token);
    let about = |fact: &str| {
        let found = wrong(&world, &config, &[]);
        found.into_iter().find(|(found, _, _)| found == fact)
    };
    assert_eq!((about("state"), about("token of strategy")), (None, None), "the control");
    for path in [&state, &token] {
        let nobody = Some(nix::unistd::Uid::from_raw(65_534));
        nix::unistd::chown(path, nobody, None).expect("this test needs root");
    }
    let (_, says, next) = about("state").expect("it is found");
    assert!(says.contains("a folder of this user") && next.contains("chown"), "{says}: {next}");
    let (_, says, next) = about("token of strategy").expect("it is found");
    assert!(says.contains("belongs to another user") && next.contains("chown"), "{says}: {next}");
}

/// How a clone is spoilt, and the refusal of a writing call.
type Spoilt = (fn(&Repo), &'static str);

#[test]
fn a_clone_that_a_writing_call_would_refuse_is_found() {
    let spoil: [Spoilt; 4] = [
        (|clone| drop(clone.git(&["checkout", "--quiet", "--detach"])), "detached_head"),
        (|clone| drop(clone.git(&["config", "core.sshCommand", "x"])), "hostile_config"),
        (|clone| drop(clone.git(&["remote", "remove", "origin"])), "remote_mismatch"),
        (
            |clone| std::fs::remove_dir_all(clone.path(".git")).expect("it is ours"),
            "not_a_repository",
        ),
    ];
    for (spoil, code) in spoil {
        let world = World::new_plain();
        spoil(world.clone_dir());
        let found = wrong(&world, &configuration(&world), &[]);
        let line = found.iter().find(|(fact, _, _)| fact == "clone strategy");
        let (_, says, next) = line.unwrap_or_else(|| panic!("{code}: {found:?}"));
        assert!(says.starts_with(code) && !next.is_empty(), "{code}: {found:?}");
    }
}

#[test]
fn an_old_kernel_a_full_disk_a_wrong_clock_and_a_stopped_daemon_are_found() {
    let mut world = World::new_plain();
    let config = configuration(&world);
    let old = wrong(&world, &config, &["--assume-landlock", "2"]);
    let facts: Vec<&str> = old.iter().map(|(fact, _, _)| fact.as_str()).collect();
    assert_eq!(facts, ["landlock", "held: emptying files that may only be read"], "{old:?}");
    assert!(old[0].1.contains("ABI 2 (needed: 3)") && old[0].2.contains("newer kernel"), "{old:?}");
    let full = wrong(&world, &config, &["--min-free", "999999999999"]);
    assert!(
        full.iter()
            .all(|(fact, _, next)| fact.starts_with("disk of ") && next.contains("make room"))
    );
    assert!(!full.is_empty());
    world.kill_executor();
    let line = json!({"time": "2999-01-01T00:00:00Z"});
    std::fs::write(world.audit(), format!("{line}\n")).expect("it can be written");
    let late = wrong(&world, &config, &[]);
    let facts: Vec<&str> = late.iter().map(|(fact, _, _)| fact.as_str()).collect();
    assert_eq!(facts, ["clock", "daemon"], "{late:?}");
    assert!(
        late[0].2.contains("timedatectl") && late[1].2.contains("sage-executor serve"),
        "{late:?}"
    );
}

#[test]
fn looking_changes_nothing() {
    let world = World::builder().vault().build();
    // The file that it is given is there already.
    wrong(&world, &configuration(&world), &[]);
    let before = harness::snapshot::Snapshot::of(world.base()).without("doctor.json");
    wrong(&world, &configuration(&world), &[]);
    let after = harness::snapshot::Snapshot::of(world.base()).without("doctor.json");
    before.assert_same(&after, "doctor");
}
