//! What code that runs in pi's place can reach (A5, issue 6 point 4): nothing but its model, its own
//! folders and the one socket. Each attempt succeeds in a process that nothing confines.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use harness::chat::write_private;
use harness::pi::{self, Home, Tools, answered};
use serde_json::{Value, json};

fn expect(found: &HashMap<String, String>, expected: &[(&str, &str)]) {
    let mut left: Vec<&String> = found.keys().collect();
    for (name, code) in expected {
        assert_eq!(found.get(*name).map(String::as_str), Some(*code), "{name} of {found:#?}");
        left.retain(|key| key != name);
    }
    assert!(left.is_empty(), "nobody said what to expect of {left:?}");
}

/// Everything that an operator would not want pi to see, and a port that it may reach.
struct Prize {
    world: Value,
    port: u16,
    victim: std::process::Child,
    _listeners: (TcpListener, TcpListener, UnixListener, UnixListener),
}

impl Drop for Prize {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn prize(home: &Home) -> Prize {
    for secret in ["binding.json", "discord.token", "git.token", "executor.json", "data/sage/inbox"]
    {
        write_private(&home.path(secret), "a secret");
    }
    for folder in ["data/sage/turns", "repository"] {
        fs::create_dir_all(home.path(folder)).expect("a folder");
    }
    let listen = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        (listener, port)
    };
    let ((granted, port), (other, other_port)) = (listen(), listen());
    let executor = UnixListener::bind(home.path("executor.sock")).expect("a socket");
    let word = format!("sage-test-{port}");
    let name =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            &word,
        );
    let abstracted = UnixListener::bind_addr(&name.expect("a name")).expect("a socket");
    let victim = Command::new("/bin/sleep").arg("1000").stdin(Stdio::null()).spawn();
    let victim = victim.expect("a process");
    let pi = home.data().join("pi");
    let world = json!({
        "read": {
            "binding": home.path("binding.json"),
            "discord token": home.path("discord.token"),
            "git token": home.path("git.token"),
            "executor configuration": home.path("executor.json"),
            "inbox": home.path("data/sage/inbox"),
            "key file": home.path("model.key"),
            "passwords": "/etc/passwd",
            "own environment": "/proc/self/environ",
            "environment of another": format!("/proc/{}/environ", victim.id()),
            "memory of another": format!("/proc/{}/maps", victim.id()),
            "its system prompt": pi.join("given/system.md"),
        },
        "list": {
            "binding folder": home.data(),
            "turns": home.data().join("turns"),
            "repository": home.path("repository"),
            "home": home.path(""),
            "processes": "/proc",
        },
        "write": {
            "binding": home.path("binding.json"),
            "inbox": home.path("data/sage/inbox"),
            "extension": pi.join("given/extension.mjs"),
            "pi": home.path("fake/cli.mjs"),
            "settings": pi.join("agent/settings.json"),
        },
        "make": {
            "turns": home.data().join("turns"),
            "given": pi.join("given"),
            "work": pi.join("work"),
            "install": home.path("fake"),
            "sessions": pi.join("sessions/terminal"),
        },
        "link": {"sessions": pi.join("sessions/terminal")},
        "exec": {"shell": "/bin/sh", "true": "/bin/true"},
        "unix": {"executor": home.path("executor.sock"), "abstract": format!("\0{word}")},
        "tcp": {"granted": port, "other": other_port},
        "mode": {"discord token": home.path("discord.token")},
        "time": {"discord token": home.path("discord.token")},
        "signal": {"another": victim.id()},
    });
    Prize { world, port, victim, _listeners: (granted, other, executor, abstracted) }
}

#[tokio::test]
async fn code_in_pis_place_reaches_its_model_and_its_own_folders_and_nothing_else() {
    let home = Home::new();
    let prize = prize(&home);
    let mut section = home.fake();
    section["connectPorts"] = json!([prize.port]);
    let mut engine = home.engine(section);
    let attack = format!("attack {}", prize.world);
    let text = answered(&mut engine, &mut Tools::none(), &attack).await;
    expect(
        &pi::results(&text),
        &[
            ("read binding", "EACCES"),
            ("read discord token", "EACCES"),
            ("read git token", "EACCES"),
            ("read executor configuration", "EACCES"),
            ("read inbox", "EACCES"),
            ("read key file", "EACCES"),
            ("read passwords", "EACCES"),
            ("read own environment", "EACCES"),
            ("read environment of another", "EACCES"),
            ("read memory of another", "EACCES"),
            ("read its system prompt", "done"),
            ("list binding folder", "EACCES"),
            ("list turns", "EACCES"),
            ("list repository", "EACCES"),
            ("list home", "EACCES"),
            ("list processes", "EACCES"),
            ("write binding", "EACCES"),
            ("write inbox", "EACCES"),
            ("write extension", "EACCES"),
            ("write pi", "EACCES"),
            ("write settings", "done"),
            ("make turns", "EACCES"),
            ("make given", "EACCES"),
            ("make work", "EACCES"),
            ("make install", "EACCES"),
            ("make sessions", "done"),
            ("link sessions", "EACCES"),
            ("pipe sessions", "EPERM"),
            ("exec shell", "EPERM"),
            ("exec true", "EPERM"),
            ("exec node", "EPERM"),
            ("unix executor", "EPERM"),
            ("unix abstract", "EPERM"),
            ("tcp granted", "done"),
            ("tcp other", "EACCES"),
            ("tcp listen", "EPERM"),
            ("udp", "EPERM"),
            ("mode discord token", "EPERM"),
            ("time discord token", "Error: nothing changed"),
            ("signal another", "EPERM"),
            ("thread", "done"),
        ],
    );
    // The control: a process that nothing confines does all of it. What it makes goes with the folder.
    let free = home.attack_unconfined(&prize.world);
    let refused: Vec<_> = free.iter().filter(|(_, code)| *code != "done").collect();
    assert!(refused.is_empty(), "nothing but the confinement refuses these: {refused:?}");
    assert_eq!(free.len(), 41);
}

#[tokio::test]
async fn pi_has_no_privilege_and_no_descriptor_but_its_streams_and_its_socket() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let pid = answered(&mut engine, &mut Tools::none(), "pid").await;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    for line in
        ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
    {
        assert!(status.contains(line), "{line} of {status}");
    }
    // What node opened by itself is its own: event loops and /dev/null. Files and sockets of ours are
    // what must not be there.
    let base = home.path("").display().to_string();
    let (mut sockets, mut files) = (0, Vec::new());
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives") {
        let Ok(target) = fs::read_link(entry.expect("an entry").path()) else { continue };
        let target = target.display().to_string();
        sockets += usize::from(target.starts_with("socket:"));
        if target.starts_with(&base) {
            files.push(target);
        }
    }
    assert_eq!((sockets, files), (1, Vec::<String>::new()));
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).expect("it lives");
    assert!(!String::from_utf8_lossy(&cmdline).contains(pi::KEY));
}
