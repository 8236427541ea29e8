//! `sage-executor call` (M2): a call from a terminal or a script.

use std::os::unix::fs::PermissionsExt;

use harness::cli::{Run, Said};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::Plan;
use serde_json::Value;

use crate::check;

fn run(world: &World, arguments: &[&str]) -> Run {
    let socket = world.socket();
    let place = ["--socket".to_owned(), socket.display().to_string()];
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    Run::executor(["call".to_owned()].into_iter().chain(arguments).chain(place))
}

fn call(world: &World, arguments: &[&str]) -> Said {
    run(world, arguments).piped()
}

fn done(world: &World, arguments: &[&str]) -> String {
    let said = call(world, arguments);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{arguments:?}: {said:?}");
    said.out
}

#[test]
fn reading_tools_print_what_a_person_wants_to_read() {
    let world = World::builder().notes().build();
    world.clone_dir().write("plans/one.md", "# One\n\nfirst\nchanged\nthird\n");
    world.clone_dir().write("new.md", "new\n");
    assert_eq!(
        done(&world, &["list_roots"]),
        "strategy  read and write; git: read, commit, pull, push\nnotes     read\n"
    );
    assert_eq!(
        done(&world, &["read_file", "--root", "strategy", "--path", "README.md"]),
        "# Strategy\n"
    );
    let files = done(&world, &["list-files", "--root", "strategy", "--glob", "**/*.md"]);
    assert!(files.lines().any(|line| line == "plans/two.md"), "{files}");
    let hits = done(&world, &["search_files", "--root", "strategy", "--pattern", "^chan"]);
    assert_eq!(hits, "plans/one.md:4:changed\n");
    assert_eq!(
        done(&world, &["git_status", "--root", "strategy"]),
        "On branch main, following origin/main\nNot staged:\n  M plans/one.md\nUntracked:\n  new.md\n"
    );
    let diff = done(&world, &["git_diff", "--root", "strategy"]);
    assert!(diff.starts_with(" M  +1  −1  plans/one.md\n\ndiff --git "), "{diff}");
    assert!(diff.contains("\n-second\n+changed\n"), "{diff}");
    let log = done(&world, &["git_log", "--root", "strategy", "--limit", "1"]);
    assert!(log.ends_with("  Start the strategy\n"), "{log}");
    let shown = done(&world, &["git_show", "--root", "strategy", "--rev", "HEAD"]);
    assert!(
        shown.starts_with("commit ") && shown.contains("\n    Start the strategy\n"),
        "{shown}"
    );
    let branches = done(&world, &["git_branches", "--root", "strategy"]);
    assert!(branches.starts_with("* main  "), "{branches}");
}

#[test]
fn writing_tools_work_with_flags_and_with_json_on_standard_input() {
    let world = World::new_plain();
    let words = ["write_file", "--root", "strategy", "--path", "a.md", "--input", "-"];
    let said = run(&world, &words).input("{\"text\": \"a\\nb\"}").piped();
    assert_eq!((said.code, said.out.as_str()), (0, "created a.md (3 bytes)\n"), "{said:?}");
    let words = ["edit_file", "--root", "strategy", "--path", "a.md", "--old", "b", "--new", "c"];
    let dry: Vec<&str> = words.into_iter().chain(["--dry-run"]).collect();
    assert!(done(&world, &dry).starts_with("would edit a.md\n"));
    assert_eq!(world.clone_dir().text("a.md"), "a\nb");
    done(&world, &words);
    assert_eq!(world.clone_dir().text("a.md"), "a\nc");
    let words = ["git_commit", "--root", "strategy", "--as", "Owner", "--message", "A", "--paths"];
    let commit: Vec<&str> = words.into_iter().chain(["a.md"]).collect();
    let said = done(&world, &commit);
    assert!(
        said.contains("Requested-by: Owner") && said.ends_with("pushed to origin/main\n"),
        "{said}"
    );
    assert_eq!(world.remote_head(), world.clone_dir().head());
    world.others_push("theirs.md", "theirs\n");
    assert!(done(&world, &["git_pull", "--root", "strategy"]).contains("1 commit, fast-forward"));
    assert!(done(&world, &["git_push", "--root", "strategy"]).starts_with("Everything up to date"));
    check::sound(&world);
}

#[test]
fn json_is_the_reply_as_the_protocol_has_it() {
    let world = World::new_plain();
    let out = done(&world, &["git_status", "--root", "strategy", "--json"]);
    let reply: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(reply["clean"], true);
    assert_eq!(reply["untrustedBranch"], "main");
}

#[test]
fn a_refusal_has_its_code_message_and_hint_on_standard_error_and_an_exit_code() {
    let world = World::new_plain();
    let words = ["read_file", "--root", "strategy", "--path", "../x"];
    let said = call(&world, &words);
    assert_eq!((said.code, said.out.as_str()), (3, ""));
    assert!(
        said.err.starts_with("refused (invalid_path): ") && said.err.contains("\nhint: "),
        "{said:?}"
    );
    let words: Vec<&str> = words.into_iter().chain(["--json"]).collect();
    let said = call(&world, &words);
    let json: Value = serde_json::from_str(&said.err).expect("it is JSON");
    assert_eq!(json["refusal"]["code"], Code::InvalidPath.as_str());
    assert!(json["refusal"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
}

#[test]
fn each_way_to_fail_has_its_exit_code_and_says_what_to_do() {
    let world = World::new_plain();
    let usage = call(&world, &["git_status", "--rot", "strategy"]);
    assert_eq!(usage.code, 2);
    assert!(usage.err.contains("'--root'"), "{}", usage.err);
    let missing = call(&world, &["git_status"]);
    assert!(missing.code == 2 && missing.err.contains("--root"), "{missing:?}");
    let input = call(&world, &["git_status", "--input", "[]"]);
    assert!(input.code == 2 && input.err.contains("JSON object"), "{input:?}");
    let nowhere = Run::executor(["call", "list_roots"]).piped();
    assert!(nowhere.code == 2 && nowhere.err.contains("$SAGE_SOCKET"), "{nowhere:?}");
    let gone = world.base().join("run/none.sock");
    let gone = Run::executor(["call", "list_roots"]).env("SAGE_SOCKET", gone).piped();
    assert!(gone.code == 5 && gone.err.contains("is sage-executor running?"), "{gone:?}");
    let config = world.base().join("executor.json").display().to_string();
    let by_config = Run::executor(["call", "list_roots", "--config", &config]);
    let by_config = by_config.env("SAGE_SOCKET", "/nonexistent/sock").piped();
    assert_eq!(by_config.code, 0, "{by_config:?}");
}

#[test]
fn for_whom_a_call_is_the_executor_decides() {
    let world = World::new_plain();
    world.clone_dir().write("a.md", "a\n");
    let commit = ["git_commit", "--root", "strategy", "--message", "A", "--paths", "a.md"];
    for (who, code) in
        [(&["--as", "Guest"][..], "requester_not_allowed"), (&[], "requester_not_allowed")]
    {
        let words: Vec<&str> = commit.into_iter().chain(who.iter().copied()).collect();
        let said = call(&world, &words);
        assert!(said.code == 3 && said.err.contains(code), "{said:?}");
    }
    let words: Vec<&str> = commit.into_iter().chain(["--as", "Partner"]).collect();
    assert!(done(&world, &words).contains("Requested-by: Partner"));
}

#[test]
fn colours_are_for_terminals_and_vanish_in_pipes() {
    let world = World::new_plain();
    let words = ["git_branches", "--root", "strategy", "--no-pager"];
    let piped = run(&world, &words).piped();
    assert!(!piped.out.contains('\u{1b}'), "{piped:?}");
    let shown = run(&world, &words).env("TERM", "xterm").on_a_terminal();
    assert!(shown.out.contains("\u{1b}[32m* main\u{1b}[0m"), "{shown:?}");
    let without = run(&world, &words).env("TERM", "xterm").env("NO_COLOR", "1").on_a_terminal();
    assert_eq!(without.out, piped.out);
    let forced: Vec<&str> = words.into_iter().chain(["--color", "always"]).collect();
    assert!(run(&world, &forced).piped().out.contains("\u{1b}[32m"));
}

#[test]
fn a_pager_is_for_terminals_and_can_be_turned_off() {
    let world = World::new_plain();
    let pager = world.base().join("pager");
    std::fs::write(&pager, "#!/bin/sh\necho paged by $1\ncat\n").expect("it can be written");
    std::fs::set_permissions(&pager, PermissionsExt::from_mode(0o700)).expect("it is ours");
    let pager = format!("{} us", pager.display());
    let words = ["list_roots"];
    let with = |words: &[&str]| run(&world, words).env("SAGE_PAGER", &pager).env("PAGER", "false");
    assert!(with(&words).on_a_terminal().out.starts_with("paged by us\n"));
    assert!(!with(&words).piped().out.contains("paged"));
    assert!(!with(&["list_roots", "--no-pager"]).on_a_terminal().out.contains("paged"));
    assert!(!with(&["list_roots", "--json"]).on_a_terminal().out.contains("paged"));
}

fn commit_for_approval(world: &World) -> [&str; 9] {
    world.clone_dir().write("plans/one.md", "changed\n");
    [
        "git_commit",
        "--root",
        "strategy",
        "--as",
        "Owner",
        "--message",
        "One",
        "--paths",
        "plans/one.md",
    ]
}

#[test]
fn at_a_terminal_the_person_is_asked_and_only_y_commits() {
    let world = World::builder().approval().build();
    let words = commit_for_approval(&world);
    let head = world.clone_dir().head();
    for no in ["n\n", "\n", "maybe\n", "\u{4}"] {
        let said = run(&world, &words).input(no).on_a_terminal();
        assert_eq!(said.code, 6, "{said:?}");
        assert!(
            said.out.contains("plans/one.md (+1/−5)\n") && said.out.contains("[y/N]"),
            "{said:?}"
        );
        assert_eq!(world.clone_dir().head(), head);
    }
    let said = run(&world, &words).input("y\n").on_a_terminal();
    assert_eq!(said.code, 0, "{said:?}");
    assert_ne!(world.clone_dir().head(), head);
    check::sound(&world);
}

#[test]
fn a_script_gets_the_plan_and_approves_by_its_digest() {
    let world = World::builder().approval().build();
    let words = commit_for_approval(&world);
    let head = world.clone_dir().head();
    let said = call(&world, &words);
    assert!(said.code == 6 && said.out.contains("--approve "), "{said:?}");
    let json: Vec<&str> = words.into_iter().chain(["--json"]).collect();
    let said = call(&world, &json);
    assert_eq!((said.code, world.clone_dir().head()), (6, head.clone()));
    let plan: Plan = serde_json::from_str(&said.out).expect("it is a plan");
    let wrong: Vec<&str> = words.into_iter().chain(["--approve", "0123"]).collect();
    let refused = call(&world, &wrong);
    assert!(refused.code == 3 && refused.err.contains("approval_needed"), "{refused:?}");
    let right: Vec<&str> = words.into_iter().chain(["--approve", &plan.digest]).collect();
    done(&world, &right);
    assert_ne!(world.clone_dir().head(), head);
}

#[test]
fn a_cut_output_says_how_to_read_on_and_that_works() {
    let world = World::new_plain();
    let text: String = (0..200).map(|n| format!("line {n}\n")).collect();
    world.clone_dir().write("plans/one.md", &text);
    let out = done(&world, &["git_diff", "--root", "strategy", "--max-bytes", "500"]);
    let (_, line) = out.split_once("To read on: sage-executor call ").expect("it says how");
    let words: Vec<&str> = line.split_whitespace().collect();
    let rest = done(&world, &words);
    assert!(rest.contains("+line 199\n"), "{rest}");
}

#[test]
fn help_is_made_of_the_tools_own_words() {
    let help = Run::executor(["call", "--help"]).piped();
    for tool in protocol::tool::ToolName::ALL {
        assert!(help.out.contains(tool.as_str()), "{tool} in {}", help.out);
        let one = Run::executor(["call", tool.as_str(), "--help"]).piped();
        let first = tool.description();
        let first = first.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        assert!(one.code == 0 && one.out.contains(&first), "{tool}: {}", one.out);
    }
}

/// A world in which a commit takes so many seconds.
fn slow_world(seconds: u32) -> World {
    let script = format!("import time\ntime.sleep({seconds})\n");
    let world = crate::vault::world_with(Some(("tools/validate_vault.py", &script)));
    world.clone_dir().write("README.md", "changed\n");
    world
}

const SLOW: [&str; 9] = [
    "git_commit",
    "--root",
    "strategy",
    "--as",
    "Owner",
    "--message",
    "One",
    "--paths",
    "README.md",
];

#[test]
fn who_waits_at_a_terminal_sees_that_something_happens_and_a_pipe_does_not() {
    let world = slow_world(2);
    let shown = run(&world, &SLOW).on_a_terminal();
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("\r| git_commit") && shown.out.contains("\r\u{1b}[K"), "{shown:?}");
    let quick = run(&world, &["list_roots", "--no-pager"]).on_a_terminal();
    assert!(!quick.out.contains('\r'), "{quick:?}");
    world.clone_dir().write("README.md", "changed again\n");
    let piped = call(&world, &SLOW);
    assert_eq!((piped.code, piped.err.as_str()), (0, ""), "{piped:?}");
}

#[test]
fn ctrl_c_at_the_terminal_stops_the_call() {
    let world = slow_world(600);
    let head = world.clone_dir().head();
    let begun = || world.audit_lines().iter().any(|line| line.to_string().contains("git_commit"));
    let said = run(&world, &SLOW).interrupted_when(begun);
    assert_eq!(said.code, 130, "{said:?}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(50);
    while !world.audit_lines().iter().any(|line| line.to_string().contains("\"cancelled\"")) {
        assert!(std::time::Instant::now() < until, "{:#?}", world.audit_lines());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(world.clone_dir().head(), head);
}
