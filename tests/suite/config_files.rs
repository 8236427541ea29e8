//! The executor's configuration file (O3): what is wrong is said with its place, and what is generated
//! from the types is what is checked in.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::cli::{Run, Said};
use harness::programs::program;
use harness::world::World;
use serde_json::Value;

fn top(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn done(words: &[&str]) -> String {
    let said = Run::executor(words).piped();
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    said.out
}

/// What stands between two markers of a document.
fn between(document: &str, marker: &str) -> String {
    let text = top(document);
    let (_, rest) = text.split_once(&format!("<!-- {marker} -->\n")).expect("the marker");
    let (shown, _) = rest.split_once(&format!("<!-- /{marker} -->")).expect("the closing marker");
    shown.trim_end().to_owned()
}

#[test]
fn the_schema_that_is_checked_in_is_the_one_of_the_types() {
    let schema = done(&["schema"]);
    assert!(
        schema == top("docs/schema/executor.schema.json"),
        "run `sage-executor schema >docs/schema/executor.schema.json`"
    );
}

#[test]
fn the_reference_in_the_documents_is_the_one_of_the_types() {
    let table = done(&["schema", "--markdown"]);
    assert!(
        table.trim_end() == between("docs/configuration.md", "executor configuration"),
        "docs/configuration.md must show, between the markers:\n\n{table}"
    );
}

fn connector(arguments: &[&str]) -> String {
    let output = Command::new(program("sage-connector")).args(arguments).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

#[test]
fn the_bindings_schema_and_reference_are_those_of_the_types() {
    assert!(
        connector(&["schema"]) == top("docs/schema/connector.schema.json"),
        "run `sage-connector schema >docs/schema/connector.schema.json`"
    );
    let table = connector(&["schema", "--markdown"]);
    assert!(
        table.trim_end() == between("docs/configuration.md", "binding"),
        "docs/configuration.md must show, between the markers:\n\n{table}"
    );
}

#[test]
fn a_binding_that_init_writes_is_valid_private_and_never_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("binding.json");
    let shown = file.to_str().expect("UTF-8");
    let id = |n: u32| format!("10000000000000000{n}");
    let (guild, bot, channel, user) = (id(1), id(2), id(3), id(4));
    let arguments = [
        "init",
        shown,
        "--guild",
        &guild,
        "--bot",
        &bot,
        "--channel",
        &channel,
        "--user",
        &user,
        "--token-file",
        "/etc/sage/discord-token",
        "--data-root",
        shown,
    ];
    assert!(connector(&arguments).contains("sage-connector run --binding"));
    let mode = file.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(folder.path().join("connector.schema.json").is_file());
    let before = std::fs::read_to_string(&file).expect("it is ours");
    let again =
        Command::new(program("sage-connector")).args(arguments).output().expect("it starts");
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("never overwrites"));
    assert_eq!(std::fs::read_to_string(&file).expect("it is ours"), before);

    // A mistake is named with its place and the nearest key.
    std::fs::write(&file, before.replace("\"terminal\"", "\"terminl\"")).expect("it is ours");
    let chat = Command::new(program("sage-connector")).args(["chat", "--binding", shown]).output();
    let chat = chat.expect("it starts");
    let said = String::from_utf8_lossy(&chat.stderr).into_owned();
    assert_eq!(chat.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean `terminal`?"), "{said}");
    assert!(said.contains(&format!("{shown}:")), "{said}");
}

#[test]
fn refusal_codes_and_exit_codes_in_the_documents_are_the_programs() {
    let both = done(&["schema", "--codes"]);
    let (codes, exits) = both.trim_end().split_once("\n\n").expect("two tables");
    assert!(
        codes == between("docs/protocol.md", "refusal codes"),
        "docs/protocol.md must show:\n\n{codes}"
    );
    assert!(
        exits == between("docs/terminal.md", "exit codes"),
        "docs/terminal.md must show:\n\n{exits}"
    );
}

#[test]
fn the_protocol_page_has_the_version_and_the_limits_of_the_code() {
    use protocol::wire;
    let page = top("docs/protocol.md");
    for said in [
        format!("Protocol version: **{}**", wire::PROTOCOL_VERSION),
        format!("| longest frame | {} bytes |", wire::MAX_FRAME_BYTES),
        format!("| greeting | {} s |", wire::GREETING_TIMEOUT.as_secs()),
        format!("| waiting for an answer | {} s |", wire::CALL_TIMEOUT.as_secs()),
    ] {
        assert!(page.contains(&said), "docs/protocol.md must say {said:?}");
    }
}

fn serve(world: &World, text: &str) -> Said {
    let file = world.base().join("wrong.json");
    std::fs::write(&file, text).expect("it can be written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    Run::executor(["serve", "--config", &file.display().to_string()]).piped()
}

#[test]
fn a_start_that_is_refused_names_file_line_column_key_and_the_nearest_key() {
    let world = World::builder().build_stopped();
    let good = std::fs::read_to_string(world.base().join("executor.json")).expect("it is there");
    let config: Value = serde_json::from_str(&good).expect("it is JSON");
    let pretty = format!("{config:#}");
    let line_of = |text: &str, needle: &str| {
        text.lines().position(|line| line.contains(needle)).expect("it is there") + 1
    };
    for (from, to, key, reason) in [
        ("\"branch\"", "\"brnach\"", "roots[0].git.brnach", "did you mean `branch`?"),
        ("\"stateDir\"", "\"state_dir\"", "state_dir", "did you mean `stateDir`?"),
        ("\"main\"", "\"+main\"", "roots[0].git.branch", ""),
        ("\"write\": true", "\"write\": \"yes\"", "roots[0].write", "expected a boolean"),
        (
            "\"approval\": \"none\"",
            "\"approval\": \"requestr\"",
            "roots[0].git.approval",
            "did you mean `requester`?",
        ),
    ] {
        assert!(pretty.contains(from), "{from} in {pretty}");
        let text = pretty.replacen(from, to, 1);
        let said = serve(&world, &text);
        assert_eq!(said.code, 2, "{said:?}");
        let place = format!("wrong.json:{}:", line_of(&text, to));
        assert!(said.err.contains(&place) && said.err.contains(&format!(": {key}: ")), "{said:?}");
        assert!(said.err.contains(reason), "{said:?}");
    }
}

#[test]
fn init_writes_a_valid_private_configuration_and_never_overwrites() {
    let world = World::builder().build_stopped();
    let file = world.base().join("fresh.json");
    let (shown, root) = (file.display().to_string(), world.clone_dir().dir().display().to_string());
    let remote = world.base().join("remote.git").display().to_string();
    let (socket, state) =
        (world.socket().display().to_string(), world.state().display().to_string());
    let words = [
        "init",
        &shown,
        "--root",
        &root,
        "--remote",
        &remote,
        "--socket",
        &socket,
        "--state-dir",
        &state,
    ];
    done(&words);
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).expect("it is there");
    let config: Value = serde_json::from_str(&text).expect("it is JSON");
    let schema = file.with_file_name(config["$schema"].as_str().expect("it names its schema"));
    assert_eq!(std::fs::read_to_string(schema).ok(), Some(top("docs/schema/executor.schema.json")));
    let again = Run::executor(words).piped();
    assert!(again.code == 2 && again.err.contains("never overwrites"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).ok(), Some(text));
    // Nothing is wrong with it but that nobody serves yet.
    let doctor = Run::executor(["doctor", "--json", "--config", &shown]).piped();
    let report: Value = serde_json::from_str(&doctor.out).expect("it is JSON");
    let wrong: Vec<&Value> = report["facts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|fact| fact["ok"] == false)
        .collect();
    assert!(wrong.len() == 1 && wrong[0]["fact"] == "daemon", "{wrong:?}");
}

#[test]
fn init_asks_at_a_terminal_and_refuses_what_could_not_start() {
    let world = World::builder().build_stopped();
    let file = world.base().join("fresh.json").display().to_string();
    let silent = Run::executor(["init", &file]).piped();
    assert!(silent.code == 2 && silent.err.contains("--root"), "{silent:?}");
    let root = world.clone_dir().dir().display().to_string();
    let wrong = Run::executor(["init", &file, "--root", &root, "--remote", "ssh://x/y"]).piped();
    assert!(wrong.code == 2 && wrong.err.contains("roots[0].git.remote"), "{wrong:?}");
    assert!(!Path::new(&file).exists());
    let typed = format!("{root}\nhttps://git.example.com/o/r.git\n");
    let said = Run::executor(["init", &file]).input(&typed).on_a_terminal();
    assert_eq!(said.code, 0, "{said:?}");
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("it is there")).expect("JSON");
    assert_eq!(config["roots"][0]["git"]["remote"], "https://git.example.com/o/r.git");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = done(&["completions", shell]);
        for word in ["serve", "call", "git_status", "mcp", "doctor"] {
            assert!(text.contains(word), "{word} in the completions of {shell}");
        }
    }
    let world = World::builder().build_stopped();
    let folder = world.base().join("man1");
    done(&["man", &folder.display().to_string()]);
    let page =
        |name: &str| std::fs::read_to_string(folder.join(format!("{name}.1"))).expect("a page");
    assert!(page("sage-executor").contains("EXIT STATUS"));
    for tool in protocol::tool::ToolName::ALL {
        assert!(page(&format!("sage-executor-call-{tool}")).starts_with(".ie"), "{tool}");
    }
}
