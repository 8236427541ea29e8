//! A repository in which the lock folder or the registry is a link that leads elsewhere, and whose
//! committed lock tool would follow it.

use std::os::unix::fs::symlink;

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Outcome;
use protocol::reply::{Reserved, Written};

use super::{LOCK_TOOL, REGISTRY, python, vault_like};

/// A world whose lock tool writes to a path, whatever it is asked.
fn world_that_writes(path: &str) -> World {
    let tool =
        format!("with open('{path}', 'a') as f:\n    f.write('was here')\nprint('DEC-0003')\n");
    let world = vault_like(World::builder().notes(), &[(LOCK_TOOL, &tool)]).build();
    std::fs::write(world.base().join("notes/private.md"), "private\n").expect("it can be written");
    world
}

/// Puts a link in place of something, as a commit of somebody's would.
fn link(world: &World, path: &str, to: &str) {
    let at = world.clone_dir().path(path);
    let _ = std::fs::remove_file(&at);
    symlink(world.base().join(to), at).expect("a link");
    world.git(&["add", "--force", path]);
    world.git(&["commit", "-q", "-m", "A link"]);
}

/// Makes both calls that may write, none of which may leave the root.
fn stays_inside(world: &World, left_at: &str) {
    let before = std::fs::read(world.base().join("notes/private.md")).expect("it is there");
    for call in [calls::reserve(ROOT, "A title"), calls::write(ROOT, "plans/one.md", "x")] {
        let shown = format!("{call:?}");
        let outcome = world.turn("Owner").call(call);
        assert!(!world.base().join(left_at).exists(), "{shown} wrote outside: {outcome:?}");
        let now = std::fs::read(world.base().join("notes/private.md")).expect("it is there");
        assert_eq!(now, before, "{shown} wrote outside: {outcome:?}");
        assert!(!matches!(outcome, Outcome::Reply(_)), "{shown}: {outcome:?}");
        eprintln!("PROBE {outcome:?}");
    }
}

#[test]
fn a_lock_folder_that_leads_outside_the_root_is_not_followed() {
    let world = world_that_writes(".vault-locks/left");
    world.turn("Owner").reply::<Reserved>(calls::reserve(ROOT, "A title"));
    world.turn("Owner").reply::<Written>(calls::write(ROOT, "plans/one.md", "x"));
    std::fs::remove_dir_all(world.clone_dir().path(".vault-locks")).expect("it is ours");
    link(&world, ".vault-locks", "notes");
    stays_inside(&world, "notes/left");
    python(world.clone_dir().dir(), "x", &[LOCK_TOOL]).output().expect("python3 starts");
    assert!(world.base().join("notes/left").exists(), "a person would have followed it");
}

#[test]
fn a_registry_that_leads_outside_the_root_is_not_followed() {
    let world = world_that_writes(REGISTRY);
    world.turn("Owner").reply::<Reserved>(calls::reserve(ROOT, "A title"));
    link(&world, REGISTRY, "notes/private.md");
    stays_inside(&world, "notes/left");
    python(world.clone_dir().dir(), "x", &[LOCK_TOOL]).output().expect("python3 starts");
    let text = std::fs::read_to_string(world.base().join("notes/private.md")).expect("it is there");
    assert!(text.contains("was here"), "a person would have followed it");
}
