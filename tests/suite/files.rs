//! Reading, listing, searching and writing files (C1 to C4, C6).

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{FileList, FileText, Hits, Status, Written};

use crate::check;

/// Something shaped like a forge's token; made here, so that it is in no file.
fn token() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6".repeat(3))
}

fn paths(list: &FileList) -> Vec<&str> {
    list.untrusted_paths.iter().map(protocol::reply::PathText::as_str).collect()
}

#[test]
fn a_long_file_is_read_on_by_its_offset() {
    let world = World::builder().limit("maxBytes", 1000).build();
    let turn = world.turn("Owner");
    // Characters of two bytes, so that a cut at a byte would split one.
    let text = "é".repeat(1501);
    world.clone_dir().write("long.md", &text);
    let mut read = String::new();
    let mut next = Some(0);
    let mut digest = None;
    while let Some(offset) = next {
        let part: FileText = turn.reply(calls::read_part(ROOT, "long.md", Some(offset), None));
        assert_eq!((part.offset, part.size), (read.len() as u64, 3002));
        assert_eq!(*digest.get_or_insert(part.digest.clone()), part.digest);
        read.push_str(part.untrusted_text.as_str());
        next = part.next_offset;
    }
    assert_eq!(read, text);
    let beyond: FileText = turn.reply(calls::read_part(ROOT, "long.md", Some(99_999), None));
    assert_eq!((beyond.untrusted_text.as_str(), beyond.next_offset), ("", None));
}

#[test]
fn a_file_over_the_limit_is_neither_read_nor_written() {
    let world = World::builder().limit("maxFileBytes", 1000).build();
    let turn = world.turn("Owner");
    world.clone_dir().write("fits.md", "x".repeat(1000));
    world.clone_dir().write("over.md", "x".repeat(1001));
    turn.reply::<FileText>(calls::read(ROOT, "fits.md"));
    turn.refused_by(Code::TooLarge, calls::read(ROOT, "over.md"));
    turn.refused_by(Code::TooLarge, calls::write(ROOT, "new.md", &"x".repeat(1001)));
    turn.refused_by(Code::TooLarge, calls::edit(ROOT, "over.md", "x", "y"));
    turn.reply::<Written>(calls::write(ROOT, "new.md", &"x".repeat(1000)));
    world.clone_dir().write("grows.md", format!("{}y", "x".repeat(999)));
    turn.refused_by(Code::TooLarge, calls::edit(ROOT, "grows.md", "y", "zz"));
    turn.reply::<protocol::reply::Edited>(calls::edit(ROOT, "grows.md", "y", "z"));
}

#[test]
fn what_is_not_text_is_not_read_and_its_size_is_said() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.clone_dir().write("nul.bin", b"text\0text");
    world.clone_dir().write("latin.txt", b"ol\xe9\n");
    for path in ["nul.bin", "latin.txt"] {
        let size = world.clone_dir().read(path).len();
        let refusal = turn.refused_by(Code::NotText, calls::read(ROOT, path));
        assert!(refusal.message.contains(&size.to_string()), "{refusal}");
    }
    world.clone_dir().write("bom.txt", "\u{feff}text \u{fffd}\n");
    let text: FileText = turn.reply(calls::read(ROOT, "bom.txt"));
    assert_eq!(text.untrusted_text.as_str(), "\u{feff}text \u{fffd}\n");
}

#[test]
fn credentials_are_neither_read_nor_written_nor_found() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let token = token();
    let text = format!("first line\ntoken = {token}\n");
    world.clone_dir().write("secret.md", &text);
    world.clone_dir().write("plain.md", "first line\ntoken = none\n");
    let refusals = [
        turn.refused_by(Code::CredentialShape, calls::read(ROOT, "secret.md")),
        turn.refused_by(Code::CredentialShape, calls::read_part(ROOT, "secret.md", None, Some(5))),
        turn.refused_by(Code::CredentialShape, calls::write(ROOT, "new.md", &text)),
        turn.refused_by(Code::CredentialShape, calls::edit(ROOT, "plain.md", "none", &token)),
    ];
    for refusal in refusals {
        assert!(!refusal.to_string().contains(&token), "{refusal}");
    }
    assert!(!world.clone_dir().path("new.md").exists());
    assert_eq!(world.clone_dir().text("plain.md"), "first line\ntoken = none\n");
    let hits: Hits = turn.reply(calls::search(ROOT, "first line", ""));
    assert_eq!((hits.untrusted_hits.len(), hits.skipped), (1, 1));
    turn.reply::<FileText>(calls::read(ROOT, "plain.md"));
}

#[test]
fn a_listing_is_sorted_bounded_and_without_what_is_ignored() {
    let world = World::builder().limit("maxFiles", 10).build();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    for path in ["noise.log", "build/out.md", "sub/build/kept.md", ".hidden/x.md", "sub/.x"] {
        clone.write(path, "x\n");
    }
    clone.write("sub/.gitignore", "private.md\n");
    clone.write("sub/private.md", "x\n");
    std::os::unix::fs::symlink("/etc", clone.path("sub/etc")).expect("it can be made");
    let all: FileList = turn.reply(calls::list(ROOT, "", ""));
    let expected = ["README.md", "plans/one.md", "plans/two.md", "sub/build/kept.md"];
    assert_eq!((paths(&all), all.truncated), (expected.to_vec(), false));
    let some: FileList = turn.reply(calls::list(ROOT, "plans", ""));
    assert_eq!(paths(&some), ["plans/one.md", "plans/two.md"]);
    let matching: FileList = turn.reply(calls::list(ROOT, "", "**/two.*"));
    assert_eq!(paths(&matching), ["plans/two.md"]);
    // The rules of the folders above hold below, too.
    let below: FileList = turn.reply(calls::list(ROOT, "sub", ""));
    assert_eq!(paths(&below), ["sub/build/kept.md"]);
    for n in 0..10 {
        clone.write(format!("many/{n}.md"), "x\n");
    }
    let cut: FileList = turn.reply(calls::list(ROOT, "", ""));
    assert_eq!((cut.untrusted_paths.len(), cut.truncated), (10, true));
    turn.refused_by(Code::WrongFileType, calls::list(ROOT, "README.md", ""));
    turn.refused_by(Code::NotFound, calls::list(ROOT, "nowhere", ""));
    turn.refused_by(Code::OutsideRoot, calls::list(ROOT, "sub/etc", ""));
}

#[test]
fn a_search_finds_lines_and_cannot_be_hung() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("a/x.md", "one needle\nnothing\nneedle two\n");
    clone.write("b.md", format!("{}!\n", "a".repeat(5000)));
    clone.write("noise.log", "needle\n");
    clone.write("latin.txt", b"needle \xe9\n");
    let hits: Hits = turn.reply(calls::search(ROOT, "needle", ""));
    let found: Vec<_> =
        hits.untrusted_hits.iter().map(|hit| (hit.path.as_str(), hit.line)).collect();
    assert_eq!(found, [("a/x.md", 1), ("a/x.md", 3), ("latin.txt", 1)]);
    turn.reply::<Hits>(calls::search(ROOT, "(a*)*(a*)*b", ""));
    turn.refused_by(Code::InvalidArguments, calls::search(ROOT, "(unclosed", ""));
    turn.refused_by(Code::InvalidArguments, calls::search(ROOT, "(((a{99}){99}){99}){99}", ""));
    turn.refused_by(Code::InvalidPath, calls::search(ROOT, "x", "../strategy"));
}

#[test]
fn a_write_creates_or_replaces_and_keeps_the_mode() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    let created: Written = turn.reply(calls::write(ROOT, "plans/new.md", "new\r\n"));
    assert!(created.created && created.size == 5);
    assert_eq!(clone.read("plans/new.md"), b"new\r\n");
    let mode = |path: &str| clone.path(path).metadata().expect("it is there").mode() & 0o7777;
    assert_eq!(mode("plans/new.md"), 0o644);
    for bits in [0o755, 0o600, 0o640] {
        let to = std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(clone.path("plans/new.md"), to).expect("it is ours");
        let replaced: Written = turn.reply(calls::write(ROOT, "plans/new.md", "again"));
        assert!(!replaced.created);
        assert_eq!((mode("plans/new.md"), clone.text("plans/new.md").as_str()), (bits, "again"));
        turn.reply::<protocol::reply::Edited>(calls::edit(ROOT, "plans/new.md", "aga", "b"));
        assert_eq!((mode("plans/new.md"), clone.text("plans/new.md").as_str()), (bits, "bin"));
    }
    let read: FileText = turn.reply(calls::read(ROOT, "plans/new.md"));
    let written: Written = turn.reply(calls::write(ROOT, "plans/new.md", "bin"));
    assert_eq!(read.digest, written.digest);
    let names: BTreeSet<_> = std::fs::read_dir(clone.path("plans"))
        .expect("it is a folder")
        .map(|entry| entry.expect("it can be read").file_name())
        .collect();
    assert_eq!(names, ["new.md", "one.md", "two.md"].map(Into::into).into(), "a temporary file");
}

#[test]
fn a_write_needs_a_folder_and_a_plain_file_to_replace() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("sub/deep.md", "x\n");
    let cases = [
        ("nowhere/new.md", Code::NotFound),
        ("README.md/new.md", Code::WrongFileType),
        ("plans", Code::WrongFileType),
        (".env", Code::InvalidPath),
        (".git/hooks/post-commit", Code::InvalidPath),
        (".github/workflows/x.yml", Code::InvalidPath),
        ("plans/.sage-0123456789abcdef.tmp", Code::InvalidPath),
        ("/tmp/x", Code::InvalidPath),
        ("", Code::InvalidPath),
    ];
    for (path, code) in cases {
        check::refused_and_unchanged(&world, &turn, code, calls::write(ROOT, path, "x"));
    }
    turn.reply::<Written>(calls::write(ROOT, "sub/deeper.md", "x"));
}

#[test]
fn protected_paths_are_read_and_never_written() {
    let world = World::builder()
        .protected(&["tools/**", "AGENTS.md", "plans/*.lock"])
        .file("tools/deep/run.py", "print()\n")
        .file("AGENTS.md", "Rules\n")
        .build();
    let turn = world.turn("Owner");
    for path in ["tools/deep/run.py", "tools/new.py", "AGENTS.md", "plans/x.lock"] {
        for call in [calls::write(ROOT, path, "x"), calls::edit(ROOT, path, "p", "x")] {
            check::refused_and_unchanged(&world, &turn, Code::ProtectedPath, call);
        }
    }
    turn.reply::<FileText>(calls::read(ROOT, "tools/deep/run.py"));
    for path in ["toolsx.md", "plans/AGENTS.md", "plans/x.locked"] {
        turn.reply::<Written>(calls::write(ROOT, path, "x"));
    }
}

#[test]
fn the_write_root_is_the_only_place_that_can_be_written() {
    let world = World::builder().notes().home().build();
    let turn = world.turn("Owner");
    world.repo("notes").write("n.md", "n\n");
    world.repo("home").write("h.md", "h\n");
    for (root, path) in [("notes", "n.md"), ("home", "h.md"), ("notes", "new.md")] {
        turn.refused_by(Code::ReadOnlyRoot, calls::write(root, path, "x"));
        turn.refused_by(Code::ReadOnlyRoot, calls::edit(root, path, "h", "x"));
    }
    let up = ["../notes/n.md", "../home/h.md", "../state/audit.jsonl", "../executor.json"];
    for path in up {
        turn.refused_by(Code::InvalidPath, calls::write(ROOT, path, "x"));
        turn.refused_by(Code::InvalidPath, calls::read(ROOT, path));
    }
    assert_eq!(world.repo("notes").text("n.md"), "n\n");
    assert_eq!(world.repo("home").text("h.md"), "h\n");
    turn.reply::<Written>(calls::write(ROOT, "new.md", "x"));
    turn.reply::<FileText>(calls::read("notes", "n.md"));
}

#[test]
fn what_a_killed_executor_left_is_removed_at_its_start() {
    let mut world = World::builder().notes().build();
    let ours = ["plans/.sage-0123456789abcdef.tmp", ".sage-ffffffffffffffff.tmp"];
    let theirs = [".sage-0123.tmp", "plans/.sage-0123456789abcdef.tmp.md", "plans/.sage-notes"];
    for path in ours.iter().chain(&theirs) {
        world.clone_dir().write(path, "x\n");
    }
    world.repo("notes").write(ours[0], "a read-only root is left alone\n");
    world.restart();
    for path in ours {
        assert!(!world.clone_dir().path(path).exists(), "{path} is still there");
    }
    for path in theirs {
        assert!(world.clone_dir().path(path).exists(), "{path} is gone");
    }
    assert!(world.repo("notes").path(ours[0]).exists());
    let lines = world.audit_lines();
    let line = lines.iter().find(|line| line["event"] == "removed_leftovers").expect("it is said");
    assert_eq!((&line["root"], &line["files"]), (&ROOT.into(), &2.into()));
    world.turn("Owner").reply::<Status>(calls::status(ROOT, ""));
}
