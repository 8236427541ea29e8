//! What `install --dry-run` shows: every step, and nothing done. (What it does is in `units::install`.)

use std::path::Path;

use harness::chat::write_private;
use harness::cli::Run;
use harness::programs::program;
use serde_json::json;
use tempfile::TempDir;

/// A home with the configuration of both programs.
fn home() -> TempDir {
    let home = TempDir::with_prefix("sage-test-").expect("a folder can be made");
    let base = home.path().canonicalize().expect("it is there");
    let (folder, uid) = (base.join(".config/sage/notes"), nix::unistd::getuid());
    std::fs::create_dir_all(&folder).expect("it is ours");
    let socket = format!("/run/user/{uid}/sage/notes/executor.sock");
    let config = json!({
        "socket": socket,
        "stateDir": base.join(".local/state/sage-executor/notes"),
        "requesters": ["Owner"],
        "peers": [{"user": 1000, "requesters": ["Owner"]}],
        "roots": [
            {"name": "strategy", "path": base.join("strategy"), "write": true},
            {"name": "library", "path": "/srv/library"},
        ],
    });
    let binding = json!({
        "name": "notes",
        "dataRoot": base.join(".local/state/sage-connector"),
        "executor": {"socket": socket},
        "engine": {
            "kind": "openai",
            "openai": {
                "baseUrl": "https://model.example.com/v1",
                "model": "m1",
                "keyFile": base.join(".config/sage/notes/model-key"),
            },
        },
        "terminal": {"requester": "Owner"},
        "discord": {
            "guild": "100000000000000001",
            "bot": "100000000000000002",
            "channels": {"100000000000000003": "all"},
            "users": {"100000000000000005": "Owner"},
            "token": {"credential": "discord-token"},
        },
    });
    write_private(&folder.join("executor.json"), &config.to_string());
    write_private(&folder.join("binding.json"), &binding.to_string());
    home
}

/// What would be done, without the units' own lines, which are in `systemd/user`.
fn shown(home: &Path, name: &str) -> String {
    let home = home.canonicalize().expect("it is there");
    let arguments = ["install", "notes", "--user", "--dry-run"];
    let said = Run::of(name, arguments).env("HOME", &home).piped();
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut in_unit = false;
    let mut text = String::new();
    for line in said.out.lines() {
        if !line.starts_with("  |") {
            in_unit = line.contains("@.");
        }
        let is_units_own = in_unit && line.starts_with("  |");
        if !is_units_own && !line.contains("sha256") {
            text.push_str(line);
            text.push('\n');
        }
    }
    let program = program(name);
    let text = text
        .replace(program.to_str().expect("it is UTF-8"), &format!("/opt/{name}"))
        .replace(home.to_str().expect("it is UTF-8"), "/home/owner");
    // Where the program was built decides the order of these.
    let mut lines: Vec<&str> = text.lines().collect();
    let bound = |line: &&str| line.contains("BindReadOnlyPaths=");
    let first = lines.iter().position(bound).unwrap_or_default();
    let count = lines.iter().filter(|line| bound(line)).count();
    lines[first..first + count].sort_unstable();
    lines.join("\n") + "\n"
}

#[test]
fn each_step_is_shown_and_none_is_done() {
    let home = home();
    assert_eq!(
        shown(home.path(), "sage-executor"),
        "\
would write /home/owner/.config/systemd/user/sage-executor@.service:
would write /home/owner/.config/systemd/user/sage-executor@.socket:
would make the folder /home/owner/.local/state/sage-executor/notes
would write /home/owner/.config/systemd/user/sage-executor@notes.service.d/50-sage.conf:
  | [Service]
  | LoadCredential=
  | BindPaths=/home/owner/strategy
  | ReadWritePaths=/home/owner/strategy
  | BindReadOnlyPaths=/opt/sage-executor
  | BindReadOnlyPaths=/srv/library
would run systemctl --user daemon-reload
next: systemctl --user enable --now sage-executor@notes.socket
"
    );
    assert_eq!(
        shown(home.path(), "sage-connector"),
        "\
would write /home/owner/.config/systemd/user/sage-connector@.service:
would make the folder /home/owner/.local/state/sage-connector/notes
would write /home/owner/.config/systemd/user/sage-connector@notes.service.d/50-sage.conf:
  | [Service]
  | LoadCredential=
  | LoadCredential=discord-token:/home/owner/.config/sage/notes/discord-token
  | BindReadOnlyPaths=/home/owner/.config/sage/notes/model-key
  | BindReadOnlyPaths=/opt/sage-connector
would run systemctl --user daemon-reload
next: systemctl --user enable --now sage-connector@notes.service
"
    );
    assert!(!home.path().join(".config/systemd").exists() && !home.path().join(".local").exists());
}

#[test]
fn other_folders_than_the_units_have_are_refused_before_anything() {
    let home = home();
    for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        let run = Run::executor(["install", "notes", "--user"]).env("HOME", home.path());
        let said = run.env(variable, "/somewhere/else").piped();
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
        assert!(said.err.contains(variable) && said.err.contains("unset it"), "{}", said.err);
    }
    let said = Run::executor(["install", "notes"]).env("HOME", home.path()).piped();
    assert_eq!(said.code, 2, "neither --user nor --system: {}", said.err);
}
