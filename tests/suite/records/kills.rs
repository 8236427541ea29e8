//! A reservation that is cut off (B63): at most its own line is lost, and no id is given out twice.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::dice::Dice;

use super::tool::Folder;
use super::{LOCK_TOOL, Said, python};

/// Runs the lock tool after something was done to its world.
fn reserve_under(folder: &Folder, spoil: &str) -> Said {
    let run = format!(
        "import os, runpy, signal, sys\nsys.argv = ['{LOCK_TOOL}', 'reserve', 'DEC', 'A title']\n\
         write = os.write\ndef die():\n    os.kill(os.getpid(), signal.SIGKILL)\n{spoil}\n\
         runpy.run_path('{LOCK_TOOL}', run_name='__main__')\n"
    );
    let output = python(folder.dir(), "someone", &["-c", &run]).output();
    Said::by(&output.expect("python3 starts"))
}

#[test]
fn b63_a_reservation_killed_at_each_step_breaks_nothing() {
    let kills = [
        ("before its line", "os.write = lambda fd, data: die()"),
        ("in the middle of its line", "os.write = lambda fd, data: [write(fd, data[:9]), die()]"),
        ("with its id half written", "os.write = lambda fd, data: [write(fd, data[:6]), die()]"),
        ("after its line", "os.write = lambda fd, data: [write(fd, data), die()]"),
        ("while it waits for the disk", "os.fsync = lambda fd: die()"),
    ];
    for registry in ["DEC-0001\ta\tb\n", "DEC-0001\ta\tb\nDEC-0002\tto"] {
        for (when, spoil) in kills {
            let folder = Folder::new();
            folder.set(registry);
            let said = reserve_under(&folder, spoil);
            assert!(said.signal == Some(9) && said.out.is_empty(), "{when}: {said:?}");
            let left = folder.text();
            assert!(left.starts_with(registry), "{when}: {left:?}");
            let id = folder.reserve().fine();
            let text = folder.text();
            assert!(text.ends_with(&format!("\n{id}\tsomeone\tA title\n")), "{when}: {text:?}");
            assert!(text.starts_with(&left), "{when}: {text:?}");
            // A whole id that was left is not given out again, even of a torn line.
            let whole = left.lines().any(|line| line == id || line.starts_with(&format!("{id}\t")));
            assert!(!whole, "{when}: {id} again in {text:?}");
        }
    }
}

#[test]
fn b63_a_disk_that_is_full_or_broken_gives_out_no_id() {
    let spoils = [
        ("os.write = lambda fd, data: write(fd, data[:9])", "No space left on device"),
        (
            "def full(fd, data):\n    raise OSError(28, 'No space left on device')\nos.write = full",
            "No space",
        ),
        (
            "def broken(fd):\n    raise OSError(5, 'Input/output error')\nos.fsync = broken",
            "Input/output error",
        ),
    ];
    for (spoil, why) in spoils {
        let folder = Folder::new();
        let before = folder.text();
        reserve_under(&folder, spoil).no(why);
        let left = folder.text();
        assert!(left.starts_with(&before) && left.ends_with('\n'), "{why}: {left:?}");
        let id = folder.reserve().fine();
        assert!(!left.contains(&id), "{why}: {id} again after {left:?}");
        folder.validate().fine();
    }
    assert_eq!(reserve_under(&Folder::new(), "").fine(), "DEC-0003");
}

#[test]
fn b63_thirty_reservations_killed_anywhere_reuse_no_id_and_break_no_line() {
    let folder = Folder::new();
    let started = Instant::now();
    let mut given = BTreeSet::from([folder.reserve().fine()]);
    let usual = u64::try_from(started.elapsed().as_micros()).expect("it is not that long");
    let mut dice = Dice::new(63);
    let mut cut = 0;
    for round in 0..30 {
        let before = folder.text();
        let mut command = python(folder.dir(), "someone", &[LOCK_TOOL, "reserve", "DEC", "Killed"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python3 starts");
        // Not to wait for anything: the instant of the kill is what is thrown for.
        std::thread::sleep(Duration::from_micros(usual / 3 + dice.below(usual)));
        child.kill().expect("it is our child");
        let output = child.wait_with_output().expect("it ends");
        cut += u32::from(!output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let left = folder.text();
        assert!(left.starts_with(&before) && left.ends_with('\n'), "round {round}: {left:?}");
        if !said.is_empty() {
            assert!(
                left.contains(&format!("\n{said}\tsomeone\tKilled\n")),
                "round {round}: {said}"
            );
            assert!(given.insert(said.clone()), "round {round}: {said} a second time");
        }
        let next = folder.reserve().fine();
        assert!(!left.contains(&next), "round {round}: {next} is there already");
        assert!(given.insert(next.clone()), "round {round}: {next} a second time");
    }
    assert!(cut > 0, "no kill came in time");
    folder.validate().fine();
}
