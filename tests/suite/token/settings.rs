//! Settings of the repository that touch https (facts of hostile configuration): each is shown to
//! work in plain git, and through Sage the verb that would heed it is refused by its name, while what
//! only looks goes on. The token stays in its file.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use harness::https::authority::Leaf;
use harness::https::world::{ROOT, Setup, World};
use protocol::refusal::{Code, Outcome};
use serde_json::json;

use super::{committed, gits, refused};

/// Plain git in a copy of the clone that has these settings, with the token at hand.
fn plainly(world: &World, settings: &[(&str, &str)], arguments: &[&str]) -> Output {
    let copy = world.folder().join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).expect("it is ours");
    let git_dir = copy.join(".git");
    let cloned = world.clone_path().join(".git");
    let copied = std::process::Command::new("cp").arg("-a").arg(cloned).arg(&git_dir).status();
    assert!(copied.expect("cp runs").success());
    set(world, &copy, settings);
    let askpass = world.folder().join("askpass");
    let script = format!("#!/bin/sh\nexec cat '{}'\n", world.token_file().display());
    fs::write(&askpass, script).expect("it writes");
    fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).expect("chmod");
    let place = copy.to_str().expect("UTF-8");
    let always = ["-C", place, "-c", "credential.username=x"];
    let arguments = [&always[..], arguments].concat();
    world.plain_git(&arguments).env("GIT_ASKPASS", &askpass).output().expect("git runs")
}

fn set(world: &World, repository: &Path, settings: &[(&str, &str)]) {
    for (key, value) in settings {
        let repository = repository.to_str().expect("UTF-8");
        world.git(&["-C", repository, "config", "--add", key, value]).expect("it is set");
    }
}

/// With the settings in the clone, what would heed them is refused by the key, nothing is sent
/// anywhere, and looking goes on. Without them everything works.
fn refused_by_name(world: &mut World, settings: &[(&str, &str)]) {
    let config = world.clone_path().join(".git/config");
    let before = fs::read(&config).expect("it is there");
    let key = settings[0].0.to_lowercase();
    set(world, &world.clone_path(), settings);
    let (head, remote, opened) =
        (world.head(), world.remote_head(), world.server.connections().opened);
    for outcome in [world.commit("trapped.md", b"x\n"), world.pull(), world.push()] {
        let refusal = refused(outcome, Code::HostileConfig);
        assert!(refusal.message.to_lowercase().contains(&key), "{key}: {refusal}");
    }
    for look in ["git_status", "git_log", "git_diff", "git_branches"] {
        let outcome = world.call(look, json!({"root": ROOT}));
        assert!(matches!(outcome, Outcome::Reply(_)), "{look}: {outcome:?}");
    }
    assert_eq!((world.head(), world.remote_head()), (head, remote));
    assert_eq!(world.server.connections().opened, opened, "{key}: nobody was talked to");
    fs::write(&config, before).expect("it is ours");
}

fn works(world: &mut World) {
    let done = committed(world.commit("good.md", b"good\n"));
    assert_eq!(world.remote_head(), done.hash);
}

/// Somewhere that the settings may send git to. It answers nothing.
struct Elsewhere {
    listener: TcpListener,
}

impl Elsewhere {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), 0)).expect("loopback");
        listener.set_nonblocking(true).expect("a socket");
        Self { listener }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().expect("bound"))
    }

    /// What came first from whoever connects while `doing` runs; empty when nobody does.
    fn heard(&self, doing: impl FnOnce() + Send) -> String {
        std::thread::scope(|scope| {
            let done = scope.spawn(doing);
            let mut heard = String::new();
            let limit = Instant::now() + Duration::from_secs(60);
            loop {
                if let Ok((mut stream, _)) = self.listener.accept() {
                    stream.set_nonblocking(false).expect("a socket");
                    let mut bytes = [0; 4096];
                    let read = stream.read(&mut bytes).unwrap_or(0);
                    heard.push_str(&String::from_utf8_lossy(&bytes[..read]));
                } else if done.is_finished() {
                    return heard;
                }
                assert!(Instant::now() < limit, "git does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    }
}

#[test]
fn a_repository_cannot_switch_off_the_check_of_the_servers_certificate() {
    for git in gits() {
        for leaf in [Leaf::Expired, Leaf::OtherHost] {
            let mut world = Setup { leaf, ..Setup::new(&git) }.start().expect("a world starts");
            let look = ["ls-remote", "origin"];
            assert!(!plainly(&world, &[], &look).status.success(), "the certificate is bad");
            let by_url = format!("http.{}.sslVerify", world.url());
            for key in ["http.sslVerify", by_url.as_str()] {
                let settings = [(key, "false")];
                assert!(plainly(&world, &settings, &look).status.success(), "the trap fires");
                let brought = world.server.seen();
                assert!(brought.iter().any(|seen| seen.authorization.is_some()), "{brought:?}");
                world.server.forget();
                refused_by_name(&mut world, &settings);
                assert!(world.server.seen().is_empty(), "{:?}", world.server.seen());
            }
            // Without the setting the certificate is still what it is.
            refused(world.push(), Code::RemoteUnreachable);
        }
    }
}

#[test]
fn a_repository_cannot_put_a_proxy_in_between() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let elsewhere = Elsewhere::new();
        let proxy = elsewhere.url();
        let by_url = format!("http.{}.proxy", world.url());
        for key in ["http.proxy", by_url.as_str(), "remote.origin.proxy"] {
            let settings = [(key, proxy.as_str())];
            let heard = elsewhere.heard(|| {
                plainly(&world, &settings, &["ls-remote", "origin"]);
            });
            assert!(heard.starts_with("CONNECT localhost:"), "{key}: the trap fires: {heard:?}");
            let heard = elsewhere.heard(|| {});
            assert_eq!(heard, "", "nobody is left");
            refused_by_name(&mut world, &settings);
            assert_eq!(elsewhere.heard(|| {}), "", "nobody connected");
        }
        works(&mut world);
        assert_eq!(elsewhere.heard(|| {}), "", "nobody connected");
    }
}

#[test]
fn a_repository_cannot_add_a_header() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let by_url = format!("http.{}.extraHeader", world.url());
        for key in ["http.extraHeader", by_url.as_str()] {
            let settings = [(key, "Authorization: Basic cGxhbnRlZA==")];
            plainly(&world, &settings, &["ls-remote", "origin"]);
            let planted = |world: &World| {
                let seen = world.server.seen();
                seen.iter().any(|s| s.authorization.as_deref() == Some("Basic cGxhbnRlZA=="))
            };
            assert!(planted(&world), "{key}: the trap fires: {:?}", world.server.seen());
            world.server.forget();
            refused_by_name(&mut world, &settings);
            assert!(world.server.seen().is_empty(), "{:?}", world.server.seen());
        }
        works(&mut world);
    }
}

#[test]
fn a_repository_cannot_have_cookies_written_over_a_file() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let jar: PathBuf = world.folder().join("jar");
        let cookie = "localhost\tFALSE\t/\tTRUE\t4102444800\tname\tvalue\n";
        let by_url = format!("http.{}.saveCookies", world.url());
        for save in ["http.saveCookies", by_url.as_str()] {
            let path = jar.to_str().expect("UTF-8");
            let settings = [("http.cookieFile", path), (save, "true")];
            fs::write(&jar, cookie).expect("it is ours");
            plainly(&world, &settings, &["ls-remote", "origin"]);
            let rewritten = fs::read_to_string(&jar).expect("it is there");
            assert_ne!(rewritten, cookie, "{save}: the trap fires");
            fs::write(&jar, cookie).expect("it is ours");
            refused_by_name(&mut world, &settings);
            let kept = fs::read_to_string(&jar).expect("it is there");
            assert_eq!(kept, cookie, "{save}: nothing was written");
        }
        works(&mut world);
    }
}

#[test]
fn a_repository_cannot_send_a_fetch_elsewhere_for_a_bundle() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let elsewhere = Elsewhere::new();
        let bundle = format!("{}/bundle", elsewhere.url());
        let settings = [("fetch.bundleURI", bundle.as_str())];
        world.commit_elsewhere("incoming.md").expect("somebody else pushes");
        let heard = elsewhere.heard(|| {
            plainly(&world, &settings, &["fetch", "origin"]);
        });
        // git knows the key from 2.40 on; an older one must not be led either.
        let fires = harness::git::version(&git) >= (2, 40);
        assert_eq!(heard.starts_with("GET /bundle"), fires, "{git:?}: {heard:?}");
        refused_by_name(&mut world, &settings);
        assert_eq!(elsewhere.heard(|| {}), "", "nobody connected");
        super::pulled(world.pull());
        assert_eq!(world.head(), world.remote_head());
    }
}
