//! The token's file: what the executor refuses to start with, and what it takes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use harness::https::world::{Setup, TokenKind, World};
use protocol::refusal::Code;
use protocol::reply::PushState;

use super::{committed, gits, pushed, refused};

fn any_git() -> std::path::PathBuf {
    gits().remove(0)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Spoils the token file; the executor must not start, and must say which file and this.
fn does_not_start(spoil: impl FnOnce(&Path, &World), fix: &str) {
    let mut world = Setup::new(&any_git()).start().expect("it starts with a good file");
    assert_eq!(pushed(world.push()).commits, 0);
    world.stop().expect("it ends");
    let token = world.token_file();
    spoil(&token, &world);
    let said = world.start().expect_err("it must not start").to_string();
    assert!(said.contains("exit status: 2"), "{said}");
    assert!(said.contains(token.to_str().expect("UTF-8")), "the file is named: {said}");
    assert!(said.contains(fix), "{said}");
    assert_eq!(world.marker.find(said.as_bytes()), None);
}

#[test]
fn a_token_file_that_others_can_read_is_refused_at_start() {
    for mode in [0o644, 0o640, 0o604, 0o660, 0o700] {
        does_not_start(|token, _| chmod(token, mode), "run `chmod 0600 ");
    }
}

#[test]
fn a_token_file_of_another_user_is_refused_at_start() {
    if !nix::unistd::geteuid().is_root() {
        panic!("this test gives a file to another user, which needs root");
    }
    let nobody = Some(nix::unistd::Uid::from_raw(65534));
    does_not_start(
        |token, _| nix::unistd::chown(token, nobody, None).expect("chown"),
        "belongs to another user; run `chown 0 ",
    );
}

#[test]
fn a_link_or_a_folder_in_place_of_the_token_file_is_refused_at_start() {
    let fix = "is not a regular file; name the file itself, not a link to it";
    does_not_start(
        |token, world| {
            let real = world.folder().join("real");
            fs::rename(token, &real).expect("it moves");
            symlink(&real, token).expect("a link");
        },
        fix,
    );
    does_not_start(
        |token, _| {
            fs::remove_file(token).expect("it goes");
            fs::create_dir(token).expect("a folder");
        },
        fix,
    );
}

#[test]
fn a_token_file_that_is_missing_is_refused_at_start() {
    does_not_start(|token, _| fs::remove_file(token).expect("it goes"), "No such file");
}

#[test]
fn a_credential_of_systemd_is_taken_though_its_group_bits_are_set() {
    let setup = Setup { token: TokenKind::Credential, ..Setup::new(&any_git()) };
    let mut world = setup.start().expect("a credential is accepted");
    let done = committed(world.commit("a.md", b"one\n"));
    assert_eq!((done.push, world.remote_head()), (PushState::Pushed, done.hash));
}

#[test]
fn the_same_file_is_refused_when_systemd_does_not_vouch_for_it() {
    let setup = Setup { token: TokenKind::UnannouncedCredential, ..Setup::new(&any_git()) };
    let mut world = setup.build().expect("a world");
    let said = world.start().expect_err("it must not start").to_string();
    assert!(said.contains("run `chmod 0600 "), "{said}");
}

#[test]
fn a_credential_that_others_can_read_or_change_is_refused_at_start() {
    for mode in [0o444, 0o460, 0o600 | 0o004] {
        let setup = Setup { token: TokenKind::Credential, ..Setup::new(&any_git()) };
        let mut world = setup.build().expect("a world");
        chmod(&world.token_file(), mode);
        let said = world.start().expect_err("it must not start").to_string();
        assert!(said.contains("can be changed or read by others"), "{mode:o}: {said}");
    }
}

#[test]
fn a_token_file_that_becomes_a_link_later_is_not_followed() {
    let mut world = Setup::new(&any_git()).start().expect("a world starts");
    let (token, real) = (world.token_file(), world.folder().join("real"));
    fs::rename(&token, &real).expect("it moves");
    symlink(&real, &token).expect("a link");
    refused(world.push(), Code::AuthFailed);
    assert!(world.server.seen().iter().all(|seen| seen.authorization.is_none()));
}

#[test]
fn a_new_token_written_into_the_file_is_used_and_a_new_file_only_after_a_restart() {
    let setup = Setup { wrong_token: Some("out-of-date".to_owned()), ..Setup::new(&any_git()) };
    let mut world = setup.start().expect("a world starts");
    refused(world.push(), Code::AuthFailed);
    fs::write(world.token_file(), world.marker.token()).expect("the file is ours");
    assert_eq!(pushed(world.push()).commits, 0);
    // The authority is bound to the file, not to its name.
    let replacement = world.folder().join("replacement");
    fs::copy(world.token_file(), &replacement).expect("a copy");
    fs::rename(&replacement, world.token_file()).expect("it moves");
    let refusal = refused(world.push(), Code::AuthFailed);
    assert!(refusal.message.contains("Permission denied"), "{refusal}");
    world.start().expect("it starts again");
    assert_eq!(pushed(world.push()).commits, 0);
}
