//! What a process holds: descriptors, children, memory.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::World;

/// How long something may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many descriptors the executor has open.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn descriptors(world: &World) -> usize {
    let folder = format!("/proc/{}/fd", world.executor_pid());
    std::fs::read_dir(folder).expect("it runs").count()
}

/// How much memory it has, in KiB.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn resident_kib(world: &World) -> u64 {
    memory(world, "VmRSS:")
}

/// The most memory it ever had, in KiB.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn most_kib(world: &World) -> u64 {
    memory(world, "VmHWM:")
}

fn memory(world: &World, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.executor_pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The children of all its threads.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn children(world: &World) -> String {
    let pid = world.executor_pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |task: &Path| std::fs::read_to_string(task.join("children")).unwrap_or_default();
    tasks.map(|task| of(&task.expect("a thread").path())).collect()
}

/// Waits until the executor has no more descriptors than before, and no child.
///
/// # Panics
/// When something is left for too long.
pub fn nothing_is_left(world: &World, before: usize) {
    let end = Instant::now() + PATIENCE;
    while descriptors(world) > before || !children(world).is_empty() {
        let now = (descriptors(world), children(world));
        assert!(Instant::now() < end, "{before} descriptors before, and now {now:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
