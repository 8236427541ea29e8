//! Each git of this machine, as a child: what Sage asks of it works, and what a repository or a
//! remote wants it to start does not.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::confine::child::{ChildSpec, ExecRule};
use ::confine::grants::{self, Grant, Rights};
use harness::confine::{self, Ground};
use harness::git::{Repo, installed};

use super::{read, run, succeed, text};

#[test]
fn every_git_reads_and_commits_without_starting_anything() {
    for git in installed() {
        let ground = Ground::new();
        let tree = ground.repository(&git);
        let head = tree.head();
        tree.write("inside", "second");
        tree.write("new file", "new");
        let reading = |args: &[&str]| succeed(&confine::git(&git, args, tree.dir(), Rights::READ));
        let status = ["--no-optional-locks", "status", "--porcelain=v2", "--branch"];
        assert!(reading(&status).contains("? new file"));
        assert!(reading(&["diff", "--no-ext-diff", "--no-textconv"]).contains("+second"));
        assert!(reading(&["log", "--oneline"]).contains("first"));
        assert!(reading(&["show", "--stat", "HEAD"]).contains("inside"));
        let writing =
            |args: &[&str]| succeed(&confine::git(&git, args, tree.dir(), Rights::WRITE_TREE));
        writing(&["update-index", "--add", "--", "inside", "new file"]);
        let written = writing(&["write-tree"]);
        let commit = writing(&["commit-tree", written.trim(), "-p", &head, "-m", "second"]);
        writing(&["update-ref", "refs/heads/main", commit.trim(), &head]);
        assert_eq!(tree.git(&["log", "--format=%s"]), "second\nfirst");
        assert_eq!(tree.git(&["status", "--porcelain"]), "");
        tree.git(&["fsck", "--strict"]);
    }
}

#[test]
fn every_git_moves_the_work_tree_forward_without_starting_anything() {
    for git in installed() {
        let ground = Ground::new();
        let tree = ground.repository(&git);
        tree.commit_file("old file", "old", "second");
        tree.git(&["switch", "--quiet", "-c", "ahead"]);
        tree.write("deep/er/tool", "#!/bin/sh\n");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(tree.path("deep/er/tool"), executable).expect("a mode");
        std::os::unix::fs::symlink("inside", tree.path("link")).expect("a link");
        tree.git(&["rm", "--quiet", "old file"]);
        tree.commit_all("ahead");
        let forward =
            [&["read-tree", "-m", "-u", "main", "ahead"][..], &["merge", "--ff-only", "ahead"]];
        for forward in forward {
            tree.git(&["switch", "--quiet", "-f", "-C", "main", "ahead~1"]);
            assert!(!tree.path("deep").exists() && tree.path("old file").exists());
            let spec = confine::git(&git, forward, tree.dir(), Rights::READ);
            assert!(!run(&spec).expect("a run").status.success(), "it may not write");
            assert!(!tree.path("deep").exists() && tree.path("old file").exists());
            succeed(&confine::git(&git, forward, tree.dir(), Rights::WRITE_TREE));
            assert_eq!(tree.git(&["diff", "ahead", "--"]), "", "{forward:?}");
            assert!(tree.path("link").is_symlink() && !tree.path("old file").exists());
        }
    }
}

#[test]
fn programs_planted_in_a_repository_run_under_plain_git_and_not_under_ours() {
    for git in installed() {
        let ground = Ground::new();
        let tree = ground.repository(&git);
        tree.write(".gitattributes", "* filter=trap diff=trap\n");
        tree.write("inside", "changed");
        let trap = tree.path(".git/trap");
        let plant = format!("sh -c 'echo fired >> {}; cat'", trap.display());
        for key in ["core.fsmonitor", "filter.trap.clean", "diff.trap.textconv", "diff.external"] {
            tree.git(&["config", key, &plant]);
        }
        for args in [&["status"][..], &["diff"], &["add", "inside"]] {
            let spec = confine::git(&git, args, tree.dir(), Rights::WRITE_TREE);
            let _ = run(&spec).expect("a run");
        }
        assert!(!trap.exists(), "{}: {}", git.display(), read(&trap));
        tree.git(&["status"]);
        assert!(read(&trap).contains("fired"), "the trap works");
    }
}

fn exec_path(git: &Path) -> PathBuf {
    let output = Command::new(git).arg("--exec-path").output().expect("git starts");
    PathBuf::from(String::from_utf8(output.stdout).expect("it is UTF-8").trim())
}

/// A git that may start what a remote on this machine takes.
fn local(git: &Path, args: &[&str], tree: &Repo, remote: &Path, rights: Rights) -> ChildSpec {
    let mut spec = confine::git(git, args, tree.dir(), Rights::WRITE_TREE);
    spec.exec = ExecRule::Exec { network: false };
    let helpers = exec_path(git);
    let beside = git.parent().expect("it lies in a folder");
    let files = &mut spec.grants.files;
    files.push(Grant::new(remote, rights, "the remote"));
    files.extend(grants::program(Path::new("/bin/sh"), "the way there").expect("it is ELF"));
    files.push(Grant::new(&helpers, Rights::READ | Rights::EXECUTE, "git's own programs"));
    for name in ["git-upload-pack", "git-receive-pack"] {
        files.push(Grant::optional(beside.join(name), Rights::EXEC, "the other end"));
    }
    spec.env.push(("PATH".into(), beside.into()));
    spec
}

#[test]
fn every_git_speaks_to_a_remote_on_this_machine_within_its_rights() {
    for git in installed() {
        let ground = Ground::new();
        let tree = ground.repository(&git);
        let remote = ground.path("remote.git");
        let url = text(&remote);
        tree.git(&["init", "--quiet", "--template=", "--bare", "-b", "main", url]);
        let push = ["push", "--quiet", url, "main:refs/heads/main"];
        let reading = run(&local(&git, &push, &tree, &remote, Rights::READ)).expect("a run");
        assert!(!reading.status.success(), "the remote may only be read");
        assert!(!remote.join("refs/heads/main").exists());
        succeed(&local(&git, &push, &tree, &remote, Rights::WRITE_TREE));
        assert_eq!(tree.beside(&remote).git(&["rev-parse", "main"]), tree.head());
        let fetch = ["fetch", "--quiet", url, "+refs/heads/main:refs/x/main"];
        succeed(&local(&git, &fetch, &tree, &remote, Rights::READ));
        assert_eq!(tree.git(&["rev-parse", "refs/x/main"]), tree.head());
    }
}
