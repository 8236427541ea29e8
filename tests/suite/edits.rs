//! `edit_file`: one exact replacement (C5), with the cases B07, B09 and B11.

use harness::calls::{self, ROOT};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Edited, FileText, Hits, Written};
use protocol::tool::{EditFile, ToolCall};

fn edited(world: &World, turn: &Turn<'_>, before: &[u8], old: &str, new: &str) -> Vec<u8> {
    world.clone_dir().write("t.txt", before);
    turn.reply::<Edited>(calls::edit(ROOT, "t.txt", old, new));
    world.clone_dir().read("t.txt")
}

#[test]
fn b07_the_replacement_is_literal() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let literal = [
        "$&", "$$100", "$`", "$'", "$1", "${x}", "$<n>", "\\1", "\\0", "\\n", "a\\", "%s", "&", "",
    ];
    for new in literal {
        let after = edited(&world, &turn, b"left MARK right\n", "MARK", new);
        assert_eq!(after, format!("left {new} right\n").as_bytes());
    }
    assert_eq!(edited(&world, &turn, b"cost $1.00\n", "$1.00", "$$2"), b"cost $$2\n");
    assert_eq!(edited(&world, &turn, b"abc a.c\n", "a.c", "x"), b"abc x\n");
}

#[test]
fn b09_line_ends_and_the_files_end_stay() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let mixed = b"a\r\nb\nc\r\nd";
    assert_eq!(edited(&world, &turn, mixed, "b", "B"), b"a\r\nB\nc\r\nd");
    assert_eq!(edited(&world, &turn, mixed, "a\r\nb", "A\r\nb"), b"A\r\nb\nc\r\nd");
    world.clone_dir().write("t.txt", mixed);
    let refusal = turn.refused_by(Code::NoMatch, calls::edit(ROOT, "t.txt", "c\nd", "X"));
    assert!(refusal.hint.contains("CRLF"), "{refusal}");
    assert_eq!(world.clone_dir().read("t.txt"), mixed);
    for text in ["q\r\nr", "no newline at end", ""] {
        turn.reply::<Written>(calls::write(ROOT, "t.txt", text));
        assert_eq!(world.clone_dir().text("t.txt"), text);
    }
    assert_eq!(edited(&world, &turn, b"a\rb\rc", "b", "B"), b"a\rB\rc");
}

#[test]
fn b11_bytes_that_are_not_utf8_stay() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let cases: [&[u8]; 5] = [
        b"let n = 5;\n// ol\xe9 !\n",
        b"let n = 5; \xd6\xd0\xce\xc4\n",
        b"let n = 5; \xe2\x82",
        b"let n = 5; \0\n",
        b"let n = 5; \xef\xbf\xbd\n",
    ];
    for before in cases {
        let after = edited(&world, &turn, before, "n = 5", "n = 6");
        let mut expected = before.to_vec();
        expected[8] = b'6';
        assert_eq!(after, expected);
        let readable = std::str::from_utf8(before).is_ok() && !before.contains(&0);
        if readable {
            turn.reply::<FileText>(calls::read(ROOT, "t.txt"));
        } else {
            turn.refused_by(Code::NotText, calls::read(ROOT, "t.txt"));
        }
        turn.reply::<Hits>(calls::search(ROOT, "n = 6", "t.txt"));
        assert_eq!(world.clone_dir().read("t.txt"), expected, "a read changed it");
    }
}

#[test]
fn the_text_to_replace_occurs_exactly_once() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("t.txt", "ab\nab\naaa\n");
    let several = turn.refused_by(Code::SeveralMatches, calls::edit(ROOT, "t.txt", "ab", "x"));
    assert!(several.message.contains('2') && several.message.contains("1, 2"), "{several}");
    // Matches that overlap count each.
    turn.refused_by(Code::SeveralMatches, calls::edit(ROOT, "t.txt", "aa", "x"));
    turn.refused_by(Code::NoMatch, calls::edit(ROOT, "t.txt", "zz", "x"));
    turn.refused_by(Code::InvalidArguments, calls::edit(ROOT, "t.txt", "", "x"));
    turn.refused_by(Code::NotFound, calls::edit(ROOT, "nowhere.txt", "a", "x"));
    assert_eq!(clone.text("t.txt"), "ab\nab\naaa\n");
    turn.reply::<Edited>(calls::edit(ROOT, "t.txt", "aaa", "x"));
    assert_eq!(clone.text("t.txt"), "ab\nab\nx\n");
}

#[test]
fn a_dry_run_shows_the_diff_and_writes_nothing() {
    let world = World::builder().protected(&["kept/**"]).build();
    let turn = world.turn("Owner");
    let before = harness::snapshot::Snapshot::of(world.clone_dir().dir());
    let call = |dry_run| {
        ToolCall::EditFile(EditFile {
            root: ROOT.to_owned(),
            path: "plans/one.md".to_owned(),
            old: "second".to_owned(),
            new: "2nd".to_owned(),
            dry_run,
            expect: None,
        })
    };
    let dry: Edited = turn.reply(call(true));
    before.assert_same(&harness::snapshot::Snapshot::of(world.clone_dir().dir()), "a dry run");
    let wet: Edited = turn.reply(call(false));
    assert_eq!((dry.written, wet.written), (false, true));
    assert_eq!((&dry.untrusted_diff, &dry.digest), (&wet.untrusted_diff, &wet.digest));
    assert!(dry.untrusted_diff.as_str().contains("-second\n+2nd\n"), "{dry:?}");
    assert_eq!(world.clone_dir().text("plans/one.md"), "# One\n\nfirst\n2nd\nthird\n");
}

#[test]
fn an_edit_can_expect_what_was_read() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let read: FileText = turn.reply(calls::read(ROOT, "plans/one.md"));
    let call = |expect: &str| {
        ToolCall::EditFile(EditFile {
            root: ROOT.to_owned(),
            path: "plans/one.md".to_owned(),
            old: "first".to_owned(),
            new: "1st".to_owned(),
            dry_run: false,
            expect: Some(expect.to_owned()),
        })
    };
    let text = world.clone_dir().text("plans/one.md");
    world.clone_dir().write("plans/one.md", format!("{text}more\n"));
    turn.refused_by(Code::FileChanged, call(&read.digest));
    world.clone_dir().write("plans/one.md", &text);
    turn.reply::<Edited>(call(&read.digest));
}
