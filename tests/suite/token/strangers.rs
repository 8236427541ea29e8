//! A remote that points somewhere else: the token goes nowhere.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use harness::https::authority::Leaf;
use harness::https::backend::Backend;
use harness::https::server::{Answer, Server};
use harness::https::world::{Setup, World};
use protocol::refusal::Code;

use super::{committed, gits, push_failed, pushed, refused};

/// Another server on the same port of another address, so that no port rule can be what helps, with
/// a certificate that is good.
fn stranger(world: &World, git: &Path) -> (Server, String) {
    let backend = Backend::new(git, &world.folder().join("server")).expect("git serves");
    let tls = world.authority.serve(Leaf::Good).expect("a certificate");
    let (ip, port) = (Ipv4Addr::new(127, 0, 0, 2), world.server.port());
    let server = Server::start(ip, port, tls, backend, world.marker.token());
    (server.expect("the port is free there too"), format!("127.0.0.2:{port}"))
}

/// Plain git that follows redirects and hands the token to whoever asks. Whether it got through.
fn careless_git(world: &World) -> bool {
    let askpass = world.folder().join("askpass");
    let script = format!("#!/bin/sh\nexec cat '{}'\n", world.token_file().display());
    fs::write(&askpass, script).expect("it writes");
    fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).expect("chmod");
    let settings = ["-c", "http.followRedirects=true", "-c", "credential.username=x"];
    let url = world.url();
    let arguments = [&settings[..], &["ls-remote", &url]].concat();
    let mut git = world.plain_git(&arguments);
    git.env("GIT_ASKPASS", &askpass).output().expect("git runs").status.success()
}

/// The traps fire in plain git: one way it brings the token, the other way it only comes by.
fn plain_git_is_led_astray(world: &World, stranger: &Server, origin: &str) {
    world.server.answer(Answer::Redirect(origin.to_owned()));
    assert!(careless_git(world));
    let brought = stranger.seen().iter().any(|seen| seen.authorization.is_some());
    assert!(brought, "the stranger got the token: {:?}", stranger.seen());
    stranger.forget();
    world.server.answer(Answer::RedirectBehindToken(origin.to_owned()));
    careless_git(world);
    assert!(!stranger.seen().is_empty(), "the stranger was asked");
    stranger.forget();
}

#[test]
fn a_redirect_to_another_host_is_refused_and_the_other_host_never_hears_of_it() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        assert_eq!(pushed(world.push()).commits, 0);
        let (stranger, authority) = stranger(&world, &git);
        let origin = format!("https://{authority}");
        plain_git_is_led_astray(&world, &stranger, &origin);

        let before = stranger.connections().opened;
        for answer in [
            Answer::Redirect(origin.clone()),
            Answer::RedirectBehindToken(origin),
            Answer::Redirect(format!("http://{authority}")),
        ] {
            world.server.answer(answer);
            let refusal = refused(world.push(), Code::RemoteUnreachable);
            assert!(refusal.message.contains("302"), "{refusal}");
            refused(world.pull(), Code::RemoteUnreachable);
        }
        let done = committed(world.commit("a.md", b"one\n"));
        push_failed(&done, Code::RemoteUnreachable);
        assert_eq!(stranger.connections().opened, before, "nobody connected");
        assert!(stranger.seen().is_empty(), "{:?}", stranger.seen());
        assert_eq!(stranger.faults(), [""; 0]);
    }
}
