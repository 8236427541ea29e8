//! The rows of `docs/git-differences.md`: where an answer is not what plain git would say. Each test
//! shows both.

use std::fs;

use harness::calls::{self, ROOT};
use harness::git::{Repo, installed};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Diff, Log, ShownCommit, Status};

fn worlds() -> impl Iterator<Item = World> {
    installed().into_iter().map(|git| World::builder().git(&git).build())
}

fn untracked(turn: &Turn<'_>) -> Vec<String> {
    let status: Status = turn.reply(calls::status(ROOT, ""));
    status.untrusted_untracked.iter().map(|path| path.as_str().to_owned()).collect()
}

fn unstaged(turn: &Turn<'_>) -> Vec<String> {
    let status: Status = turn.reply(calls::status(ROOT, ""));
    status.untrusted_unstaged.iter().map(|change| change.path.as_str().to_owned()).collect()
}

fn porcelain(repo: &Repo) -> String {
    repo.git(&["status", "--porcelain"])
}

#[test]
fn ignore_rules_from_outside_the_repository_do_not_count() {
    for world in worlds() {
        let clone = world.clone_dir();
        let rules = world.base().join("rules");
        fs::write(&rules, "*.out\n").expect("it is ours");
        clone.git(&["config", "core.excludesFile", rules.to_str().expect("UTF-8")]);
        clone.write(".git/info/exclude", "*.inside\n");
        for name in ["seen.out", "hidden.inside", "plain.md"] {
            clone.write(name, "x\n");
        }
        assert_eq!(porcelain(clone), "?? plain.md", "plain git heeds both");
        assert_eq!(untracked(&world.turn("Owner")), ["plain.md", "seen.out"]);
    }
}

#[test]
fn an_order_file_from_outside_the_repository_does_not_count() {
    for world in worlds() {
        let clone = world.clone_dir();
        let order = world.base().join("order");
        fs::write(&order, "plans/two.md\nplans/one.md\n").expect("it is ours");
        clone.git(&["config", "diff.orderFile", order.to_str().expect("UTF-8")]);
        for name in ["plans/one.md", "plans/two.md"] {
            clone.write(name, "changed\n");
        }
        assert_eq!(clone.git(&["diff", "--name-only"]), "plans/two.md\nplans/one.md");
        let diff: Diff = world.turn("Owner").reply(calls::diff(ROOT, "", ""));
        let order: Vec<_> = diff.untrusted_files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(order, ["plans/one.md", "plans/two.md"]);
    }
}

#[test]
fn each_file_of_an_untracked_folder_is_listed() {
    for world in worlds() {
        let clone = world.clone_dir();
        clone.write("new/deep/a.md", "x\n");
        clone.write("new/b.md", "x\n");
        assert_eq!(porcelain(clone), "?? new/");
        assert_eq!(untracked(&world.turn("Owner")), ["new/b.md", "new/deep/a.md"]);
    }
}

#[test]
fn the_work_tree_of_a_submodule_is_not_looked_at_but_its_commit_is() {
    for world in worlds() {
        let clone = world.clone_dir();
        let library = world.repo("library");
        fs::create_dir_all(library.dir()).expect("it is ours");
        library.git(&["init", "-q", "-b", "main", "."]);
        library.commit_file("a.md", "a\n", "A");
        let url = library.dir().to_str().expect("UTF-8").to_owned();
        let local = ["-c", "protocol.file.allow=always"];
        clone.git(&[&local[..], &["submodule", "--quiet", "add", &url, "sub"]].concat());
        clone.commit_all("A submodule");
        let turn = world.turn("Owner");
        clone.write("sub/a.md", "changed\n");
        assert_eq!(porcelain(clone).trim(), "M sub");
        assert_eq!(unstaged(&turn), [""; 0]);
        let sub = clone.beside(clone.path("sub"));
        let next = sub.commit_all("Changed");
        clone.git(&["update-index", "--cacheinfo", &format!("160000,{next},sub")]);
        let staged: Status = turn.reply(calls::status(ROOT, ""));
        let staged: Vec<_> = staged.untrusted_staged.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(staged, ["sub"]);
    }
}

#[test]
fn a_path_that_a_filter_would_rewrite_is_compared_as_it_is_and_never_committed() {
    for world in worlds() {
        let clone = world.clone_dir();
        clone.write(".gitattributes", "plans/one.md filter=upper\n");
        clone.git(&["config", "filter.upper.clean", "tr a-z A-Z"]);
        clone.write("plans/one.md", "one\n");
        clone.git(&["add", "--all"]);
        clone.git(&["commit", "-q", "-m", "Filtered"]);
        clone.git(&["push", "-q", "origin", "main"]);
        assert_eq!(clone.git(&["show", "HEAD:plans/one.md"]), "ONE");
        clone.write("plans/one.md", "one\n");
        clone.git(&["update-index", "-q", "--really-refresh"]);
        // Another size, so that the index cannot tell by itself.
        clone.write("plans/one.md", "One\n");
        assert_eq!(porcelain(clone), "", "to plain git it is the same");
        let turn = world.turn("Owner");
        assert_eq!(unstaged(&turn), ["plans/one.md"]);
        let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
        assert!(diff.untrusted_diff.text.as_str().contains("-ONE\n+One\n"), "{diff:?}");
        turn.refused_by(Code::FilteredPath, calls::commit(ROOT, "Filtered?", &["plans/one.md"]));
    }
}

#[test]
fn a_repository_of_another_format_is_refused_by_name() {
    for world in worlds() {
        let turn = world.turn("Owner");
        let formats: [&[&str]; 2] = [&["--object-format=sha256"], &["--ref-format=reftable"]];
        for format in formats {
            let clone = world.clone_dir();
            fs::rename(clone.path(".git"), clone.path("kept.git")).expect("it is ours");
            let made = clone.try_git(&[&["init", "-q", "-b", "main"], format].concat());
            // git knows reftable from 2.45 on; before, there is nothing to refuse.
            let known = made.status.success();
            assert!(known || format[0].contains("reftable"), "{made:?}");
            if known {
                for call in [calls::status(ROOT, ""), calls::log(ROOT, "", "", 20)] {
                    let refusal = turn.refused(call);
                    assert_eq!(refusal.code, Code::UntrustedRepository, "{refusal}");
                    let name = format[0].rsplit('=').next().expect("it has a value");
                    assert!(refusal.message.contains(name), "{refusal}");
                }
            }
            let _ = fs::remove_dir_all(clone.path(".git"));
            fs::rename(clone.path("kept.git"), clone.path(".git")).expect("it is ours");
        }
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
}

#[test]
fn a_merge_is_shown_against_its_first_parent() {
    for world in worlds() {
        let clone = world.clone_dir();
        clone.git(&["checkout", "-q", "-b", "side"]);
        clone.commit_file("plans/two.md", "side\n", "Side");
        clone.git(&["checkout", "-q", "main"]);
        clone.commit_file("plans/one.md", "main\n", "Main");
        clone.git(&["merge", "-q", "--no-ff", "-m", "Merge", "side"]);
        assert_eq!(clone.git(&["show", "--format=", "HEAD"]), "", "git combines them to nothing");
        let shown: ShownCommit = world.turn("Owner").reply(calls::show(ROOT, "HEAD", ""));
        let files: Vec<_> = shown.untrusted_files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["plans/two.md"]);
        assert_eq!(shown.parents.len(), 2);
    }
}

#[test]
fn a_path_in_conflict_is_compared_with_our_side() {
    for world in worlds() {
        let clone = world.clone_dir();
        clone.git(&["checkout", "-q", "-b", "side"]);
        clone.commit_file("plans/one.md", "side\n", "Side");
        clone.git(&["checkout", "-q", "main"]);
        clone.commit_file("plans/one.md", "main\n", "Main");
        assert!(!clone.try_git(&["merge", "-q", "side"]).status.success());
        assert!(clone.git(&["diff"]).contains("\n++<<<<<<< HEAD\n"), "git combines them");
        let turn = world.turn("Owner");
        let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
        let text = diff.untrusted_diff.text.as_str();
        assert!(text.contains("\n+<<<<<<< HEAD\n main\n+=======\n+side\n"), "{text}");
        let status: Status = turn.reply(calls::status(ROOT, ""));
        assert_eq!(status.untrusted_conflicted[0].as_str(), "plans/one.md");
    }
}

#[test]
fn commits_of_the_same_second_come_in_the_order_in_which_they_were_found() {
    for world in worlds() {
        let clone = world.clone_dir();
        let at = |repo: &Repo, arguments: &[&str]| {
            let date = "1700000000 +0000";
            let mut git = repo.command(arguments);
            git.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date);
            assert!(git.output().expect("git starts").status.success(), "{arguments:?}");
        };
        for round in 0..6 {
            let side = format!("side{round}");
            clone.git(&["checkout", "-q", "-b", &side]);
            for n in 0..3 {
                at(clone, &["commit", "-q", "--allow-empty", "-m", &format!("{side} {n}")]);
            }
            clone.git(&["checkout", "-q", "main"]);
            for n in 0..2 {
                at(clone, &["commit", "-q", "--allow-empty", "-m", &format!("main {round} {n}")]);
            }
            at(clone, &["merge", "-q", "--no-ff", "-m", &format!("merge {round}"), &side]);
        }
        let log: Log = world.turn("Owner").reply(calls::log(ROOT, "", "", 100));
        let shown: Vec<_> = log.untrusted_commits.iter().map(|c| c.hash.as_str()).collect();
        let plain = clone.git(&["log", "--format=%H", "-n", "100"]);
        assert_eq!(shown, plain.lines().collect::<Vec<_>>());
    }
}
