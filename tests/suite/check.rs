//! What several themes say in the same words.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{Committed, PushState};
use protocol::tool::ToolCall;

/// A call is refused by exactly this rule, and the clone is as before: work tree, index, refs, logs.
pub(crate) fn refused_and_unchanged(
    world: &World,
    turn: &Turn<'_>,
    code: Code,
    call: ToolCall,
) -> Refusal {
    let before = Snapshot::of_clone(world.clone_dir().dir());
    let remote = Snapshot::of(&world.base().join("remote.git"));
    let what = format!("{call:?}");
    let refusal = turn.refused_by(code, call);
    before.assert_same(&Snapshot::of_clone(world.clone_dir().dir()), &what);
    remote.assert_same(&Snapshot::of(&world.base().join("remote.git")), &what);
    refusal
}

/// A change of a file is committed and pushed: the positive control of every fence.
pub(crate) fn commit_works(world: &World, turn: &Turn<'_>, path: &str) -> Committed {
    let before = world.clone_dir().path(path);
    let text = std::fs::read_to_string(before).unwrap_or_default();
    world.clone_dir().write(path, format!("{text}one more line\n"));
    let done: Committed = turn.reply(calls::commit(ROOT, "One more line", &[path]));
    assert_eq!(done.push, PushState::Pushed);
    assert_eq!(world.clone_dir().head(), done.hash);
    assert_eq!(world.remote_head(), done.hash);
    done
}

/// The clone is sound and holds nothing of ours that should have gone.
pub(crate) fn sound(world: &World) {
    let clone = world.clone_dir();
    clone.git(&["fsck", "--strict", "--no-dangling"]);
    for path in below(&clone.path(".git"), Path::new("")) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = name.starts_with("sage-") || name.ends_with(".lock");
        assert!(!ours, "{} was left in .git", path.display());
    }
    let pending = std::fs::read_dir(world.state().join("pending")).expect("it is there");
    assert_eq!(pending.count(), 0, "a commit is still pending");
}

/// Every file below a folder but git's objects.
fn below(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).expect("it is a folder").flatten() {
        let path = folder.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if path != Path::new("objects") {
                found.extend(below(root, &path));
            }
        } else {
            found.push(path);
        }
    }
    found
}

/// Makes a call that must come back: a program that waits for a pipe would not.
pub(crate) fn comes_back(world: &World, call: ToolCall) -> Outcome {
    let shown = format!("{call:?}");
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(sender.send(world.turn("Owner").try_call_as("c", call))));
        match receiver.recv_timeout(Duration::from_secs(60)) {
            Ok(outcome) => outcome.expect("the executor is there"),
            Err(_) => {
                world.strike();
                panic!("{shown} hangs");
            }
        }
    })
}
