//! What the units take away, as systemd scores it and as the service feels it.

use harness::systemd::SystemdBox;

use super::{Instance, users};

#[test]
fn the_units_are_clean_and_their_exposure_is_low() {
    are_clean_and_little_exposed(&SystemdBox::new());
}

pub(super) fn are_clean_and_little_exposed(inside: &SystemdBox) {
    let units = "/usr/lib/systemd/system";
    for unit in ["sage-executor@.socket", "sage-executor@.service", "sage-connector@.service"] {
        let output = inside.try_run(&format!("systemd-analyze verify {units}/{unit}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{unit}: {said}");
    }
    // In tenths; systemd-analyze fails above the threshold.
    for (unit, tenths) in [("sage-executor@.service", 12), ("sage-connector@.service", 10)] {
        let line = |tenths: u32| {
            format!("systemd-analyze security --offline=true --threshold={tenths} {units}/{unit}")
        };
        inside.run(&line(tenths));
        assert!(!inside.try_run(&line(tenths - 1)).status.success(), "the threshold is heeded");
    }
}

#[test]
fn the_executor_is_as_poor_inside_as_its_unit_says() {
    let inside = SystemdBox::new();
    users(&inside);
    let notes = Instance::new(&inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    notes.start_socket(&inside);
    notes.say(&inside, "git status of strategy");
    let pid = inside.property(&unit, "MainPID");
    let status = inside.run(&format!("cat /proc/{pid}/status"));
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(&format!("{name}:")));
        line.and_then(|line| line.split('\t').nth(1)).unwrap_or_default().to_owned()
    };
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    assert_eq!(field("Umask"), "0077");
    let mounts = inside.run(&format!("cat /proc/{pid}/mounts"));
    let options = |path: &str| -> String {
        let line = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(path));
        line.and_then(|line| line.split(' ').nth(3)).unwrap_or("absent").to_owned()
    };
    for read_only in ["/usr", "/etc/sage/notes", "/"] {
        assert!(options(read_only).starts_with("ro"), "{read_only}: {}", options(read_only));
    }
    for writable in ["/srv/sage/notes", "/var/lib/sage-executor/notes"] {
        assert!(options(writable).starts_with("rw"), "{writable}: {}", options(writable));
    }
    // Restricted by memory and number of tasks where the kernel's cgroups can.
    assert_eq!(inside.property(&unit, "TasksMax"), "256");
    assert_eq!(inside.property(&unit, "LimitCORE"), "0");
}
