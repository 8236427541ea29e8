//! Scripts that hang, flood, end oddly, or are not the committed ones.

use std::os::unix::fs::symlink;
use std::process::Command;

use harness::calls::{self, ROOT};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{Committed, Reserved, Status, Written};

use super::{LOCK_TOOL, REGISTRY, VALIDATOR, no_script_is_left, python, shipped, world_with};
use super::{Said, world};
use crate::check::{self, refused_and_unchanged};

/// A world with a change to commit.
fn changed_with(script: &str, text: &str) -> World {
    let world = world_with(&[(script, text)]);
    world.clone_dir().write("README.md", "changed\n");
    world
}

fn refused_commit(world: &World, turn: &Turn<'_>, code: Code) -> Refusal {
    let call = calls::commit(ROOT, "Words", &["README.md"]);
    let refusal = refused_and_unchanged(world, turn, code, call);
    check::sound(world);
    no_script_is_left(world);
    refusal
}

fn commit_works(turn: &Turn<'_>) {
    turn.reply::<Committed>(calls::commit(ROOT, "Words", &["README.md"]));
}

/// A person commits the script that the demo ships; then it works.
fn mended(world: &World, script: &str) {
    world.clone_dir().write(script, shipped(script));
    world.git(&["add", script]);
    world.git(&["commit", "-q", "-m", "Mend the script"]);
    commit_works(&world.turn("Owner"));
}

#[test]
fn a_validator_that_hangs_is_stopped() {
    let script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    signal.pause()\n";
    let world = changed_with(VALIDATOR, script);
    let refusal = refused_commit(&world, &world.turn("Owner"), Code::TimedOut);
    assert!(refusal.message.contains(VALIDATOR), "{refusal}");
    assert!(refusal.message.contains("longer than 30 s and was stopped"), "{refusal}");
    mended(&world, VALIDATOR);
}

#[test]
fn a_validator_that_floods_is_cut_to_its_first_lines() {
    let flood = |status: u8| {
        format!(
            "import sys\nfor n in range(400000):\n    print('vault/x.md:%d: wrong' % n, 'and wrong ' * 9)\n\
             for n in range(400000):\n    print('noise ' * 9, file=sys.stderr)\nsys.exit({status})\n"
        )
    };
    let world = changed_with(VALIDATOR, &flood(1));
    let refusal = refused_commit(&world, &world.turn("Owner"), Code::RecordProtocol);
    assert!(refusal.message.len() < 4500, "{} bytes", refusal.message.len());
    assert!(refusal.message.lines().count() <= 10, "{refusal}");
    mended(&world, VALIDATOR);
    // It is what it ends with that counts, not how much it says.
    let world = changed_with(VALIDATOR, &flood(0));
    commit_works(&world.turn("Owner"));
}

#[test]
fn the_first_lines_of_the_validator_are_shown_and_no_more() {
    let script =
        "import sys\nfor n in range(50):\n    print('vault/x.md:%d: wrong' % n)\nsys.exit(1)\n";
    let world = changed_with(VALIDATOR, script);
    let said = refused_commit(&world, &world.turn("Owner"), Code::RecordProtocol).message;
    assert!(said.contains("vault/x.md:0: wrong") && said.contains("vault/x.md:9: wrong"), "{said}");
    assert!(!said.contains("vault/x.md:10:"), "{said}");
}

#[test]
fn what_a_script_says_is_masked() {
    let secret = concat!("ghp_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let (one, two) = secret.split_at(10);
    let script = format!("import sys\nprint('found', '{one}' + '{two}')\nsys.exit(1)\n");
    let world = changed_with(VALIDATOR, &script);
    let said = refused_commit(&world, &world.turn("Owner"), Code::RecordProtocol).message;
    assert!(said.contains("found") && !said.contains(&secret[8..]), "{said}");
}

#[test]
fn a_validator_that_ends_oddly_stops_the_commit_and_is_named() {
    let endings = [
        ("import sys\nprint('half way')\nsys.exit(3)\n", "ended with status 3: half way"),
        ("import os\nos.abort()\n", "was killed"),
        ("raise ValueError('oh')\n", "ValueError: oh"),
        ("this is (not Python\n", "SyntaxError"),
        ("x = b'x' * (8 << 30)\n", "MemoryError"),
    ];
    for (script, said) in endings {
        let world = changed_with(VALIDATOR, script);
        let refusal = refused_commit(&world, &world.turn("Owner"), Code::RecordProtocol);
        assert!(refusal.message.contains(said), "{said}: {refusal}");
        mended(&world, VALIDATOR);
    }
}

#[test]
fn a_lock_tool_that_ends_oddly_stops_the_write_before_it() {
    let endings = [
        (
            "import sys\nfor n in range(400000):\n    print('no %d' % n, 'x' * 90, file=sys.stderr)\nsys.exit(1)\n",
            "no 0",
        ),
        ("import sys\nsys.exit(2)\n", "ended with status 2"),
        ("import os\nos.abort()\n", "was killed"),
    ];
    for (script, said) in endings {
        let world = world_with(&[(LOCK_TOOL, script)]);
        let turn = world.turn("Owner");
        for call in [calls::write(ROOT, "README.md", "x"), calls::reserve(ROOT, "A title")] {
            let refusal = turn.refused_by(Code::RecordProtocol, call);
            assert!(refusal.message.contains(said), "{said}: {refusal}");
            assert!(refusal.message.len() < 1000, "{said}: {} bytes", refusal.message.len());
        }
        assert_eq!(world.clone_dir().text("README.md"), "# Strategy\n");
        world.clone_dir().write("README.md", "changed\n");
        refused_commit(&world, &turn, Code::RecordProtocol);
        mended(&world, LOCK_TOOL);
        turn.reply::<Written>(calls::write(ROOT, "README.md", "x"));
    }
}

#[test]
fn an_answer_that_is_no_id_is_none() {
    for said in ["", "DEC-", "DEC-12x", "BUS-0001", "DEC-0003 DEC-0004", "DEC-0003\\nDEC-0004", "x"]
    {
        let world = world_with(&[(LOCK_TOOL, &format!("print('{said}')\n"))]);
        let outcome = world.turn("Owner").call(calls::reserve(ROOT, "A title"));
        assert!(matches!(outcome, Outcome::Fault(_)), "{said:?}: {outcome:?}");
    }
    let world = world_with(&[(LOCK_TOOL, "print('DEC-0042')\n")]);
    assert_eq!(
        world.turn("Owner").reply::<Reserved>(calls::reserve(ROOT, "A title")).id,
        "DEC-0042"
    );
}

#[test]
fn a_lock_tool_that_rewrites_the_registry_stops_the_next_commit() {
    let script =
        format!("open('{REGISTRY}', 'w').write('DEC-0003\\tx\\ty\\n')\nprint('DEC-0003')\n");
    let tool = format!("import sys\nif sys.argv[1] == 'reserve':\n    exec({script:?})\n");
    let world = changed_with(LOCK_TOOL, &tool);
    let turn = world.turn("Owner");
    turn.reply::<Reserved>(calls::reserve(ROOT, "A title"));
    let status: Status = turn.reply(calls::status(ROOT, ""));
    assert!(status.untrusted_reserved.is_empty() && !status.clean, "{status:?}");
    refused_commit(&world, &turn, Code::RecordProtocol);
    world.git(&["checkout", "-q", "--", REGISTRY]);
    commit_works(&turn);
}

#[test]
fn a_script_that_is_changed_staged_gone_or_a_link_is_not_run() {
    let world = world();
    let (clone, turn) = (world.clone_dir(), world.turn("Owner"));
    turn.reply::<Written>(calls::write(ROOT, "README.md", "changed\n"));
    let marker = world.markers().join("ran");
    for script in [VALIDATOR, LOCK_TOOL] {
        let path = clone.path(script);
        let trap = format!("open({marker:?}, 'w')\n{}", shipped(script));
        let refused = |said: &str| {
            let refusal = refused_commit(&world, &turn, Code::RecordProtocol);
            assert!(refusal.message.contains(said), "{said}: {refusal}");
        };
        clone.write(script, &trap);
        refused("differs from the committed version");
        // A byte is enough, and staging is not committing.
        clone.write(script, format!("{}\n", shipped(script)));
        refused("differs from the committed version");
        clone.write(script, &trap);
        world.git(&["add", script]);
        refused("differs from the committed version");
        world.git(&["reset", "-q"]);
        std::fs::remove_file(&path).expect("it is ours");
        refused("differs from the committed version");
        clone.write("elsewhere.py", shipped(script));
        symlink(clone.path("elsewhere.py"), &path).expect("a link");
        let call = calls::commit(ROOT, "Words", &["README.md"]);
        let refusal = refused_and_unchanged(&world, &turn, Code::WrongFileType, call);
        assert!(refusal.message.contains(script), "{refusal}");
        std::fs::remove_file(&path).expect("it is ours");
        clone.write(script, shipped(script));
    }
    assert!(!marker.exists());
    commit_works(&turn);
}

#[test]
fn a_script_that_was_never_committed_is_not_run() {
    let world = World::builder().vault().build();
    let turn = world.turn("Owner");
    world.clone_dir().write("README.md", "changed\n");
    for script in [VALIDATOR, LOCK_TOOL] {
        world.clone_dir().write(script, shipped(script));
    }
    let said = refused_commit(&world, &turn, Code::RecordProtocol).message;
    assert!(said.contains("is not committed"), "{said}");
    let refusal = turn.refused_by(Code::RecordProtocol, calls::reserve(ROOT, "A title"));
    assert!(refusal.message.contains("is not committed"), "{refusal}");
    world.clone_dir().write(REGISTRY, shipped(REGISTRY));
    world.git(&["add", "tools", "docs"]);
    world.git(&["commit", "-q", "-m", "Records"]);
    turn.reply::<Reserved>(calls::reserve(ROOT, "A title"));
    commit_works(&turn);
}

#[test]
fn nothing_beside_a_script_stands_in_for_a_module() {
    let world = world();
    let turn = world.turn("Owner");
    world.clone_dir().write("README.md", "changed\n");
    for folder in ["", "tools/"] {
        for module in ["json", "re", "stat", "fcntl", "hashlib", "sitecustomize", "usercustomize"] {
            world.clone_dir().write(format!("{folder}{module}.py"), "raise SystemExit(3)\n");
        }
    }
    let tools = world.clone_dir().path("tools");
    let control = python(&tools, "x", &["-c", "import json"]).output().expect("python3 starts");
    assert_eq!(Said::by(&control).code, Some(3), "elsewhere it would");
    turn.reply::<Reserved>(calls::reserve(ROOT, "A title"));
    commit_works(&turn);
}

#[test]
fn a_script_is_told_who_it_works_for_and_nothing_more() {
    let script = "import os, sys\nprint(' '.join(sorted(f'{k}={v}' for k, v in os.environ.items())))\nprint(sys.argv, sys.flags.isolated)\nsys.exit(1)\n";
    let world = World::builder().environment("SAGE_TOKEN", "for nobody");
    let world = super::vault_like(world, &[(VALIDATOR, script)]).build();
    world.clone_dir().write("README.md", "changed\n");
    let mut control = Command::new("python3");
    control.arg(VALIDATOR).env("SAGE_TOKEN", "for nobody");
    let control = control.current_dir(world.clone_dir().dir()).output().expect("python3 starts");
    assert!(Said::by(&control).out.contains("for nobody"));
    let said = refused_commit(&world, &world.turn("Owner"), Code::RecordProtocol).message;
    let expected = "HOME=/nonexistent LC_ALL=C.UTF-8 PATH=/nonexistent VAULT_LOCK_OWNER=sage\n['tools/validate_vault.py'] 1";
    assert!(said.contains(expected), "{said}");
}
