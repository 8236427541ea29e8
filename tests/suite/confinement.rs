//! The rings of confinement against the kernel itself. Every refusal is asserted by its exact error
//! number and has a control that shows the same attempt succeeding where it is allowed.

mod authority;

mod child;
mod connector;

mod daemon;

mod doors;

mod endings;

mod executor_process;

mod gits;

mod live;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ::confine::cancel;
use ::confine::child::{ChildOutput, ChildSpec, LaunchError};
use ::confine::kernel::KernelSupport;
use ::confine::launcher::Launcher;
use nix::errno::Errno;

/// Plays the launcher role, daemons, and programs that attack.
const PROBE: &str = env!("CARGO_BIN_EXE_confine-probe");
const ALLOWED: i32 = 0;
const EACCES: i32 = Errno::EACCES as i32;
const EPERM: i32 = Errno::EPERM as i32;
/// The Landlock ABI without which these tests would show less than they say.
const LEAST_ABI: u32 = 4;
/// How long something may take that must happen before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// What this kernel enforces; it must be enough to test with.
fn kernel() -> KernelSupport {
    let kernel = KernelSupport::detect();
    assert!(
        kernel.abi() >= LEAST_ABI,
        "this kernel offers Landlock ABI {}; the confinement tests need ABI {LEAST_ABI} (Linux 6.7) \
         and do not pass without",
        kernel.abi()
    );
    kernel
}

fn launcher(kernel: KernelSupport) -> Launcher {
    Launcher::with_binary(PROBE, kernel)
}

fn run(spec: &ChildSpec) -> Result<ChildOutput, LaunchError> {
    run_on(kernel(), spec)
}

fn run_on(kernel: KernelSupport, spec: &ChildSpec) -> Result<ChildOutput, LaunchError> {
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    launcher(kernel).run(spec, &cancel)
}

fn succeed(spec: &ChildSpec) -> String {
    succeed_on(kernel(), spec)
}

fn succeed_on(kernel: KernelSupport, spec: &ChildSpec) -> String {
    let output = run_on(kernel, spec).expect("a run");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?} {}: {errors}", spec.args, output.status);
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

/// Lines of a name and an error number.
fn numbers(text: &str) -> BTreeMap<String, i32> {
    let line = |line: &str| {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        (name.to_owned(), number.parse().expect("a number"))
    };
    text.lines().map(line).collect()
}

fn expect(text: &str, expected: &[(&str, i32)]) {
    let expected = expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    assert_eq!(numbers(text), expected);
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

/// Waits for something that must come to be; panics when it does not.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: it never came to be");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for a process to be dead. Whether somebody has buried it is not our business.
fn wait_until_dead(pid: &str) {
    let pid: u32 = pid.parse().expect("a number");
    wait_for(&format!("the death of {pid}"), || is_dead(pid).then_some(()));
}

fn is_dead(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name before it may hold anything, a parenthesis too.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[test]
fn the_kernel_offers_enough_to_test_confinement_and_as_much_as_the_runner_saw() {
    let found = kernel().abi();
    if let Ok(seen) = std::env::var("SAGE_TEST_LANDLOCK_ABI") {
        assert_eq!(seen, found.to_string(), "SAGE_TEST_LANDLOCK_ABI, and what the executor finds");
    }
}
