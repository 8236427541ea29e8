//! The fences of the writing verbs (E2, E3): each refusal by its exact code with the clone unchanged,
//! each beside the same call on a clone that nothing is wrong with.

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, PushState};
use protocol::tool::ToolCall;

use crate::check::{commit_works, refused_and_unchanged};

fn commit(message: &str, path: &str) -> ToolCall {
    calls::commit(ROOT, message, &[path])
}

/// A changed file that could be committed.
fn with_a_change(world: &World) {
    world.clone_dir().write("plans/one.md", "changed\n");
}

#[test]
fn a_message_is_neither_empty_nor_long_nor_signed_nor_secret() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    let long = "ä".repeat(501);
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let cases = [
        ("", Code::InvalidMessage),
        (" \n\t\n", Code::InvalidMessage),
        (long.as_str(), Code::InvalidMessage),
        ("Do it\n\nSigned-off-by: Partner <p@example.invalid>", Code::InvalidMessage),
        ("Do it\n\nREQUESTED-BY : Partner", Code::InvalidMessage),
        ("Do it\n\nCo-authored-by: Partner <p@example.invalid>", Code::InvalidMessage),
        ("Do it\u{1b}[31m", Code::InvalidMessage),
        (token.as_str(), Code::CredentialShape),
        ("See https://bot:hunter22@git.example.com/x.git", Code::CredentialShape),
    ];
    for (message, code) in cases {
        let refusal = refused_and_unchanged(&world, &turn, code, commit(message, "plans/one.md"));
        assert!(!refusal.to_string().contains("hunter22"), "{refusal}");
    }
    let done: Committed = turn.reply(commit(&"ä".repeat(500), "plans/one.md"));
    assert_eq!(done.push, PushState::Pushed);
    assert_eq!(world.git(&["show", "-s", "--format=%s"]), "ä".repeat(500));
}

#[test]
fn a_message_that_looks_like_an_option_or_a_comment_is_a_message() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    for message in ["--amend", "-F /etc/passwd", "# not a comment", "$(touch x) `id` %s"] {
        world.clone_dir().write("plans/one.md", message);
        let done: Committed = turn.reply(commit(message, "plans/one.md"));
        assert_eq!(world.git(&["show", "-s", "--format=%s", &done.hash]), message);
    }
    assert_eq!(world.git(&["rev-list", "--count", "HEAD"]), "5");
}

#[test]
fn a_path_is_inside_and_not_hidden() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    world.clone_dir().write(".hidden", "x\n");
    world.clone_dir().write("plans/.hidden/x.md", "x\n");
    let nul = "plans/one.md\0x";
    let paths = [
        "",
        ".",
        "..",
        "../strategy/plans/one.md",
        "/etc/passwd",
        "./plans/one.md",
        ".hidden",
        "plans/.hidden/x.md",
        ".git/config",
        "plans/../plans/one.md",
        "plans//one.md",
        nul,
        "plans/one.md\n",
        "plans/",
    ];
    for path in paths {
        let call = commit("A path", path);
        refused_and_unchanged(&world, &turn, Code::InvalidPath, call);
    }
    let many: Vec<String> = (0..51).map(|n| format!("plans/{n}.md")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for paths in [&[][..], &many[..]] {
        let call = calls::commit(ROOT, "How many", paths);
        refused_and_unchanged(&world, &turn, Code::InvalidArguments, call);
    }
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn fifty_paths_go_into_one_commit() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let paths: Vec<String> = (0..50).map(|n| format!("many/{n}.md")).collect();
    for path in &paths {
        world.clone_dir().write(path, path);
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let done: Committed = turn.reply(calls::commit(ROOT, "Fifty", &paths));
    assert_eq!(done.untrusted_files.len(), 50);
}

#[test]
fn only_regular_files_that_git_can_see_are_committed() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    let clone = world.clone_dir();
    clone.write("folder/file.md", "x\n");
    std::os::unix::fs::symlink("plans/one.md", clone.path("link.md")).expect("it can be made");
    std::os::unix::fs::symlink("/etc", clone.path("etc")).expect("it can be made");
    std::os::unix::fs::symlink("plans", clone.path("plans-link")).expect("it can be made");
    nix::unistd::mkfifo(&clone.path("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("it is ours");
    clone.write("noise.log", "ignored\n");
    let cases = [
        ("folder", Code::WrongFileType),
        ("link.md", Code::WrongFileType),
        ("pipe", Code::WrongFileType),
        ("etc/hostname", Code::OutsideRoot),
        ("plans-link/one.md", Code::OutsideRoot),
        ("nowhere.md", Code::NotFound),
        ("plans/one.md/below", Code::NotFound),
        ("plans/two.md", Code::NothingToCommit),
        ("README.md", Code::NothingToCommit),
    ];
    for (path, code) in cases {
        refused_and_unchanged(&world, &turn, code, commit("A kind of file", path));
    }
    // One wrong path among good ones stops the whole commit.
    let call = calls::commit(ROOT, "Mixed", &["plans/one.md", "folder"]);
    refused_and_unchanged(&world, &turn, Code::WrongFileType, call);
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn work_that_somebody_staged_is_never_swept_in() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    let clone = world.clone_dir();
    clone.write("theirs.md", "theirs\n");
    for stage in [
        &["add", "theirs.md"][..],
        &["add", "-N", "theirs.md"],
        &["rm", "--cached", "-q", "plans/two.md"],
    ] {
        clone.git(stage);
        if stage.contains(&"-N") {
            // An intent to add stages no content: it is not swept in, and stays.
            let done: Committed = turn.reply(commit("Beside an intent to add", "plans/one.md"));
            assert_eq!(done.untrusted_files.len(), 1);
            assert_eq!(clone.git(&["status", "--porcelain"]), " A theirs.md");
            clone.write("plans/one.md", "changed again\n");
        } else {
            let call = commit("Staged", "plans/one.md");
            let refusal = refused_and_unchanged(&world, &turn, Code::AlreadyStaged, call);
            assert!(refusal.message.contains(if stage[0] == "rm" {
                "two.md"
            } else {
                "theirs.md"
            }));
        }
        clone.git(&["reset", "--quiet"]);
    }
    commit_works(&world, &turn, "plans/one.md");
    assert_eq!(clone.git(&["status", "--porcelain"]), "?? theirs.md");
}

#[test]
fn a_commit_is_for_a_person_whom_the_peer_may_speak_for() {
    let world = World::new_plain();
    with_a_change(&world);
    let call = || commit("For whom?", "plans/one.md");
    refused_and_unchanged(&world, &world.turn_for_nobody(), Code::RequesterNotAllowed, call());
    // Listed, but not for this peer; not listed at all; and names that only look alike.
    for name in ["Guest", "Nobody", "owner", "Owner ", "Owner\nSigned-off-by: x", ""] {
        let turn = world.turn(name);
        refused_and_unchanged(&world, &turn, Code::RequesterNotAllowed, call());
        turn.refused_by(Code::RequesterNotAllowed, calls::status(ROOT, ""));
    }
    world.turn_for_nobody().reply::<protocol::reply::Status>(calls::status(ROOT, ""));
    for name in ["Owner", "Partner"] {
        commit_works(&world, &world.turn(name), "plans/one.md");
        let trailer = world.git(&["log", "-1", "--format=%(trailers:only)"]);
        assert_eq!(trailer.trim(), format!("Requested-by: {name}"));
    }
}

#[test]
fn a_root_gives_what_its_configuration_gives() {
    let world = World::builder().notes().home().build();
    let turn = world.turn("Owner");
    let home = world.repo("home");
    home.git(&["init", "-q", "-b", "main", "."]);
    home.commit_file("a.md", "a\n", "A");
    home.write("a.md", "b\n");
    world.repo("notes").write("n.md", "n\n");
    for root in ["nowhere", "", "Strategy", "../strategy"] {
        for call in [calls::status(root, ""), calls::read(root, "a.md"), calls::pull(root)] {
            turn.refused_by(Code::UnknownRoot, call);
        }
    }
    for (root, path) in [("home", "a.md"), ("notes", "n.md")] {
        let writes = [calls::commit(root, "No", &[path]), calls::pull(root), calls::push(root)];
        for call in writes {
            turn.refused_by(Code::NotOffered, call);
        }
        turn.refused_by(Code::ReadOnlyRoot, calls::write(root, path, "x"));
        turn.refused_by(Code::ReadOnlyRoot, calls::edit(root, path, "n", "x"));
    }
    turn.refused_by(Code::NotOffered, calls::status("notes", ""));
    assert_eq!(home.text("a.md"), "b\n");
    assert_eq!(home.git(&["rev-list", "--count", "HEAD"]), "1");
    turn.reply::<protocol::reply::Status>(calls::status("home", ""));
    turn.reply::<protocol::reply::FileText>(calls::read("notes", "n.md"));
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn a_path_that_a_filter_would_rewrite_is_refused() {
    for attributes in ["*.bin filter=lfs diff=lfs merge=lfs -text\n", "big/** filter=crypt\n"] {
        let world = World::builder().file(".gitattributes", attributes).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        clone.write("big/model.bin", "x\n");
        let refusal = refused_and_unchanged(
            &world,
            &turn,
            Code::FilteredPath,
            commit("A large file", "big/model.bin"),
        );
        assert!(refusal.message.contains("model.bin"), "{refusal}");
        commit_works(&world, &turn, "plans/one.md");
    }
    // The repository's own attributes count as well as the tracked ones.
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.clone_dir().write(".git/info/attributes", "*.md filter=x\n");
    with_a_change(&world);
    let call = commit("Filtered", "plans/one.md");
    refused_and_unchanged(&world, &turn, Code::FilteredPath, call);
    world.clone_dir().write(".git/info/attributes", "");
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn a_turn_has_a_number_of_calls() {
    let world = World::builder().limit("maxCallsPerTurn", 3).build();
    let turn = world.turn("Owner");
    for _ in 0..3 {
        turn.reply::<protocol::reply::Roots>(calls::list_roots());
    }
    turn.refused_by(Code::TooManyCalls, calls::list_roots());
    world.turn("Owner").reply::<protocol::reply::Roots>(calls::list_roots());
}
