//! A hostile repository that would redirect the remote or another view (E1): transports, submodules,
//! missing objects, replaced history, work trees elsewhere. With the cases B21 and B27.

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Committed, Log, Pulled, Pushed, Status};

use crate::check::{comes_back, commit_works, refused_and_unchanged};
use crate::traps::{Trap, Trapped, Verdict, refused, walk_over};

#[test]
fn b21_programs_of_the_transport_do_not_run() {
    let hostile = refused(Code::HostileConfig);
    let fetch: &[&[&str]] = &[&["fetch", "-q"]];
    let push: &[&[&str]] = &[&["push", "-q", "origin", "HEAD:refs/heads/control"]];
    let cases = [
        ("[remote \"origin\"]\n\tuploadpack = SCRIPT;\n", fetch),
        ("[remote \"origin\"]\n\treceivepack = SCRIPT;\n", push),
        (
            "[url \"ext::SCRIPT \"]\n\tinsteadOf = REMOTE\n[protocol \"ext\"]\n\tallow = always\n",
            fetch,
        ),
        (
            "[remote \"origin\"]\n\tpushurl = ext::SCRIPT\n[protocol \"ext\"]\n\tallow = always\n",
            push,
        ),
    ];
    for (config, fires) in cases {
        walk_over(&Trap { config, fires, verdicts: hostile, ..Trap::default() });
    }
}

#[test]
fn b21_another_remote_than_the_configured_one_is_not_talked_to() {
    for git in installed() {
        for (url, config) in [
            ("ext::SCRIPT", "[protocol \"ext\"]\n\tallow = user\n"),
            ("ssh://git@example.invalid/x.git", "[core]\n\tsshCommand = SCRIPT\n"),
            ("git://127.0.0.1:9/x.git", "[core]\n\tgitProxy = SCRIPT\n"),
        ] {
            let trapped = Trapped::new(World::builder().git(&git).build(), &Trap::default());
            let world = &trapped.world;
            let script = world.base().join("script").display().to_string();
            let url = url.replace("SCRIPT", &script);
            world.git(&["config", "remote.origin.url", &url]);
            world.clone_dir().add_config(&config.replace("SCRIPT", &script));
            trapped.fire(&[&["fetch", "-q"]]);
            let turn = world.turn("Owner");
            trapped.read(&turn);
            let writes = [
                calls::commit(ROOT, "Where to?", &["plans/one.md"]),
                calls::pull(ROOT),
                calls::push(ROOT),
            ];
            for call in writes {
                trapped.write(&turn, call, Verdict::Refused(Code::HostileConfig));
            }
        }
    }
}

#[test]
fn b21_urls_that_are_options_or_other_transports_are_refused() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let urls = [
        "ssh://-oProxyCommand=touch%20FIRED/x",
        "-u./x",
        "--upload-pack=touch FIRED",
        "file:///etc",
        "fd::17",
        "https://ok.example/x.git",
        "user@host:x.git",
        "",
    ];
    world.clone_dir().write("plans/one.md", "changed\n");
    for url in urls {
        world.git(&["config", "remote.origin.url", url]);
        let call = calls::commit(ROOT, "Where to?", &["plans/one.md"]);
        for call in [call, calls::pull(ROOT), calls::push(ROOT)] {
            refused_and_unchanged(&world, &turn, Code::RemoteMismatch, call);
        }
    }
    let right = world.base().join("remote.git");
    world.git(&["config", "remote.origin.url", right.to_str().expect("UTF-8")]);
    commit_works(&world, &turn, "plans/one.md");
}

#[test]
fn a_helper_for_the_remotes_protocol_is_not_started() {
    // `git-remote-x` is found through PATH; plain git is given one.
    let trap = Trap {
        scripts: &["bin/git-remote-x"],
        verdicts: refused(Code::HostileConfig),
        ..Trap::default()
    };
    for git in installed() {
        let trapped = Trapped::new(World::builder().git(&git).build(), &trap);
        trapped.world.clone_dir().add_config("[remote \"origin\"]\n\tvcs = x\n");
        let copy = trapped.copy();
        let path = format!("{}:/usr/bin:/bin", copy.path("bin").display());
        copy.command(&["fetch", "-q"]).env("PATH", path).output().expect("git starts");
        std::fs::remove_file(trapped.world.markers().join("fired")).expect("it fires in plain git");
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        for call in [calls::pull(ROOT), calls::push(ROOT)] {
            trapped.write(&turn, call, Verdict::Refused(Code::HostileConfig));
        }
    }
}

/// A world whose clone has a submodule `sub`, cloned from `sub.git`.
fn with_a_submodule(git: &std::path::Path) -> World {
    let world = World::builder().git(git).build();
    let base = world.repo("");
    base.git(&["init", "-q", "-b", "main", "sub-origin"]);
    world.repo("sub-origin").commit_file("s.md", "1\n", "One");
    let allow = ["-c", "protocol.file.allow=always"];
    let origin = world.base().join("sub-origin").display().to_string();
    let add = ["submodule", "--quiet", "add", origin.as_str(), "sub"];
    world.git(&[&allow[..], &add].concat());
    world.git(&["commit", "-q", "-m", "A submodule"]);
    world.git(&["push", "-q", "origin", "main"]);
    world
}

#[test]
fn b27_a_pull_does_not_follow_submodules() {
    for git in installed() {
        let world = with_a_submodule(&git);
        let turn = world.turn("Owner");
        let sub = world.clone_dir().beside(world.clone_dir().path("sub"));
        world.git(&["config", "submodule.recurse", "true"]);
        world.git(&["config", "fetch.recurseSubmodules", "true"]);
        world.git(&["config", "submodule.sub.update", "!touch fired"]);
        // Upstream bumps the submodule.
        let bumped = world.repo("sub-origin").commit_file("s.md", "2\n", "Two");
        let other = world.other_clone();
        other.git(&["update-index", "--cacheinfo", &format!("160000,{bumped},sub")]);
        other.git(&["commit", "-q", "-m", "Bump"]);
        other.git(&["push", "-q", "origin", "HEAD:main"]);
        let before = (sub.head(), Snapshot::of(sub.dir()));
        let pulled: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!(pulled.to, world.remote_head());
        assert_eq!(sub.head(), before.0);
        before.1.assert_same(&Snapshot::of(sub.dir()), "a pull");
        let modules = world.clone_dir().path(".git/modules/sub");
        assert!(modules.is_dir() && !world.clone_dir().path("fired").exists());
        commit_works(&world, &turn, "plans/one.md");
    }
}

#[test]
fn b27_a_submodules_own_settings_do_not_run() {
    for git in installed() {
        let world = with_a_submodule(&git);
        let trapped = Trapped::new(world, &Trap::default());
        let clone = trapped.world.clone_dir();
        let script = trapped.world.base().join("script").display().to_string();
        let sub = clone.beside(clone.path("sub"));
        sub.git(&["config", "core.fsmonitor", &script]);
        trapped.fire(&[&["status"]]);
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let call = calls::commit(ROOT, "Beside a submodule", &["plans/one.md"]);
        trapped.write(&turn, call, Verdict::Done);
        trapped.world.others_push("plans/two.md", "incoming\n");
        trapped.write(&turn, calls::pull(ROOT), Verdict::Done);
        trapped.write(&turn, calls::push(ROOT), Verdict::Done);
    }
}

#[test]
fn b27_odd_submodules_that_come_in_are_files_and_no_more() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let modules = [
        "[submodule \"sub\"]\n\tpath = sub\r\n\turl = /nowhere\n",
        "[submodule \"sub\"]\n\tpath = sub\n\turl = --upload-pack=touch fired\n",
        "[submodule \"../../x\"]\n\tpath = x\n\turl = ext::touch% fired\n\tupdate = !touch fired\n",
    ];
    for text in modules {
        world.others_push(".gitmodules", text);
        let pulled: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!(pulled.to, world.remote_head());
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
    assert!(!world.clone_dir().path("fired").exists());
    assert!(!world.clone_dir().path(".git/modules").exists());
}

#[test]
fn a_missing_object_is_not_fetched_by_looking_at_it() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let trapped = Trapped::new(world, &Trap::default());
        let clone = trapped.world.clone_dir();
        let script = trapped.world.base().join("script").display().to_string();
        clone.add_config(&format!(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n\
             [remote \"origin\"]\n\tpromisor = true\n\tuploadpack = {script};\n"
        ));
        let blob = clone.git(&["rev-parse", "HEAD:plans/two.md"]);
        let object = clone.path(format!(".git/objects/{}/{}", &blob[..2], &blob[2..]));
        std::fs::remove_file(object).expect("it is loose");
        trapped.fire(&[&["cat-file", "-p", "HEAD:plans/two.md"]]);
        let turn = trapped.world.turn("Owner");
        for call in [
            calls::status(ROOT, ""),
            calls::diff(ROOT, "", ""),
            calls::log(ROOT, "", "plans/two.md", 20),
            calls::branches(ROOT, ""),
        ] {
            let shown = format!("{call:?}");
            let outcome = turn.call(call);
            assert!(matches!(outcome, Outcome::Reply(_)), "{shown}: {outcome:?}");
            trapped.unfired(&shown);
        }
        // The root commit added the file whose text is not here.
        let root = clone.git(&["rev-list", "--max-parents=0", "HEAD"]);
        let outcome = turn.call(calls::show(ROOT, &root, ""));
        assert!(!matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
        trapped.unfired("git_show");
        for call in [calls::pull(ROOT), calls::push(ROOT)] {
            trapped.write(&turn, call, Verdict::Refused(Code::HostileConfig));
        }
    }
}

#[test]
fn refs_of_alternates_are_not_asked_for_by_a_program() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let trapped = Trapped::new(world, &Trap::default());
        let clone = trapped.world.clone_dir();
        clone.git(&["init", "-q", "--bare", ".git/borrowed.git"]);
        clone.write(".git/objects/info/alternates", "../borrowed.git/objects\n");
        let script = trapped.world.base().join("script").display().to_string();
        clone.add_config(&format!("[core]\n\talternateRefsCommand = {script}\n"));
        trapped.world.others_push("plans/two.md", "incoming\n");
        trapped.fire(&[&["fetch", "-q"]]);
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        for call in [calls::pull(ROOT), calls::push(ROOT)] {
            trapped.write(&turn, call, Verdict::Refused(Code::HostileConfig));
        }
    }
}

#[test]
fn replaced_and_grafted_history_is_shown_as_it_is() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        let first = clone.head();
        let real = clone.commit_file("plans/one.md", "real\n", "Real");
        clone.git(&["push", "-q", "origin", "main"]);
        let tree = clone.git(&["rev-parse", "HEAD~1^{tree}"]);
        let fake = clone.git(&["commit-tree", &tree, "-m", "Fake"]);
        clone.git(&["replace", &real, &fake]);
        assert_eq!(clone.git(&["log", "-1", "--format=%s"]), "Fake", "the trap fires");
        let subjects = || {
            let log: Log = turn.reply(calls::log(ROOT, "", "", 20));
            let subject = |c: &protocol::reply::LogEntry| c.subject.as_str().to_owned();
            log.untrusted_commits.iter().map(subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(), ["Real", "Start the strategy"]);
        let shown = format!("{:?}", turn.call(calls::show(ROOT, "HEAD", "")));
        assert!(shown.contains("+real") && !shown.contains("Fake"), "{shown}");
        // The index is compared with the real commit.
        assert_eq!(turn.reply::<Status>(calls::status(ROOT, "")).untrusted_staged, []);
        clone.git(&["replace", "-d", &real]);
        clone.write(".git/info/grafts", format!("{real}\n"));
        assert_eq!(clone.git(&["rev-list", "--count", "HEAD"]), "1", "the trap fires");
        assert_eq!(subjects(), ["Real", "Start the strategy"]);
        assert_ne!(first, real);
        commit_works(&world, &turn, "plans/one.md");
    }
}

#[test]
fn a_work_tree_elsewhere_is_not_looked_at() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let elsewhere = world.repo("elsewhere");
        elsewhere.write("private.md", "x\n");
        let config = format!("[core]\n\tworktree = {}\n", elsewhere.dir().display());
        world.clone_dir().add_config(&config);
        assert!(world.git(&["status", "--porcelain"]).contains("private.md"), "the trap fires");
        world.clone_dir().write("plans/one.md", "changed\n");
        let status: Status = turn.reply(calls::status(ROOT, ""));
        assert!(!format!("{status:?}").contains("private.md"), "{status:?}");
        assert_eq!(status.untrusted_unstaged.len(), 1);
        let call = calls::commit(ROOT, "Where?", &["plans/one.md"]);
        refused_and_unchanged(&world, &turn, Code::HostileConfig, call);
    }
}

#[test]
fn what_a_fetch_is_told_by_the_repository_changes_no_ref() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        let other = world.other_clone();
        other.git(&["tag", "v1"]);
        other.git(&["push", "-q", "origin", "HEAD:refs/heads/victim", "v1"]);
        let victim = clone.commit_file("plans/one.md", "victim\n", "Victim");
        clone.git(&["branch", "victim"]);
        clone.git(&["reset", "-q", "--hard", "HEAD~1"]);
        clone.git(&["update-ref", "refs/remotes/origin/stale", "HEAD"]);
        for (key, value) in [
            ("remote.origin.prune", "true"),
            ("fetch.prune", "true"),
            ("remote.origin.tagOpt", "--tags"),
            ("branch.main.mergeOptions", "--no-ff --no-commit"),
            ("branch.main.rebase", "true"),
            ("pull.rebase", "true"),
            ("merge.ff", "false"),
        ] {
            clone.git(&["config", key, value]);
        }
        clone.git(&[
            "config",
            "--add",
            "remote.origin.fetch",
            "+refs/heads/victim:refs/heads/victim",
        ]);
        world.others_push("plans/two.md", "incoming\n");
        let copy = clone.copy(world.base().join("copy"));
        copy.git(&["fetch", "-q"]);
        assert_ne!(copy.git(&["rev-parse", "victim"]), victim, "the trap fires");
        assert_eq!(copy.git(&["tag"]), "v1", "the trap fires");

        turn.reply::<Pulled>(calls::pull(ROOT));
        assert_eq!(clone.head(), world.remote_head());
        assert_eq!(clone.git(&["rev-parse", "victim"]), victim);
        assert_eq!(clone.git(&["tag"]), "");
        clone.git(&["rev-parse", "refs/remotes/origin/stale"]);
        assert_eq!(clone.git(&["rev-list", "--merges", "--count", "HEAD"]), "0");
        commit_works(&world, &turn, "plans/one.md");
        turn.reply::<Pushed>(calls::push(ROOT));
    }
}

#[test]
fn a_pipe_that_is_included_ends_at_the_time_limit() {
    let world = World::builder().limit("gitTimeoutSeconds", 1).build();
    let pipe = world.clone_dir().path(".git/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("it is ours");
    let config = world.clone_dir().text(".git/config");
    world.clone_dir().add_config("[include]\n\tpath = pipe\n");
    match comes_back(&world, calls::status(ROOT, "")) {
        Outcome::Refusal(refusal) => assert_eq!(refusal.code, Code::TimedOut),
        other => panic!("{other:?}"),
    }
    let log = comes_back(&world, calls::log(ROOT, "", "", 20));
    assert!(matches!(log, Outcome::Reply(_)), "{log:?}");
    let turn = world.turn("Owner");
    turn.refused_by(Code::HostileConfig, calls::pull(ROOT));
    world.clone_dir().write(".git/config", config);
    world.clone_dir().write("plans/one.md", "changed\n");
    turn.reply::<Committed>(calls::commit(ROOT, "After all", &["plans/one.md"]));
}
