//! The connector: code inside it reaches its own folder, the executor's socket and the ports of its
//! binding, and nothing else.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use harness::chat::write_private;
use harness::confine;
use harness::service::Place;
use harness::world::World;

use super::{ALLOWED, EACCES, EPERM, PROBE, expect, kernel};

#[test]
fn code_in_the_connector_reaches_its_folder_the_executor_and_discord_and_nothing_else() {
    let _ = kernel();
    let world = World::builder().build();
    let place = Place::new(world.base(), &world.socket());
    std::fs::create_dir_all(place.folder()).expect("it is ours");
    let own = place.folder().join("note");
    std::fs::write(&own, "own").expect("it is ours");
    let (token, other) = (world.base().join("git-token"), world.base().join("other-binding"));
    write_private(&token, "a token");
    std::fs::create_dir(&other).expect("it is ours");
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let other_port = nobody.local_addr().expect("bound").port();
    let rest = place.fake.rest_authority();
    let rest_port = rest.rsplit(':').next().expect("a port");

    let clone = world.clone_dir().path("README.md");
    let attempts = [
        (format!("read {}", own.display()), ALLOWED),
        (format!("write {}", own.display()), ALLOWED),
        (format!("make {}", place.folder().join("new").display()), ALLOWED),
        (format!("read {}", place.path().display()), ALLOWED),
        (format!("connect {rest_port}"), ALLOWED),
        (format!("write {}", place.path().display()), EACCES),
        (format!("read {}", world.base().join("discord-token").display()), EACCES),
        (format!("read {}", token.display()), EACCES),
        (format!("read {}", world.base().join("executor.json").display()), EACCES),
        (format!("read {}", world.audit().display()), EACCES),
        (format!("read {}", clone.display()), EACCES),
        (format!("write {}", clone.display()), EACCES),
        (format!("make {}", other.join("new").display()), EACCES),
        ("read /etc/passwd".to_owned(), EACCES),
        ("exec /bin/sh".to_owned(), EACCES),
        ("exec /usr/bin/python3".to_owned(), EACCES),
        (format!("connect {other_port}"), EACCES),
    ];
    let lines: Vec<&str> = attempts.iter().map(|(line, _)| line.as_str()).collect();
    let lines = lines.join("\n");
    // The control: outside, each of them works.
    let free = confine::attempts(&lines.replace("exec /usr/bin/python3", "exec /bin/bash"));
    assert!(free.split(' ').all(|number| number == "0"), "{free}");

    let mut probe = Command::new(PROBE)
        .args(["connector", place.path().to_str().expect("UTF-8")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = probe.stdin.take().expect("it is piped");
    stdin.write_all(lines.as_bytes()).expect("it reads");
    drop(stdin);
    let output = probe.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("it is UTF-8");
    let (numbers, rest) = said.split_once('\n').expect("two parts");
    let numbers: Vec<i32> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
    for ((line, expected), got) in attempts.iter().zip(&numbers) {
        assert_eq!(got, expected, "{line}");
    }
    expect(
        rest,
        &[
            ("the-executor", ALLOWED),
            ("udp", EPERM),
            ("listening", EACCES),
            ("environ", EACCES),
            ("user-namespace", EPERM),
        ],
    );
}
