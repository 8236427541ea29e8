//! The fences that look at the clone (E2): in the middle of something, another remote, settings that
//! redirect or run, a foreign lock. Each beside the same call on a clone that nothing is wrong with.

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Pulled, Pushed};
use protocol::tool::ToolCall;

use crate::check::{self, commit_works, refused_and_unchanged};

fn commit(message: &str, path: &str) -> ToolCall {
    calls::commit(ROOT, message, &[path])
}

/// A changed file that could be committed.
fn with_a_change(world: &World) {
    world.clone_dir().write("plans/one.md", "changed\n");
}

/// Puts the clone into a state that no verb writes in; undoes it afterwards.
struct Trouble {
    name: &'static str,
    code: Code,
    make: &'static [&'static [&'static str]],
    undo: &'static [&'static [&'static str]],
}

/// `side` and `main` both change plans/two.md.
const TROUBLES: &[Trouble] = &[
    Trouble {
        name: "a detached head",
        code: Code::DetachedHead,
        make: &[&["checkout", "-q", "--detach"]],
        undo: &[&["checkout", "-q", "main"]],
    },
    Trouble {
        name: "another branch",
        code: Code::WrongBranch,
        make: &[&["checkout", "-q", "-b", "other"]],
        undo: &[&["checkout", "-q", "main"], &["branch", "-D", "other"]],
    },
    Trouble {
        name: "a merge",
        code: Code::OperationInProgress,
        make: &[&["merge", "-q", "side"]],
        undo: &[&["merge", "--abort"]],
    },
    Trouble {
        name: "a merge that is resolved",
        code: Code::OperationInProgress,
        make: &[&["merge", "-q", "side"], &["add", "plans/two.md"]],
        undo: &[&["reset", "-q", "--merge"]],
    },
    Trouble {
        name: "a cherry-pick",
        code: Code::OperationInProgress,
        make: &[&["cherry-pick", "side"]],
        undo: &[&["cherry-pick", "--abort"]],
    },
    Trouble {
        name: "a revert",
        code: Code::OperationInProgress,
        make: &[&["revert", "--no-edit", "HEAD~1"]],
        undo: &[&["revert", "--abort"]],
    },
    Trouble {
        name: "a rebase",
        code: Code::OperationInProgress,
        make: &[&["rebase", "-q", "side"]],
        undo: &[&["rebase", "--abort"]],
    },
    Trouble {
        name: "a bisect",
        code: Code::OperationInProgress,
        make: &[&["bisect", "start"]],
        undo: &[&["bisect", "reset"]],
    },
];

/// A world in which `main` and `side` have diverged, all of main pushed.
fn troubled_world(git: &std::path::Path) -> World {
    let world = World::builder().git(git).build();
    let clone = world.clone_dir();
    clone.git(&["checkout", "-q", "-b", "side"]);
    clone.commit_file("plans/two.md", "# Two, from the side\n", "From the side");
    clone.git(&["checkout", "-q", "main"]);
    clone.commit_file("plans/two.md", "# Two, from main\n", "From main");
    clone.commit_file("plans/two.md", "# Two, from main, again\n", "From main, again");
    clone.git(&["push", "-q", "origin", "main"]);
    world
}

#[test]
fn no_verb_writes_in_the_middle_of_something() {
    for git in installed() {
        let world = troubled_world(&git);
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        for trouble in TROUBLES {
            for step in trouble.make {
                // A merge that stops says so by its exit code.
                clone.try_git(step);
            }
            clone.write("plans/one.md", "changed\n");
            for call in [commit("Now?", "plans/one.md"), calls::pull(ROOT), calls::push(ROOT)] {
                let refusal = refused_and_unchanged(&world, &turn, trouble.code, call);
                assert_eq!(refusal.code, trouble.code, "{}", trouble.name);
            }
            clone.git(&["checkout", "-q", "--", "plans/one.md"]);
            for step in trouble.undo {
                clone.git(step);
            }
        }
        commit_works(&world, &turn, "plans/one.md");
    }
}

#[test]
fn no_verb_writes_over_a_conflict() {
    for git in installed() {
        let world = troubled_world(&git);
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        // A stash that does not apply leaves a conflict and no operation.
        clone.write("plans/two.md", "# Two, stashed\n");
        clone.git(&["stash", "--quiet"]);
        commit_works(&world, &turn, "plans/two.md");
        let said = clone.try_git(&["stash", "pop"]);
        assert!(!said.status.success(), "it conflicts");
        clone.write("plans/one.md", "changed\n");
        for call in [commit("Now?", "plans/one.md"), calls::pull(ROOT), calls::push(ROOT)] {
            refused_and_unchanged(&world, &turn, Code::Conflicted, call);
        }
        clone.git(&["reset", "--quiet", "--hard"]);
        commit_works(&world, &turn, "plans/one.md");
    }
}

#[test]
fn origin_is_exactly_the_configured_remote() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    let clone = world.clone_dir();
    let config = clone.text(".git/config");
    let right = world.base().join("remote.git");
    let right = right.to_str().expect("UTF-8");
    let wrong = [
        config.replace(right, "https://git.example.com/o/r.git"),
        config.replace(right, &format!("{right}/")),
        config.replace(right, &format!("file://{right}")),
        config.replace("remote.git", "remote.git\n\turl = https://git.example.com/o/r.git"),
        config.replace(&format!("url = {right}"), ""),
        config.replace("[remote \"origin\"]", "[remote \"Origin\"]"),
        format!("{config}[remote \"origin\"]\n\turl = /elsewhere.git\n"),
    ];
    for text in wrong {
        clone.write(".git/config", &text);
        for call in [commit("Where to?", "plans/one.md"), calls::pull(ROOT), calls::push(ROOT)] {
            let refusal = refused_and_unchanged(&world, &turn, Code::RemoteMismatch, call);
            assert!(!refusal.message.contains("git.example.com"), "{refusal}");
        }
    }
    clone.write(".git/config", &config);
    turn.reply::<Pulled>(calls::pull(ROOT));
    turn.reply::<Pushed>(calls::push(ROOT));
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn keys_that_redirect_or_run_are_refused_by_name() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    with_a_change(&world);
    let clone = world.clone_dir();
    let config = clone.text(".git/config");
    let remote = world.base().join("remote.git");
    let remote = remote.to_str().expect("UTF-8");
    let cases = [
        ("[remote \"origin\"]\n\tpushurl = /elsewhere.git\n".to_owned(), "remote.origin.pushurl"),
        ("[REMOTE \"origin\"]\n\tPushURL = /elsewhere.git\n".to_owned(), "remote.origin.pushurl"),
        (format!("[url \"/elsewhere\"]\n\tinsteadOf = {remote}\n"), "insteadof"),
        (format!("[url \"/elsewhere\"]\n\tpushInsteadOf = {remote}\n"), "pushinsteadof"),
        (format!("[remote \"{remote}\"]\n\turl = /elsewhere.git\n"), "url"),
        ("[remote \"origin\"]\n\tvcs = x\n".to_owned(), "vcs"),
        ("[remote \"origin\"]\n\tproxy = http://x.invalid\n".to_owned(), "proxy"),
        ("[remote \"origin\"]\n\tuploadpack = touch x;\n".to_owned(), "uploadpack"),
        ("[remote \"origin\"]\n\treceivepack = touch x;\n".to_owned(), "receivepack"),
        ("[remote \"origin\"]\n\tmirror = true\n".to_owned(), "mirror"),
        ("[http]\n\tproxy = http://x.invalid\n".to_owned(), "http.proxy"),
        ("[http \"https://x.invalid\"]\n\tsslVerify = false\n".to_owned(), "sslverify"),
        ("[credential]\n\thelper = !touch x\n".to_owned(), "credential.helper"),
        ("[credential \"https://x.invalid\"]\n\thelper = x\n".to_owned(), "helper"),
        ("[core]\n\tsshCommand = touch x\n".to_owned(), "core.sshcommand"),
        ("[core]\n\tgitProxy = touch x\n".to_owned(), "core.gitproxy"),
        ("[core]\n\taskPass = touch x\n".to_owned(), "core.askpass"),
        ("[core]\n\tworktree = /elsewhere\n".to_owned(), "core.worktree"),
        ("[core]\n\talternateRefsCommand = touch x\n".to_owned(), "core.alternaterefscommand"),
        ("[include]\n\tpath = ../more\n".to_owned(), "include.path"),
        ("[includeIf \"gitdir:**\"]\n\tpath = ../more\n".to_owned(), "includeif"),
        ("[protocol \"ext\"]\n\tallow = always\n".to_owned(), "protocol.ext.allow"),
        ("[fetch]\n\tbundleURI = https://x.invalid\n".to_owned(), "fetch.bundleuri"),
        ("[extensions]\n\tworktreeConfig = true\n".to_owned(), "extensions.worktreeconfig"),
        ("[extensions]\n\tpartialClone = origin\n".to_owned(), "extensions.partialclone"),
    ];
    for (text, key) in cases {
        clone.write(".git/config", format!("{config}{text}"));
        for call in [commit("May I?", "plans/one.md"), calls::pull(ROOT), calls::push(ROOT)] {
            let refusal = refused_and_unchanged(&world, &turn, Code::HostileConfig, call);
            assert!(refusal.message.contains(key), "{key}: {}", refusal.message);
        }
    }
    clone.write(".git/config", &config);
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn a_foreign_index_lock_is_refused_and_never_removed() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        with_a_change(&world);
        world.others_push("incoming.md", "x\n");
        turn.reply::<Pulled>(calls::pull(ROOT));
        world.others_push("incoming-too.md", "x\n");
        let lock = world.clone_dir().path(".git/index.lock");
        std::fs::write(&lock, "somebody's").expect("it is ours");
        refused_and_unchanged(&world, &turn, Code::IndexLocked, calls::pull(ROOT));
        world.clone_dir().git(&["fetch", "-q"]);
        std::fs::remove_file(&lock).expect("it is still there");
        turn.reply::<Pulled>(calls::pull(ROOT));
        std::fs::write(&lock, "somebody's").expect("it is ours");
        let call = commit("Locked", "plans/one.md");
        refused_and_unchanged(&world, &turn, Code::IndexLocked, call);
        assert_eq!(std::fs::read(&lock).expect("it is still there"), b"somebody's");
        std::fs::remove_file(&lock).expect("it is ours");
        commit_works(&world, &turn, "plans/one.md");
        check::sound(&world);
    }
}
