//! Nothing outside a root is reached (C1), with the cases B01, B03 and B05, and while folders are
//! swapped for links under way.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Edited, FileList, FileText, Hits, Written};

use crate::check::comes_back;

#[test]
fn b01_a_sibling_whose_name_begins_alike_is_outside() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let evil = world.repo("strategy-evil");
    evil.write("s.txt", "OUTSIDE\n");
    world.repo("").write("strategyx", "OUTSIDE\n");
    let absolute = evil.path("s.txt");
    let absolute = absolute.to_str().expect("UTF-8");
    let before = Snapshot::of(evil.dir());
    let calls = [
        calls::read(ROOT, "../strategy-evil/s.txt"),
        calls::read(ROOT, absolute),
        calls::list(ROOT, "../strategy-evil", ""),
        calls::write(ROOT, "../strategy-evil/new.txt", "x"),
        calls::read(ROOT, world.base().join("strategyx").to_str().expect("UTF-8")),
        calls::read(ROOT, "sub/../../strategy-evil/s.txt"),
    ];
    for call in calls {
        let refusal = turn.refused_by(Code::InvalidPath, call);
        assert!(!refusal.to_string().contains("OUTSIDE"), "{refusal}");
    }
    let list: FileList = turn.reply(calls::list(ROOT, "", "../strategy-evil/*"));
    assert_eq!(list.untrusted_paths, []);
    before.assert_same(&Snapshot::of(evil.dir()), "a call");
    turn.reply::<FileText>(calls::read(ROOT, "README.md"));
}

#[test]
fn b03_links_lead_nowhere() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let (clone, out) = (world.clone_dir(), world.repo("out"));
    out.write("victim.txt", "V\n");
    symlink(out.dir(), clone.path("d")).expect("it can be made");
    symlink(out.path("created.txt"), clone.path("dangling")).expect("it can be made");
    symlink(out.path("victim.txt"), clone.path("victim")).expect("it can be made");
    symlink("plans/one.md", clone.path("inside")).expect("it can be made");
    std::fs::hard_link(out.path("victim.txt"), clone.path("hard.txt")).expect("it can be made");
    let before = Snapshot::of(out.dir());
    for path in ["d/new.txt", "d/a/b/new.txt", "d/victim.txt"] {
        turn.refused_by(Code::OutsideRoot, calls::write(ROOT, path, "x"));
        turn.refused_by(Code::OutsideRoot, calls::edit(ROOT, path, "V", "W"));
        turn.refused_by(Code::OutsideRoot, calls::read(ROOT, path));
    }
    for path in ["dangling", "victim", "inside", "d"] {
        turn.refused_by(Code::WrongFileType, calls::write(ROOT, path, "x"));
        turn.refused_by(Code::WrongFileType, calls::edit(ROOT, path, "V", "W"));
        turn.refused_by(Code::WrongFileType, calls::read(ROOT, path));
    }
    // A hard link is not written through: the path gets a file of its own.
    turn.reply::<Edited>(calls::edit(ROOT, "hard.txt", "V", "W"));
    turn.reply::<Written>(calls::write(ROOT, "hard.txt", "X"));
    before.assert_same_bytes(&Snapshot::of(out.dir()), "a write");
    assert_eq!(clone.text("hard.txt"), "X");
    assert_eq!(clone.text("plans/one.md").lines().next(), Some("# One"));
}

#[test]
fn b05_what_would_block_or_never_end_is_refused() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    nix::unistd::mkfifo(&clone.path("p"), nix::sys::stat::Mode::S_IRWXU).expect("it is ours");
    let _socket = UnixListener::bind(clone.path("s")).expect("it can be made");
    symlink("/dev/zero", clone.path("z")).expect("it can be made");
    symlink("p", clone.path("pl")).expect("it can be made");
    clone.write("a.txt", "hit\n");
    for path in ["p", "s", "z", "pl", "plans"] {
        turn.refused_by(Code::WrongFileType, calls::read(ROOT, path));
        turn.refused_by(Code::WrongFileType, calls::edit(ROOT, path, "a", "b"));
        turn.refused_by(Code::WrongFileType, calls::write(ROOT, path, "x"));
    }
    let list: FileList = turn.reply(calls::list(ROOT, "", "*"));
    let names: Vec<_> = list.untrusted_paths.iter().map(|path| path.as_str()).collect();
    assert_eq!(names, ["README.md", "a.txt"]);
    let hits: Hits = turn.reply(calls::search(ROOT, "hit", ""));
    assert_eq!(hits.untrusted_hits.len(), 1);
}

/// Swaps `folder` and `link` until it is told to stop.
fn swap(folder: &Path, link: &Path, stop: &AtomicBool) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    while !stop.load(Ordering::Relaxed) {
        renameat2(AT_FDCWD, folder, AT_FDCWD, link, RenameFlags::RENAME_EXCHANGE)
            .expect("both are there");
    }
}

#[test]
fn a_folder_that_is_swapped_for_a_link_under_way_leads_nowhere() {
    let world = World::new_plain();
    let (clone, out) = (world.clone_dir(), world.repo("out"));
    out.write("x.md", "OUTSIDE\n");
    clone.write("race/x.md", "inside\n");
    symlink(out.dir(), clone.path("link")).expect("it can be made");
    let before = Snapshot::of(out.dir());
    let stop = AtomicBool::new(false);
    let mut done = [0_u32; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&clone.path("race"), &clone.path("link"), &stop));
        let turn = world.turn("Owner");
        for n in 0..200 {
            let call = match n % 3 {
                0 => calls::write(ROOT, &format!("race/{n}.md"), "inside\n"),
                1 => calls::write(ROOT, "race/x.md", "inside\n"),
                _ => calls::read(ROOT, "race/x.md"),
            };
            match turn.call(call) {
                Outcome::Reply(reply) => {
                    done[0] += 1;
                    assert!(!format!("{reply:?}").contains("OUTSIDE"), "{reply:?}");
                }
                Outcome::Refusal(refusal) => {
                    done[1] += 1;
                    let codes = [Code::OutsideRoot, Code::NotFound, Code::WrongFileType];
                    assert!(codes.contains(&refusal.code), "{refusal}");
                }
                Outcome::Fault(fault) => panic!("{fault}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    before.assert_same(&Snapshot::of(out.dir()), "a write");
    assert!(done[0] > 0, "the race let nothing through: {done:?}");
    let turn = world.turn("Owner");
    let real = if clone.path("race").is_symlink() { "link" } else { "race" };
    turn.reply::<Written>(calls::write(ROOT, &format!("{real}/last.md"), "inside\n"));
}

#[test]
fn a_pipe_as_an_ignore_file_hangs_no_listing_and_no_search() {
    let world = World::new_plain();
    world.clone_dir().write("folder/hit.md", "hit\n");
    let pipe = world.clone_dir().path("folder/.gitignore");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("it is ours");
    for call in [calls::list(ROOT, "", "**/hit.md"), calls::search(ROOT, "^hit", "folder")] {
        let outcome = comes_back(&world, call);
        assert!(format!("{outcome:?}").contains("folder/hit.md"), "{outcome:?}");
    }
}
