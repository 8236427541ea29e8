//! The main job, from a decision to the pushed commit (E3, E5, J4), on every git of this machine.

use std::os::unix::fs::PermissionsExt;

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{
    Branches, ChangeKind, Committed, Diff, FileText, Log, PathText, Pulled, PushState, Pushed,
    ShownCommit, Status, Written,
};

use crate::check;

/// Every test here runs once per git.
fn on_every_git(test: impl Fn(&World)) {
    for git in installed() {
        test(&World::builder().git(&git).review().notes().build());
    }
}

#[test]
fn a_decision_is_written_reviewed_committed_and_pushed() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        let written: Written = turn.reply(calls::write(ROOT, "plans/three.md", "# Three\n\nGo.\n"));
        assert!(written.created);
        turn.reply::<protocol::reply::Edited>(calls::edit(ROOT, "plans/one.md", "second", "2nd"));
        let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
        assert!(diff.untrusted_diff.text.as_str().contains("+2nd"), "{diff:?}");
        let paths = ["plans/three.md", "plans/one.md"];
        let done: Committed =
            turn.reply(calls::commit(ROOT, "Decide on three\n\nBecause.", &paths));

        assert_eq!(done.push, PushState::Pushed);
        assert_eq!((done.branch.as_str(), done.trailer.as_str()), ("main", "Requested-by: Owner"));
        assert_eq!(done.hash.len(), 40);
        assert!(done.short.len() >= 4 && done.hash.starts_with(&done.short), "{done:?}");
        let clone = world.clone_dir();
        assert_eq!(clone.head(), done.hash);
        assert_eq!(world.remote_head(), done.hash);
        assert_eq!(clone.git(&["rev-parse", "refs/remotes/origin/main"]), done.hash);
        assert_eq!(
            clone.git(&["show", "--no-patch", "--format=%an <%ae>|%cn <%ce>|%B", "HEAD"]).trim(),
            "Sage <sage@example.invalid>|Sage <sage@example.invalid>|Decide on three\n\nBecause.\n\nRequested-by: Owner"
        );
        let trailers = clone.git(&["log", "-1", "--format=%(trailers:only,unfold)"]);
        assert_eq!(trailers.trim(), "Requested-by: Owner");
        assert_eq!(clone.git(&["status", "--porcelain"]), "");
        check::sound(world);
    });
}

#[test]
fn the_reply_of_a_commit_says_what_it_holds() {
    on_every_git(|world| {
        let clone = world.clone_dir();
        let turn = world.turn("Partner");
        clone.write("new/deep/file.md", "1\n2\n3\n");
        clone.write("plans/one.md", "# One\n\nfirst\nthird\nfourth\n");
        std::fs::remove_file(clone.path("plans/two.md")).expect("it was there");
        turn.reply::<Diff>(calls::diff(ROOT, "", ""));
        turn.reply::<FileText>(calls::read(ROOT, "new/deep/file.md"));
        let paths = ["plans/two.md", "new/deep/file.md", "plans/one.md"];
        let done: Committed = turn.reply(calls::commit(ROOT, "Add, change, delete", &paths));

        let files: Vec<_> = done
            .untrusted_files
            .iter()
            .map(|f| (f.kind, f.path.as_str().to_owned(), f.added, f.removed))
            .collect();
        assert_eq!(
            files,
            [
                (ChangeKind::Added, "new/deep/file.md".to_owned(), Some(3), Some(0)),
                (ChangeKind::Modified, "plans/one.md".to_owned(), Some(1), Some(1)),
                (ChangeKind::Deleted, "plans/two.md".to_owned(), Some(0), Some(1)),
            ]
        );
        assert_eq!(done.trailer, "Requested-by: Partner");
        let listed = clone.git(&["show", "--format=", "--name-status", "--no-renames", "HEAD"]);
        assert_eq!(listed, "A\tnew/deep/file.md\nM\tplans/one.md\nD\tplans/two.md");
        assert_eq!(world.remote_head(), done.hash);
        check::sound(world);
    });
}

#[test]
fn modes_and_odd_names_are_committed_as_they_are() {
    on_every_git(|world| {
        let clone = world.clone_dir();
        let turn = world.turn("Owner");
        let names =
            ["bücher.txt", "文件.md", " lead.txt", "a -> b.txt", "q\"uote.txt", "*.md", ":x"];
        for name in names {
            clone.write(name, "text\n");
            turn.reply::<FileText>(calls::read(ROOT, name));
        }
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(clone.path("plans/two.md"), executable).expect("it is ours");
        turn.reply::<Diff>(calls::diff(ROOT, "", ""));
        let mut paths = names.to_vec();
        paths.push("plans/two.md");
        let done: Committed = turn.reply(calls::commit(ROOT, "Odd names", &paths));
        assert_eq!(done.untrusted_files.len(), paths.len());
        let mode = done.untrusted_files.iter().find_map(|file| file.mode.clone());
        assert_eq!(mode.as_deref(), Some("100644 → 100755"));
        assert_eq!(clone.git(&["status", "--porcelain"]), "");
        let listed = clone.git_bytes(&["show", "-z", "--format=", "--name-only", "HEAD"]);
        assert_eq!(listed.split(|byte| *byte == 0).filter(|p| !p.is_empty()).count(), paths.len());
    });
}

#[test]
fn the_audit_has_a_line_for_each_call_and_the_chain_holds() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        let secret_text = "a sentence that is nobody's business";
        turn.reply::<Written>(calls::write(ROOT, "plans/three.md", secret_text));
        let done: Committed = turn.reply(calls::commit(ROOT, "Three", &["plans/three.md"]));
        turn.refused_by(Code::NothingToCommit, calls::commit(ROOT, "Again", &["plans/three.md"]));

        let lines = world.audit_lines();
        let find = |event: &str, tool: &str| {
            let line = lines.iter().find(|line| line["event"] == event && line["tool"] == tool);
            line.unwrap_or_else(|| panic!("no {event} {tool} in {lines:#?}")).clone()
        };
        let committed = find("done", "git_commit");
        assert_eq!(committed["commit"], done.hash.as_str());
        assert_eq!(committed["push"], "pushed");
        assert_eq!(committed["requester"], "Owner");
        assert_eq!(committed["turn"], turn.id());
        assert_eq!(committed["peer"], nix::unistd::geteuid().as_raw());
        assert!(committed["durationMs"].is_u64() && committed["time"].is_string());
        assert_eq!(find("refused", "git_commit")["code"], "nothing_to_commit");
        find("call", "write_file");
        let text = std::fs::read_to_string(world.audit()).expect("there is an audit");
        assert!(!text.contains(secret_text) && !text.contains("three.md"), "{text}");

        let verify = ["audit", "verify", world.audit().to_str().expect("UTF-8")].map(str::to_owned);
        let (holds, said) = world.executor_command(&verify);
        assert!(holds, "{said}");
        std::fs::write(world.audit(), text.replacen("Owner", "Other", 1)).expect("it is ours");
        let (holds, said) = world.executor_command(&verify);
        assert!(!holds && said.contains("broken"), "{said}");
    });
}

#[test]
fn a_push_that_fails_keeps_the_commit_and_the_next_commit_retries() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        let away = world.base().join("away.git");
        std::fs::rename(world.base().join("remote.git"), &away).expect("it can be moved");
        turn.reply::<Written>(calls::write(ROOT, "plans/three.md", "3\n"));
        let first: Committed = turn.reply(calls::commit(ROOT, "Three", &["plans/three.md"]));
        let PushState::Failed { code, message } = &first.push else { panic!("{first:?}") };
        assert_eq!(*code, Code::RemoteUnreachable);
        assert!(!message.is_empty());
        assert_eq!(world.clone_dir().head(), first.hash);
        let lines = world.audit_lines();
        let line = lines.iter().rfind(|line| line["event"] == "done").expect("it was done");
        assert_eq!((&line["commit"], &line["push"]), (&first.hash.into(), &"failed".into()));
        let status: Status = turn.reply(calls::status(ROOT, ""));
        assert_eq!((status.ahead, status.behind), (Some(1), Some(0)));

        std::fs::rename(&away, world.base().join("remote.git")).expect("it can be moved");
        turn.reply::<Written>(calls::write(ROOT, "plans/four.md", "4\n"));
        let second: Committed = turn.reply(calls::commit(ROOT, "Four", &["plans/four.md"]));
        assert_eq!(second.push, PushState::Pushed);
        assert_eq!(world.remote_head(), second.hash);
        let subjects = world.repo("remote.git").git(&["log", "--format=%s", "main"]);
        assert_eq!(subjects, "Four\nThree\nStart the strategy");
    });
}

#[test]
fn a_commit_that_stayed_here_is_pushed_by_git_push() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        let idle: Pushed = turn.reply(calls::push(ROOT));
        assert_eq!((idle.commits, idle.branch.as_str()), (0, "main"));
        let clone = world.clone_dir();
        clone.commit_file("a.md", "a\n", "Somebody's own");
        let head = clone.commit_file("b.md", "b\n", "Somebody's own, too");
        let done: Pushed = turn.reply(calls::push(ROOT));
        assert_eq!((done.commits, done.hash.as_str()), (2, head.as_str()));
        assert_eq!(world.remote_head(), head);
        assert_eq!(clone.git(&["rev-parse", "origin/main"]), head);
    });
}

#[test]
fn a_pull_moves_the_branch_forward_and_says_what_came() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        let before = world.clone_dir().head();
        let nothing: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!(
            (nothing.commits, nothing.from, nothing.to),
            (0, before.clone(), before.clone())
        );
        world.others_push("plans/three.md", "3\n3\n");
        let head = world.others_push("plans/two.md", "# Two\nmore\n");
        // Work of somebody that the pull does not touch.
        world.clone_dir().write("plans/one.md", "mine\n");
        world.clone_dir().write("mine.md", "mine\n");
        let done: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!((done.commits, &done.from, &done.to), (2, &before, &head));
        let files: Vec<_> =
            done.untrusted_files.iter().map(|f| (f.path.as_str(), f.added)).collect();
        assert_eq!(files, [("plans/three.md", Some(2)), ("plans/two.md", Some(1))]);
        assert_eq!(world.clone_dir().head(), head);
        assert_eq!(world.clone_dir().text("plans/two.md"), "# Two\nmore\n");
        assert_eq!(world.clone_dir().text("plans/one.md"), "mine\n");
        let porcelain = world.git(&["status", "--porcelain"]);
        assert_eq!(porcelain, " M plans/one.md\n?? mine.md");
        check::sound(world);
    });
}

#[test]
fn the_history_can_be_looked_at() {
    on_every_git(|world| {
        let turn = world.turn("Owner");
        turn.reply::<Written>(calls::write(ROOT, "plans/three.md", "3\n"));
        let done: Committed = turn.reply(calls::commit(ROOT, "Three", &["plans/three.md"]));
        let log: Log = turn.reply(calls::log(ROOT, "", "", 20));
        assert_eq!(log.untrusted_commits.len(), 2);
        assert_eq!(log.untrusted_commits[0].hash, done.hash);
        assert_eq!(log.untrusted_commits[0].subject.as_str(), "Three");
        let shown: ShownCommit = turn.reply(calls::show(ROOT, "HEAD", ""));
        assert_eq!(shown.untrusted_message.as_str(), "Three\n\nRequested-by: Owner\n");
        assert_eq!(shown.untrusted_files[0].path, PathText::Utf8("plans/three.md".to_owned()));
        assert!(shown.untrusted_diff.text.as_str().contains("+3"));
        let branches: Branches = turn.reply(calls::branches(ROOT, ""));
        assert_eq!(branches.untrusted_current.expect("it is on one").as_str(), "main");
        let upstream = branches.untrusted_branches[0].upstream.clone();
        assert_eq!(upstream.expect("it has one").as_str(), "origin/main");
        let status: Status = turn.reply(calls::status(ROOT, ""));
        assert!(status.clean, "{status:?}");
        assert_eq!((status.ahead, status.behind), (Some(0), Some(0)));
    });
}
