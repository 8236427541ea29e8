//! A real instance: Debian's searx, with one engine that asks nobody. `tests/run` installs it; without
//! it this fails.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::calls::web_search;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Reply, SearchResults};
use serde_json::json;
use tempfile::TempDir;

const PROGRAM: &str = "/usr/bin/searx-run";
/// The package's own settings, of which everything but the engines is taken.
const EXAMPLE: &str = "/usr/share/doc/searx/examples/settings.yml";
/// It is Python on what may be a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Instance {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Instance {
    fn start() -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is not there; `tests/run` installs Debian's searx"
        );
        let folder = tempfile::Builder::new().prefix("sage-searx-").tempdir().expect("a folder");
        // Free a moment ago; whoever takes it meanwhile fails this test, and no other.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let hits = folder.path().join("hits");
        fs::write(
            &hits,
            "https://a.example/one|First <b>hit</b>|about apples &amp; pears\nhttps://b.example/two|Second|about pears\n",
        )
        .expect("a file can be written");
        let settings = folder.path().join("settings.yml");
        fs::write(&settings, self::settings(port, &hits)).expect("a file can be written");
        let log = fs::File::create(folder.path().join("log")).expect("a file can be made");
        let mut process = Command::new("/usr/bin/python3")
            .arg(PROGRAM)
            .env_clear()
            .env("SEARX_SETTINGS_PATH", &settings)
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = process.try_wait().expect("it is our child");
            let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "searx does not serve: {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { process, port, _folder: folder }
    }
}

fn settings(port: u16, hits: &Path) -> String {
    let example = fs::read_to_string(EXAMPLE).expect("the package has an example");
    let (mut before, _) = {
        let (before, after) = example.split_once("\nengines:\n").expect("it lists engines");
        (before.to_owned(), after)
    };
    before = before.replace("port : 8888", &format!("port : {port}"));
    before = before.replace("ultrasecretkey", "a key that signs nothing of worth");
    assert!(before.contains(&format!("port : {port}")), "the example has changed");
    let engine = json!({
        "name": "words", "engine": "command", "command": ["cat", hits], "shortcut": "w", "timeout": 10,
        "categories": "general", "disabled": false, "delimiter": {"chars": "|", "keys": ["url", "title", "content"]},
    });
    // JSON is YAML.
    format!(
        "{before}\nengines: [{engine}]\nlocales: {{en: English}}\n\
         doi_resolvers: {{none: 'https://doi.invalid/'}}\ndefault_doi_resolver: none\n"
    )
}

#[test]
fn a_real_instance_is_searched() {
    let instance = Instance::start();
    let searxng = format!("http://127.0.0.1:{}", instance.port);
    let world = World::builder().web(json!({"searxng": searxng})).build();
    let turn = world.turn("Owner");
    let deadline = Instant::now() + PATIENCE;
    // It accepts connections before it can answer them.
    let found: SearchResults = loop {
        match turn.call(web_search("pears")) {
            Outcome::Reply(Reply::Found(found)) => break found,
            Outcome::Refusal(no)
                if matches!(no.code, Code::SearchUnavailable | Code::TimedOut)
                    && Instant::now() < deadline => {}
            other => panic!("{other:?}"),
        }
    };
    let shown: Vec<_> = found
        .untrusted_results
        .iter()
        .map(|hit| (hit.url.as_str(), hit.title.as_str(), hit.snippet.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("https://a.example/one", "First hit", "about apples & pears"),
            ("https://b.example/two", "Second", "about pears"),
        ]
    );
}
