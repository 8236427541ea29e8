//! The programs as processes: over MCP beside the reference server, memory, start-up, and how things grow.
//!
//! `cargo bench -p sage-tests --bench processes`. It prints medians and ratios, all of one run, and never
//! fails a build for a number.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use harness::calls::{self, ROOT};
use harness::footprint::resident_kib;
use harness::programs::program;
use harness::service::Place;
use harness::world::World;
use protocol::refusal::Outcome;
use protocol::reply::{FileText, Status};
use protocol::wire::Client;
use serde_json::{Value, json};

fn main() {
    over_mcp();
    memory();
    start_up();
    callers();
    files();
    journals();
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    let _kept = work();
    started.elapsed().as_secs_f64() * 1000.0
}

fn median(rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds).map(|_| timed(&mut work)).collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

fn said(name: &str, ours: f64, other: &str, theirs: f64, unit: &str) {
    let ratio = ours / theirs;
    println!("{name:<34} {ours:>10.2} {unit}   {other} {theirs:>10.2} {unit}   ratio {ratio:>6.2}");
}

/// An MCP server on its standard streams.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Server {
    fn start(program: &Path, arguments: &[String]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut server = Self { child, input, output, asked: 0 };
        server.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "bench", "version": "0"},
            }),
        );
        server.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn tell(&mut self, message: Value) {
        writeln!(self.input, "{message}").expect("it reads");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.tell(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("it is text") > 0, "it ended");
            let answer: Value = serde_json::from_str(&line).expect("it is JSON");
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) {
        let result = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(result["isError"] != true && !result.is_null(), "{tool}: {result}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn over_mcp() {
    println!("-- over MCP, beside the reference server for git (P1)");
    let install = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/install")).output();
    let install = install.expect("bash is there");
    if !install.status.success() {
        println!("not measured: {}", String::from_utf8_lossy(&install.stderr).trim());
        return;
    }
    let reference = PathBuf::from(String::from_utf8_lossy(&install.stdout).trim());
    let world = World::new_plain();
    world.clone_dir().write("plans/one.md", "another line\n");
    let clone = world.clone_dir().dir().display().to_string();
    let socket = world.socket().display().to_string();
    let word = |word: &str| word.to_owned();
    let mut ours = Server::start(
        &program("sage-executor"),
        &[word("mcp"), word("--socket"), socket, word("--as"), word("Owner")],
    );
    let mut theirs = Server::start(&reference, &[word("--repository"), clone.clone()]);
    for (tool, mine, other, its) in [
        ("git_status", json!({"root": ROOT}), "git_status", json!({"repo_path": clone})),
        ("git_diff", json!({"root": ROOT}), "git_diff_unstaged", json!({"repo_path": clone})),
        (
            "git_log",
            json!({"root": ROOT, "limit": 10}),
            "git_log",
            json!({"repo_path": clone, "max_count": 10}),
        ),
        (
            "git_show",
            json!({"root": ROOT, "rev": "HEAD"}),
            "git_show",
            json!({"repo_path": clone, "revision": "HEAD"}),
        ),
    ] {
        let a = median(31, || ours.call(tool, &mine));
        let b = median(31, || theirs.call(other, &its));
        said(tool, a, "reference", b, "ms");
    }
}

fn memory() {
    println!("-- memory (P2)");
    let world = World::builder().limit("maxCallsPerMinute", 1_000_000).build();
    world.turn("Owner").reply::<FileText>(calls::read(ROOT, "README.md"));
    let idle = resident_kib(&world);
    for _ in 0..100 {
        let turn = world.turn("Owner");
        for _ in 0..100 {
            turn.reply::<FileText>(calls::read(ROOT, "README.md"));
        }
    }
    said("executor after 10,000 calls", mib(resident_kib(&world)), "idle", mib(idle), "MiB");
    let mut place = Place::new(world.base(), &world.socket());
    place.change(|binding| binding["limits"] = json!({"turnsPerDay": 100_000}));
    let sage = place.start();
    let first = place.say("git status of strategy");
    let _ = place.answers(first);
    let idle = resident_of(sage.pid());
    for _ in 0..1000 {
        let message = place.say("git status of strategy");
        let _ = place.answers(message);
    }
    said("connector after 1,000 turns", mib(resident_of(sage.pid())), "idle", mib(idle), "MiB");
}

#[allow(clippy::cast_precision_loss)] // Memory in MiB has few digits.
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn resident_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn start_up() {
    println!("-- from start to ready (P2), beside one `git status`");
    let mut world = World::new_plain();
    let clone = world.clone_dir().dir().to_owned();
    let git = median(15, || {
        let status = Command::new("git").args(["status", "--short"]).current_dir(&clone).output();
        assert!(status.expect("git starts").status.success());
    });
    let ours = median(15, || {
        world.kill_executor();
        world.start();
    });
    said("executor", ours, "git", git, "ms");
    let place = Place::new(world.base(), &world.socket());
    let ours = median(7, || drop(place.start_supervised()));
    said("connector, connected", ours, "git", git, "ms");
}

fn callers() {
    println!("-- callers at the same time (P3): calls in a second, beside one caller");
    let world = World::builder()
        .limit("maxCallsPerMinute", 1_000_000)
        .limit("maxConnections", 128)
        .limit("maxCallsInFlight", 128)
        .build();
    let mut one = None;
    for callers in [1_u32, 4, 16, 64] {
        let rate = rate(&world.socket(), callers);
        let one = *one.get_or_insert(rate);
        said(&format!("{callers} callers"), rate, "one", one, "/s");
    }
}

fn rate(socket: &Path, callers: u32) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let each = 2048 / callers;
    let took = timed(|| {
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for caller in 0..callers {
                let socket = socket.to_owned();
                tasks.spawn(async move {
                    let client = Client::connect(&socket).await.expect("it serves");
                    for number in 0..each {
                        let request = harness::wire::request(
                            &format!("turn-{caller}-{callers}-{}", number / 50),
                            &format!("call-{number}"),
                            calls::read(ROOT, "README.md"),
                        );
                        let outcome = client.call(request).await.expect("it answers");
                        assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
                    }
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.expect("no caller breaks");
            }
        });
    });
    f64::from(each * callers) / took * 1000.0
}

fn files() {
    println!("-- files (P3), beside git and grep");
    for count in [100, 10_000, 100_000] {
        let world = World::new_plain();
        let clone = world.clone_dir();
        for number in 0..count {
            clone.write(format!("many/{}/{number}.md", number / 500), "some text\n");
        }
        clone.git(&["add", "--all"]);
        clone.git(&["commit", "--quiet", "--message", "Many"]);
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(clone.dir()).output();
            assert!(output.expect("it starts").status.success());
        };
        let turn = world.turn("Owner");
        let rounds = if count > 50_000 { 3 } else { 9 };
        let ours = median(rounds, || drop(turn.reply::<Status>(calls::status(ROOT, ""))));
        let theirs = median(rounds, || run("git", &["status", "--porcelain=v2", "--branch"]));
        said(&format!("git_status, {count} files"), ours, "git", theirs, "ms");
        let ours = median(rounds, || drop(turn.call(calls::search(ROOT, "second", ""))));
        let theirs = median(rounds, || run("grep", &["-r", "--exclude-dir=.git", "second", "."]));
        said(&format!("search_files, {count} files"), ours, "grep", theirs, "ms");
    }
}

/// A file with these lines so many times more, under other ids, as an earlier life could have left it.
fn grow(file: &Path, times: usize, key: &str) {
    let text = std::fs::read_to_string(file).expect("it is there");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let mut more = text.clone();
    for number in 0..times {
        for line in &lines {
            let mut line = line.clone();
            let id = line[key].as_str().expect("it has an id");
            line[key] = json!(format!("{}{id}", number + 1));
            more.push_str(&format!("{line}\n"));
        }
    }
    std::fs::write(file, more).expect("it can be written");
}

fn journals() {
    println!("-- a connector's journal (P3): from start to ready, beside a short one");
    let mut short = None;
    for lines in [0_usize, 10_000, 100_000, 1_000_000] {
        let world = World::new_plain();
        let place = Place::new(world.base(), &world.socket());
        let sage = place.start();
        let stranger = place.fake.user("Stranger");
        place.fake.post(place.channel, stranger, "Hello?");
        let message = place.say("git status of strategy");
        let _ = place.answers(message);
        harness::service::until("it is settled", || {
            place.outbox(&format!("{message}-1")).len() == 2
        });
        drop(sage);
        // One line, and three: an intent, and two results.
        grow(&place.folder().join("drops.jsonl"), lines / 2, "id");
        grow(&place.folder().join("outbox.jsonl"), lines / 6, "nonce");
        let took = median(3, || drop(place.start_supervised()));
        let short = *short.get_or_insert(took);
        said(&format!("{lines} lines more"), took, "short", short, "ms");
    }
}
