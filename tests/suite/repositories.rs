//! Which repository is read (D2): found no further up than the root, and refused when a part of it
//! lies elsewhere. With the case B25.

use std::os::unix::fs::symlink;

use harness::calls;
use harness::git::Repo;
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Diff, Log, ShownCommit, Status};
use protocol::tool::ToolCall;

use crate::check::comes_back;

const HOME: &str = "home";

fn world() -> World {
    World::builder().home().build()
}

/// A repository with one commit.
fn repository(world: &World, folder: &str) -> Repo {
    let repo = world.repo(folder);
    std::fs::create_dir_all(repo.dir()).expect("it can be made");
    repo.git(&["init", "-q", "-b", "main", "."]);
    repo.commit_file("secret.md", "parent secret\n", "A secret");
    repo
}

/// Every way to look at the repository that holds a path.
fn looks(path: &str) -> Vec<ToolCall> {
    vec![
        calls::status(HOME, path),
        calls::diff(HOME, "", path),
        calls::log(HOME, "", path, 20),
        calls::show(HOME, "HEAD", path),
        calls::branches(HOME, path),
    ]
}

fn all_refused(turn: &Turn<'_>, code: Code, path: &str) {
    for call in looks(path) {
        let refusal = turn.refused_by(code, call);
        assert!(!refusal.to_string().contains("parent secret"), "{refusal}");
    }
}

fn all_answered(turn: &Turn<'_>, path: &str) {
    for call in looks(path) {
        let shown = format!("{call:?}");
        let outcome = turn.call(call);
        assert!(matches!(outcome, Outcome::Reply(_)), "{shown}: {outcome:?}");
    }
}

#[test]
fn b25_a_repository_above_the_root_is_not_found() {
    let world = world();
    let turn = world.turn("Owner");
    // The world's own folder, above the root, becomes a repository with a trap.
    let above = repository(&world, "");
    let marker = world.markers().join("fired");
    above.add_config(&format!("[core]\n\tfsmonitor = \"touch {}\"\n", marker.display()));
    world.repo("home").write("plain/file.md", "x\n");
    for path in ["", "plain", "plain/file.md", "nowhere/at/all"] {
        all_refused(&turn, Code::NotARepository, path);
    }
    let head = above.git(&["-c", "core.fsmonitor=false", "rev-parse", "HEAD"]);
    assert!(!marker.exists());
    repository(&world, "home/plain");
    all_answered(&turn, "plain");
    all_answered(&turn, "plain/file.md");
    assert_eq!(above.git(&["-c", "core.fsmonitor=false", "rev-parse", "HEAD"]), head);
}

#[test]
fn the_innermost_repository_below_the_root_is_read() {
    let world = world();
    let turn = world.turn("Owner");
    repository(&world, "home");
    repository(&world, "home/work/inner");
    world.repo("home/work/inner").commit_file("deep/er/x.md", "x\n", "Inner");
    let subject = |path: &str| {
        let log: Log = turn.reply(calls::log(HOME, "", path, 1));
        log.untrusted_commits[0].subject.as_str().to_owned()
    };
    assert_eq!(subject(""), "A secret");
    assert_eq!(subject("work/inner"), "Inner");
    assert_eq!(subject("work/inner/deep/er/x.md"), "Inner");
    let shown: ShownCommit = turn.reply(calls::show(HOME, "HEAD", "work/inner/deep"));
    assert_eq!(shown.untrusted_files.len(), 1);
    let status: Status = turn.reply(calls::status(HOME, "work"));
    assert_eq!(status.untrusted_untracked[0].as_str(), "work/inner/");
}

#[test]
fn a_part_of_a_repository_that_lies_elsewhere_is_refused() {
    let world = world();
    let turn = world.turn("Owner");
    let outside = repository(&world, "outside");
    let git_dir = outside.path(".git");
    let git_dir = git_dir.to_str().expect("UTF-8");
    let fresh = |name: &str| repository(&world, &format!("home/{name}"));

    let file = world.repo("home/gitfile");
    file.write(".git", format!("gitdir: {git_dir}\n"));
    let relative = world.repo("home/relative");
    relative.write(".git", "gitdir: ../../outside/.git\n");
    let link = world.repo("home/link");
    link.write("x.md", "x\n");
    symlink(git_dir, link.path(".git")).expect("it can be made");
    fresh("commondir").write(".git/commondir", format!("{git_dir}\n"));
    fresh("alternates").write(".git/objects/info/alternates", format!("{git_dir}/objects\n"));
    fresh("relative-alternates")
        .write(".git/objects/info/alternates", "../../../../outside/.git/objects\n");
    let objects = fresh("objects");
    std::fs::remove_dir_all(objects.path(".git/objects")).expect("it is ours");
    symlink(outside.path(".git/objects"), objects.path(".git/objects")).expect("it can be made");
    let chain = fresh("chain");
    chain.write("inner/.git", "gitdir: ../.git/down\n");
    symlink(git_dir, chain.path(".git/down")).expect("it can be made");

    for name in ["gitfile", "relative", "link", "commondir", "alternates", "relative-alternates"] {
        all_refused(&turn, Code::UntrustedRepository, name);
    }
    all_refused(&turn, Code::UntrustedRepository, "objects");
    all_refused(&turn, Code::UntrustedRepository, "chain/inner");
    fresh("control");
    all_answered(&turn, "control");
}

#[test]
fn links_inside_a_repository_lead_to_nothing_outside() {
    let world = world();
    let turn = world.turn("Owner");
    let outside = repository(&world, "outside");
    outside.commit_file("more.md", "more\n", "Another commit than the one inside");
    let repo = repository(&world, "home/repo");
    for name in ["HEAD", "index", "refs", "packed-refs", "config"] {
        let path = repo.path(".git").join(name);
        let saved = repo.path(format!("saved-{name}"));
        let was_there = path.exists();
        if was_there {
            std::fs::rename(&path, &saved).expect("it is ours");
        }
        symlink(outside.path(".git").join(name), &path).expect("it can be made");
        for call in looks("repo") {
            let shown = format!("{name}: {call:?}");
            let outcome = format!("{:?}", turn.call(call));
            assert!(!outcome.contains(&outside.head()), "{shown}: {outcome}");
        }
        std::fs::remove_file(&path).expect("it is ours");
        if was_there {
            std::fs::rename(&saved, &path).expect("it is ours");
        }
    }
    all_answered(&turn, "repo");
}

#[test]
fn parts_that_lie_in_the_same_root_are_used() {
    let world = world();
    let turn = world.turn("Owner");
    let main = repository(&world, "home/main");
    main.git(&["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let linked = world.repo("home/linked");
    linked.write("secret.md", "changed in the linked worktree\n");
    let status: Status = turn.reply(calls::status(HOME, "linked"));
    assert_eq!(status.untrusted_branch.expect("it has one").as_str(), "linked");
    assert_eq!(status.untrusted_unstaged.len(), 1);
    let diff: Diff = turn.reply(calls::diff(HOME, "", "linked"));
    assert!(diff.untrusted_diff.text.as_str().contains("+changed in the linked"), "{diff:?}");
    all_answered(&turn, "linked");
    world.repo("home").git(&["clone", "-q", "--shared", "main", "borrows"]);
    all_answered(&turn, "borrows");
    main.git(&["init", "-q", "--separate-git-dir=../kept.git", "."]);
    all_answered(&turn, "main");
}

#[test]
fn b25_a_repository_of_another_user_is_refused() {
    assert!(nix::unistd::geteuid().is_root(), "only root can give a folder to another user");
    let world = world();
    let turn = world.turn("Owner");
    let repo = repository(&world, "home/repo");
    all_answered(&turn, "repo");
    let nobody = Some(65534);
    for part in ["", ".git"] {
        let path = repo.path(part);
        std::os::unix::fs::chown(&path, nobody, None).expect("root may");
        all_refused(&turn, Code::UntrustedRepository, "repo");
        std::os::unix::fs::chown(&path, Some(0), None).expect("root may");
    }
    all_answered(&turn, "repo");
}

/// Puts a pipe where a file of a new repository is or could be.
fn with_a_pipe(world: &World, folder: &str, name: &str) {
    let path = repository(world, &format!("home/{folder}")).path(name);
    let _ = std::fs::remove_file(&path);
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("it is ours");
}

#[test]
fn a_pipe_among_what_is_read_in_process_hangs_nothing() {
    let world = world();
    let names = ["HEAD", "config", "index", "packed-refs", "refs/heads/main", "commondir"];
    let info = ["info/exclude", "objects/info/alternates"];
    for (n, name) in names.iter().chain(&info).enumerate() {
        let folder = format!("repo-{n}");
        with_a_pipe(&world, &folder, &format!(".git/{name}"));
        for call in looks(&folder) {
            let shown = format!("{name}: {call:?}");
            let outcome = comes_back(&world, call);
            assert!(!matches!(outcome, Outcome::Fault(_)), "{shown}: {outcome:?}");
        }
    }
    repository(&world, "home/control");
    all_answered(&world.turn("Owner"), "control");
}

#[test]
fn a_pipe_among_what_git_reads_ends_at_the_time_limit() {
    let world = World::builder().home().limit("gitTimeoutSeconds", 1).build();
    let names = [".gitattributes", ".gitignore"];
    for (n, name) in names.iter().enumerate() {
        let folder = format!("repo-{n}");
        with_a_pipe(&world, &folder, name);
        match comes_back(&world, calls::status(HOME, &folder)) {
            Outcome::Refusal(refusal) => assert_eq!(refusal.code, Code::TimedOut, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    repository(&world, "home/control");
    all_answered(&world.turn("Owner"), "control");
}
