//! How long a tool takes beside the git commands that do the same, side by side in one run.
//!
//! `cargo bench -p sage-executor --bench ratios`. It prints medians and ratios and never fails a build.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::refusal::Outcome;
use protocol::service::Request;
use protocol::tool::{
    GitCommit, GitDiff, GitLog, GitShow, GitStatus, ReadFile, ToolCall, WriteFile,
};
use protocol::turn::{Origin, Turn};
use protocol::wire::Client;

const ROUNDS: usize = 31;

struct Bench {
    dir: tempfile::TempDir,
    executor: Child,
    runtime: tokio::runtime::Runtime,
    client: Client,
    calls: u64,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.executor.kill();
        let _ = self.executor.wait();
    }
}

fn git(dir: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=Owner", "-c", "user.email=owner@example.invalid"])
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("git starts");
    assert!(status.success(), "git {arguments:?}");
}

impl Bench {
    fn start(files: usize, commits: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let clone = dir.path().join("clone");
        std::fs::create_dir_all(clone.join("notes")).expect("a folder");
        git(dir.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
        git(&clone, &["init", "-q", "-b", "main"]);
        for n in 0..files {
            std::fs::write(clone.join(format!("notes/{n}.md")), format!("note {n}\n"))
                .expect("it writes");
        }
        git(&clone, &["add", "."]);
        git(&clone, &["commit", "-q", "-m", "start"]);
        for n in 0..commits {
            git(&clone, &["commit", "-q", "--allow-empty", "-m", &format!("step {n}")]);
        }
        let remote = dir.path().join("remote.git");
        git(&clone, &["remote", "add", "origin", &remote.display().to_string()]);
        git(&clone, &["push", "-q", "-u", "origin", "main"]);
        Self::serve(dir, &clone, &remote)
    }

    fn serve(dir: tempfile::TempDir, clone: &Path, remote: &Path) -> Self {
        let socket = dir.path().join("run/executor.sock");
        std::fs::create_dir(dir.path().join("run")).expect("a folder");
        let config = serde_json::json!({
            "socket": socket, "stateDir": dir.path().join("state"), "requesters": ["Owner"],
            "peers": [{"user": nix::unistd::geteuid().as_raw(), "requesters": ["Owner"]}],
            "roots": [{"name": "clone", "path": clone, "write": true, "git": {
                "branch": "main", "remote": remote, "author": "Sage <sage@example.invalid>",
                "requireReview": false}}],
        });
        let file = dir.path().join("executor.json");
        std::fs::write(&file, config.to_string()).expect("it writes");
        let executor = Command::new(env!("CARGO_BIN_EXE_sage-executor"))
            .args(["serve", "--config"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("the executor starts");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(connect(&socket));
        Self { dir, executor, runtime, client, calls: 0 }
    }

    fn clone(&self) -> PathBuf {
        self.dir.path().join("clone")
    }

    /// One call in a turn of its own.
    fn call(&mut self, call: ToolCall) -> Duration {
        self.calls += 1;
        let turn = Turn {
            id: format!("turn-{}", self.calls),
            requester: Some("Owner".to_owned()),
            origin: Origin::Cli,
        };
        let request = Request { id: "1".to_owned(), turn, call, approved: None };
        let started = Instant::now();
        let outcome = self.runtime.block_on(self.client.call(request)).expect("it answers");
        assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
        started.elapsed()
    }
}

async fn connect(socket: &Path) -> Client {
    loop {
        match Client::connect(socket).await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

/// Calls both in turn, and prints both medians and their ratio.
fn compare(
    name: &str,
    mut sage: impl FnMut(usize) -> Duration,
    mut plain: impl FnMut(usize) -> Duration,
) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        ours.push(sage(round));
        theirs.push(plain(round));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "{name:<28} sage {ours:>8.2} ms   git {theirs:>8.2} ms   ratio {:>5.2}",
        ours / theirs
    );
}

fn size(files: usize, commits: usize) {
    println!("-- {files} files, {} commits", commits + 1);
    let bench = std::cell::RefCell::new(Bench::start(files, commits));
    let clone = bench.borrow().clone();
    let root = || "clone".to_owned();
    let call = |call: ToolCall| bench.borrow_mut().call(call);
    let run = |arguments: &[&str]| timed(|| git(&clone, arguments));
    let read = || {
        ToolCall::ReadFile(ReadFile {
            root: root(),
            path: "notes/0.md".to_owned(),
            ..<_>::default()
        })
    };
    compare(
        "read_file | cat",
        |_| call(read()),
        |_| timed(|| drop(std::fs::read(clone.join("notes/0.md")))),
    );
    compare(
        "git_status",
        |_| call(ToolCall::GitStatus(GitStatus { root: root(), path: None })),
        |_| run(&["status", "--porcelain=v2", "--branch"]),
    );
    compare(
        "git_diff (stat and text)",
        |_| call(ToolCall::GitDiff(GitDiff { root: root(), ..<_>::default() })),
        |_| run(&["diff", "--numstat"]) + run(&["diff"]),
    );
    compare(
        "git_log -20",
        |_| call(ToolCall::GitLog(GitLog { root: root(), ..<_>::default() })),
        |_| run(&["log", "-20"]),
    );
    compare(
        "git_show HEAD",
        |_| {
            call(ToolCall::GitShow(GitShow {
                root: root(),
                rev: "HEAD".to_owned(),
                ..<_>::default()
            }))
        },
        |_| run(&["show", "--stat", "-p", "HEAD"]),
    );
    commit_and_push(&bench, &clone);
}

fn commit_and_push(bench: &std::cell::RefCell<Bench>, clone: &Path) {
    let write = |round: usize, who: &str| WriteFile {
        root: "clone".to_owned(),
        path: format!("notes/{who}.md"),
        text: format!("round {round}\n"),
    };
    compare(
        "git_commit (looks, pushes)",
        |round| {
            bench.borrow_mut().call(ToolCall::WriteFile(write(round, "sage")));
            bench.borrow_mut().call(ToolCall::GitCommit(GitCommit {
                root: "clone".to_owned(),
                message: format!("round {round}"),
                paths: vec!["notes/sage.md".to_owned()],
            }))
        },
        |round| {
            std::fs::write(clone.join("notes/git.md"), format!("round {round}\n"))
                .expect("it writes");
            timed(|| {
                git(clone, &["ls-remote", "origin", "refs/heads/main"]);
                git(clone, &["add", "notes/git.md"]);
                git(clone, &["commit", "-q", "-m", "round"]);
                git(clone, &["push", "-q", "origin", "main"]);
            })
        },
    );
}

fn main() {
    // `cargo test --benches` only wants to see that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    size(50, 200);
    size(5000, 20);
}
