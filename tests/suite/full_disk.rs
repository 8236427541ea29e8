//! A disk that is full: the clone is as before, and goes on once there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::Outcome;
use protocol::tool::ToolCall;

use crate::check::{self, commit_works};

/// A small file system of memory over a folder, with what the folder held. Gone with the value.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn over(folder: &Path) -> Self {
        let aside = folder.with_extension("aside");
        run("cp", &["-a".as_ref(), folder.as_os_str(), aside.as_os_str()]);
        let options = ["-t", "tmpfs", "-o", "size=2m", "small"].map(std::ffi::OsStr::new);
        run("mount", &[&options[..], &[folder.as_os_str()]].concat());
        let disk = Self(folder.to_path_buf());
        let content = aside.join(".");
        run("cp", &["-a".as_ref(), content.as_os_str(), folder.as_os_str()]);
        std::fs::remove_dir_all(aside).expect("it is ours");
        disk
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let written = std::fs::write(&filler, vec![b'x'; 4 << 20]);
        assert_eq!(written.map_err(|error| error.kind()), Err(std::io::ErrorKind::StorageFull));
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l".as_ref(), self.0.as_os_str()]);
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let status = Command::new(program).args(arguments).status().expect("it starts");
    assert!(status.success(), "{program} {arguments:?}; mounting needs root");
}

/// Makes a call that cannot be done for want of room, and does it once there is some.
fn cannot_be_done_until_there_is_room(world: &World, disk: &SmallDisk, call: ToolCall) {
    let filler = disk.fill();
    let before = Snapshot::of_clone(world.clone_dir().dir());
    let outcome = world.turn("Owner").call(call.clone());
    assert!(matches!(outcome, Outcome::Fault(_)), "{call:?}: {outcome:?}");
    before.assert_same_bytes(&Snapshot::of_clone(world.clone_dir().dir()), "on a full disk");
    std::fs::remove_file(filler).expect("it is ours");
    check::sound(world);
    let outcome = world.turn("Owner").call(call.clone());
    assert!(matches!(outcome, Outcome::Reply(_)), "{call:?}: {outcome:?}");
}

#[test]
fn on_a_full_disk_the_clone_is_as_before() {
    let mut world = World::new_plain();
    world.kill_executor();
    let disk = SmallDisk::over(&world.clone_dir().path(".git"));
    world.start();
    commit_works(&world, &world.turn("Owner"), "plans/two.md");
    world.clone_dir().write("plans/one.md", "changed\n");
    let commit = calls::commit(ROOT, "It needs room", &["plans/one.md"]);
    cannot_be_done_until_there_is_room(&world, &disk, commit);
    world.others_push("incoming.md", &"incoming\n".repeat(100));
    cannot_be_done_until_there_is_room(&world, &disk, calls::pull(ROOT));
    check::sound(&world);
}
