//! A hostile repository (E1): each row of what its configuration can do fires in plain git, and not
//! through Sage. With the cases B17, B19, B21, B23 and B27.

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::world::World;
use protocol::refusal::Code;

use crate::traps::{Trap, Trapped, Verdict, refused, walk_over};

const COMMIT: &[&str] = &["commit", "-q", "-a", "-m", "Plainly"];

#[test]
fn b17_fsmonitor_does_not_run() {
    for config in ["[core]\n\tfsmonitor = SCRIPT\n", "[CORE]\n\tFSMonitor = SCRIPT\n"] {
        walk_over(&Trap { config, fires: &[&["status"]], ..Trap::default() });
    }
}

#[test]
fn b17_settings_that_are_included_do_not_run_and_nothing_is_written() {
    let monitor = "[core]\n\tfsmonitor = SCRIPT\n";
    let worktree = "[extensions]\n\tworktreeConfig = true\n";
    for (config, file) in [
        ("[include]\n\tpath = more\n", ".git/more"),
        ("[include]\n\tpath = ../more\n", "more"),
        ("[includeIf \"gitdir:**\"]\n\tpath = more\n", ".git/more"),
        ("[includeIf \"onbranch:main\"]\n\tpath = more\n", ".git/more"),
        (worktree, ".git/config.worktree"),
    ] {
        walk_over(&Trap {
            config,
            files: &[(file, monitor)],
            fires: &[&["status"]],
            verdicts: refused(Code::HostileConfig),
            ..Trap::default()
        });
    }
}

#[test]
fn b19_hooks_do_not_run() {
    const HOOKS: &[&str] = &[
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "post-merge",
        "pre-push",
        "pre-auto-gc",
        "fsmonitor-watchman",
        "post-rewrite",
        "pre-merge-commit",
    ];
    for hook in HOOKS.iter().filter(|hook| {
        // These need more than one command to fire; they are planted with the others below.
        !["pre-auto-gc", "fsmonitor-watchman", "post-rewrite", "pre-merge-commit"].contains(hook)
    }) {
        let path = format!(".git/hooks/{hook}");
        let fires: &[&[&str]] = &[
            &["commit", "-q", "-a", "-m", "Plainly"],
            &["checkout", "-q", "-b", "x"],
            &["checkout", "-q", "main"],
            &["push", "-q", "origin", "HEAD:refs/heads/control"],
            &["merge", "-q", "--ff-only", "HEAD"],
            &["reset", "-q", "--hard", "HEAD~1"],
            &["merge", "-q", "--ff-only", "ORIG_HEAD"],
        ];
        plant_hooks(&[&path], fires);
    }
    let all: Vec<String> = HOOKS.iter().map(|hook| format!(".git/hooks/{hook}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    plant_hooks(&all, &[COMMIT]);
}

/// Hooks are files in `.git`, so they are planted after the first commit.
fn plant_hooks(paths: &[&str], fires: &[&[&str]]) {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let trap = Trap { scripts: &["script-of-hooks"], ..Trap::default() };
        let trapped = Trapped::new(world, &trap);
        let clone = trapped.world.clone_dir();
        for path in paths {
            std::fs::create_dir_all(clone.path(".git/hooks")).expect("it is ours");
            std::fs::copy(clone.path("script-of-hooks"), clone.path(path)).expect("it is ours");
        }
        trapped.fire(fires);
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let call = calls::commit(ROOT, "Over the hooks", &["plans/one.md"]);
        trapped.write(&turn, call, Verdict::Done);
        trapped.world.others_push("plans/two.md", "incoming\n");
        trapped.write(&turn, calls::pull(ROOT), Verdict::Done);
        trapped.write(&turn, calls::push(ROOT), Verdict::Done);
    }
}

#[test]
fn b19_hooks_in_a_tracked_folder_do_not_run() {
    walk_over(&Trap {
        config: "[core]\n\thooksPath = hk\n",
        scripts: &["hk/pre-commit", "hk/post-index-change", "hk/reference-transaction"],
        fires: &[COMMIT],
        ..Trap::default()
    });
}

#[test]
fn programs_of_a_diff_do_not_run() {
    let attributes: &[(&str, &str)] = &[(".gitattributes", "*.md diff=x\n")];
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("[diff]\n\texternal = SCRIPT\n", &[]),
        ("[diff \"x\"]\n\tcommand = SCRIPT\n", attributes),
        ("[diff \"x\"]\n\ttextconv = SCRIPT\n", attributes),
        ("[diff \"x\"]\n\ttextconv = SCRIPT\n\tcachetextconv = true\n", attributes),
        ("[diff \"x\"]\n\tcommand = SCRIPT\n", &[(".git/info/attributes", "*.md diff=x\n")]),
    ];
    for (config, files) in cases {
        walk_over(&Trap { config, files, fires: &[&["diff"]], ..Trap::default() });
    }
}

#[test]
fn filters_do_not_run_and_what_they_would_rewrite_is_not_committed() {
    let files: &[(&str, &str)] = &[(".gitattributes", "plans/one.md filter=x\n")];
    let commit_refused = [Verdict::Refused(Code::FilteredPath), Verdict::Done, Verdict::Done];
    for config in [
        "[filter \"x\"]\n\tclean = SCRIPT\n",
        "[filter \"x\"]\n\tclean = SCRIPT\n\tsmudge = SCRIPT\n",
        "[filter \"x\"]\n\tprocess = SCRIPT\n",
    ] {
        let fires: &[&[&str]] = &[&["add", "--all"]];
        walk_over(&Trap { config, files, fires, verdicts: commit_refused, ..Trap::default() });
    }
}

#[test]
fn a_filter_does_not_run_on_what_a_pull_brings() {
    for (config, attributes) in [
        ("[filter \"x\"]\n\tsmudge = SCRIPT\n", "plans/two.md filter=x\n"),
        ("[filter \"x\"]\n\tprocess = SCRIPT\n", "plans/two.md filter=x\n"),
    ] {
        walk_over(&Trap {
            config,
            files: &[(".gitattributes", attributes)],
            fires: &[&["rm", "-q", "plans/two.md"], &["checkout", "HEAD", "--", "plans/two.md"]],
            ..Trap::default()
        });
    }
}

#[test]
fn a_filter_that_is_required_does_not_stop_a_look() {
    let required = "[filter \"x\"]\n\tclean = SCRIPT\n\tsmudge = SCRIPT\n\trequired = true\n";
    walk_over(&Trap {
        config: required,
        files: &[(".gitattributes", "plans/one.md filter=x\n")],
        fires: &[&["add", "--all"]],
        verdicts: [Verdict::Refused(Code::FilteredPath), Verdict::Done, Verdict::Done],
        ..Trap::default()
    });
}

#[test]
fn programs_of_a_commit_do_not_run() {
    for (config, fires) in [
        ("[core]\n\teditor = SCRIPT\n", &["commit", "-a"][..]),
        ("[gpg]\n\tprogram = SCRIPT\n[commit]\n\tgpgSign = true\n", COMMIT),
        (
            "[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = SCRIPT\n[commit]\n\tgpgSign = true\n[user]\n\tsigningKey = /dev/null\n",
            COMMIT,
        ),
        (
            "[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tdefaultKeyCommand = SCRIPT\n[commit]\n\tgpgSign = true\n",
            COMMIT,
        ),
    ] {
        // An editor of the environment would win over the configured one.
        let fires: &[&[&str]] = &[fires];
        let trap = Trap { config, fires, ..Trap::default() };
        if config.contains("editor") {
            walk_over_with_an_editor(&trap);
        } else {
            walk_over(&trap);
        }
    }
}

fn walk_over_with_an_editor(trap: &Trap<'_>) {
    for git in installed() {
        let trapped = Trapped::new(World::builder().git(&git).build(), trap);
        let copy = trapped.copy();
        let mut commit = copy.command(trap.fires[0]);
        commit.env_remove("GIT_EDITOR").output().expect("git starts");
        std::fs::remove_file(trapped.world.markers().join("fired")).expect("it fires in plain git");
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let call = calls::commit(ROOT, "Over the editor", &["plans/one.md"]);
        trapped.write(&turn, call, Verdict::Done);
    }
}

#[test]
fn a_signature_in_the_history_starts_no_program() {
    for git in installed() {
        let trap = Trap {
            config: "[gpg]\n\tprogram = SCRIPT\n[log]\n\tshowSignature = true\n[merge]\n\tverifySignatures = true\n",
            ..Trap::default()
        };
        let trapped = Trapped::new(World::builder().git(&git).build(), &trap);
        let clone = trapped.world.clone_dir();
        let raw = String::from_utf8(clone.git_bytes(&["cat-file", "commit", "HEAD"]));
        let raw = raw.expect("it is UTF-8");
        let signature =
            "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n";
        let (head, message) = raw.split_once("\n\n").expect("it has a message");
        clone.write(".git/raw", format!("{head}\n{signature}\n{message}"));
        let signed = clone.git(&["hash-object", "-t", "commit", "-w", ".git/raw"]);
        clone.git(&["update-ref", "refs/heads/main", &signed]);
        clone.git(&["-c", "core.hooksPath=/dev/null", "push", "-q", "--force", "origin", "main"]);
        trapped.fire(&[&["log", "-1"]]);
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let call = calls::commit(ROOT, "Over the signature", &["plans/one.md"]);
        trapped.write(&turn, call, Verdict::Done);
        trapped.write(&turn, calls::pull(ROOT), Verdict::Done);
    }
}

#[test]
fn b23_programs_in_the_work_tree_are_not_found_through_the_search_path() {
    for path in [".:/usr/bin:/bin", ":/usr/bin:/bin", "plans:/usr/bin:/bin"] {
        let scripts = ["git", "sh", "ssh", "less", "gpg", "git-upload-pack", "git-receive-pack"];
        let both: Vec<String> =
            scripts.iter().flat_map(|s| [(*s).to_owned(), format!("plans/{s}")]).collect();
        let both: Vec<&str> = both.iter().map(String::as_str).collect();
        let world = World::builder().environment("PATH", path).start_in(ROOT).build();
        let trap = Trap { scripts: &both, ..Trap::default() };
        let mut trapped = Trapped::new(world, &trap);
        trapped.world.restart();
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let call = calls::commit(ROOT, "Which git?", &["plans/one.md"]);
        trapped.write(&turn, call, Verdict::Done);
        trapped.world.others_push("plans/two.md", "incoming\n");
        trapped.write(&turn, calls::pull(ROOT), Verdict::Done);
        trapped.write(&turn, calls::push(ROOT), Verdict::Done);
    }
}

#[test]
fn housekeeping_does_not_start() {
    // git counts loose objects in one folder of 256, so there must be some hundreds.
    let files: Vec<_> = (0..900).map(|n| (format!("many/{n}.txt"), n.to_string())).collect();
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    walk_over(&Trap {
        config: "[gc]\n\tauto = 1\n\tautoDetach = false\n[core]\n\thooksPath = hk\n",
        files: &files,
        scripts: &["hk/pre-auto-gc"],
        fires: &[&["gc", "--auto", "-q"]],
        ..Trap::default()
    });
}
