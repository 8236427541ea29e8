use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::identity::{identity, is_boot, is_ticks, with_dashes};
use super::{
    LOCK, OwnerError, RECORD, STOP, Standing, claim, is_braked, is_stopped, publish, recover,
    refuse_stopped, remove, standing, stop, unlock,
};

const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000000";

/// A process that lives as long as this.
struct Alive(Child);

impl Alive {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep starts"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }

    fn identity(&self) -> (String, String) {
        identity(self.pid()).expect("it is alive")
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gone() -> i32 {
    let mut child = Command::new("true").spawn().expect("true starts");
    let pid = i32::try_from(child.id()).expect("a pid");
    child.wait().expect("it ended");
    pid
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn leave(folder: &Path, record: &Value) {
    std::fs::create_dir(folder.join(LOCK)).expect("made");
    std::fs::write(folder.join(LOCK).join(RECORD), record.to_string()).expect("written");
}

fn record(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join(LOCK).join(RECORD)).expect("it is there")
}

fn dead() -> Value {
    json!({"pid": gone(), "start": "1", "boot": OTHER_BOOT})
}

fn is_free(folder: &Path) -> bool {
    standing(folder).expect("it can be read") == Standing::Free
}

#[test]
fn a_claim_names_its_process_and_is_let_go() {
    let home = home();
    let held = claim(home.path()).expect("nobody has it");
    assert!(matches!(standing(home.path()), Ok(Standing::Live(owner)) if owner == held.owner));
    assert!(matches!(claim(home.path()), Err(OwnerError::Live { .. })));
    drop(held);
    assert!(is_free(home.path()));
    assert!(claim(home.path()).is_ok());
}

#[test]
fn of_four_starts_at_once_one_wins() {
    let home = home();
    let gate = std::sync::Barrier::new(4);
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = || {
            gate.wait();
            claim(home.path())
        };
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().expect("no panic")).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(claim(home.path()).is_err(), "a fifth is refused while the winner holds it");
}

#[test]
fn a_stale_lock_is_taken_over_by_no_start_and_removed_by_unlock() {
    let home = home();
    leave(home.path(), &dead());
    let before = record(home.path());
    for _ in 0..4 {
        assert!(matches!(claim(home.path()), Err(OwnerError::Stale(_))));
    }
    assert_eq!(record(home.path()), before);
    unlock(home.path()).expect("its owner is gone");
    assert!(is_free(home.path()));
    assert!(matches!(claim(home.path()), Err(OwnerError::Stopped(_))), "the gate stands");
    std::fs::remove_file(home.path().join(STOP)).expect("the operator lifts it");
    let _held = claim(home.path()).expect("one owner");
    assert!(claim(home.path()).is_err());
}

#[test]
fn a_claim_that_lands_inside_an_unlock_releases_itself() {
    let home = home();
    leave(home.path(), &dead());
    // The schedule: unlock has closed the gate; a start that looked before it did makes the folder
    // and its record in the gap; then it looks again.
    super::stop_if_none(home.path(), "unlock").expect("closed");
    remove(home.path()).expect("unlock removes the stale lock");
    std::fs::create_dir(home.path().join(LOCK)).expect("the late start makes its own");
    let owner = super::myself().expect("an identity");
    publish(&home.path().join(LOCK), &owner).expect("its record lands");
    let late = super::Claim { folder: home.path().to_owned(), owner };
    assert!(matches!(refuse_stopped(home.path()), Err(OwnerError::Stopped(_))));
    drop(late);
    assert!(is_free(home.path()) && is_stopped(home.path()));
    let left: Vec<_> = std::fs::read_dir(home.path()).expect("read").flatten().collect();
    assert_eq!(left.len(), 2, "only STOP and its lock: {left:?}");
}

#[test]
fn a_live_owner_is_refused_and_untouched() {
    let home = home();
    let alive = Alive::new();
    let (start, boot) = alive.identity();
    leave(home.path(), &json!({"pid": alive.pid(), "start": start, "boot": boot}));
    let before = record(home.path());
    let text = unlock(home.path()).expect_err("it is alive").to_string();
    assert!(text.contains("sage-connector stop"), "{text}");
    assert_eq!(record(home.path()), before);
}

#[test]
fn the_same_pid_and_ticks_of_another_boot_are_another_process() {
    let home = home();
    let alive = Alive::new();
    let (start, _) = alive.identity();
    leave(home.path(), &json!({"pid": alive.pid(), "start": start, "boot": OTHER_BOOT}));
    assert_eq!(standing(home.path()).expect("read"), Standing::Stale);
    assert_eq!(stop(home.path()).expect("nobody to signal"), None);
    unlock(home.path()).expect("its owner is gone");
}

#[test]
fn an_identity_that_cannot_be_told_refuses_everything_until_the_process_is_gone() {
    let alive = Alive::new();
    let (start, boot) = alive.identity();
    let pid = alive.pid();
    let upper = boot.to_uppercase();
    let bad = [
        json!({"pid": pid}),
        json!({"pid": pid, "start": start}),
        json!({"pid": pid, "boot": boot}),
        json!({"pid": pid, "start": "", "boot": boot}),
        json!({"pid": pid, "start": "abc", "boot": boot}),
        json!({"pid": pid, "start": "12x", "boot": boot}),
        json!({"pid": pid, "start": format!("0{start}"), "boot": boot}),
        json!({"pid": pid, "start": "18446744073709551616", "boot": boot}),
        json!({"pid": pid, "start": "-1", "boot": boot}),
        json!({"pid": pid, "start": start, "boot": ""}),
        json!({"pid": pid, "start": start, "boot": "not-a-uuid"}),
        json!({"pid": pid, "start": start, "boot": format!("{upper}A")}),
        json!({"pid": pid, "start": start, "boot": OTHER_BOOT.replace('0', "F")}),
    ];
    let mut homes = Vec::new();
    for value in bad {
        let home = home();
        leave(home.path(), &value);
        let before = record(home.path());
        assert!(matches!(claim(home.path()), Err(OwnerError::Unknown { .. })), "{value}");
        assert!(matches!(stop(home.path()), Err(OwnerError::Unknown { .. })), "{value}");
        assert!(matches!(unlock(home.path()), Err(OwnerError::Unknown { .. })), "{value}");
        assert_eq!(record(home.path()), before, "{value}");
        homes.push(home);
    }
    drop(alive);
    for home in homes {
        unlock(home.path()).expect("it is gone now");
        assert!(is_free(home.path()));
    }
}

#[test]
fn a_record_that_is_none_is_removed_by_nothing() {
    for text in ["", "{", "[]", "{\"pid\":\"7\"}", "{\"pid\":0}", "{\"pid\":-1}"] {
        let home = home();
        std::fs::create_dir(home.path().join(LOCK)).expect("made");
        std::fs::write(home.path().join(LOCK).join(RECORD), text).expect("written");
        assert!(matches!(claim(home.path()), Err(OwnerError::Invalid(_))), "{text}");
        assert!(matches!(unlock(home.path()), Err(OwnerError::Invalid(_))), "{text}");
        assert_eq!(record(home.path()), text.as_bytes());
    }
}

#[test]
fn a_folder_without_a_record_is_a_claim_for_half_a_minute_and_a_crash_after() {
    let home = home();
    let lock = home.path().join(LOCK);
    std::fs::create_dir(&lock).expect("made");
    assert!(matches!(claim(home.path()), Err(OwnerError::Claiming(_))));
    assert!(matches!(unlock(home.path()), Err(OwnerError::Claiming(_))));
    let old = SystemTime::now() - Duration::from_secs(31);
    std::fs::File::open(&lock).and_then(|file| file.set_modified(old)).expect("aged");
    unlock(home.path()).expect("only a crash explains it");
    assert!(is_free(home.path()));
}

#[test]
fn only_what_the_kernel_prints_is_an_identity() {
    for (text, fits) in [
        ("0", true),
        ("1", true),
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("00", false),
        ("01", false),
        ("+1", false),
        (" 1", false),
        ("", false),
    ] {
        assert_eq!(is_ticks(text), fits, "{text:?}");
    }
    assert!(is_boot(OTHER_BOOT));
    assert!(!is_boot(&OTHER_BOOT.replace('-', "0")) && !is_boot("") && !is_boot(&"a".repeat(36)));
}

#[test]
fn stop_ends_exactly_the_owner() {
    let home = home();
    let mut alive = Alive::new();
    let (start, boot) = alive.identity();
    leave(home.path(), &json!({"pid": alive.pid(), "start": start, "boot": boot}));
    assert_eq!(stop(home.path()).expect("it is signalled"), Some(alive.pid()));
    assert!(!alive.0.wait().expect("it ends").success());
    assert!(is_stopped(home.path()));
}

#[test]
fn recovery_clears_what_was_left_and_no_more() {
    let home = home();
    leave(home.path(), &dead());
    recover(home.path()).expect("its owner is gone");
    assert!(is_free(home.path()) && !is_stopped(home.path()));
    // A recovery that was killed half way leaves its own STOP, which the next one may lift.
    std::fs::write(home.path().join(STOP), "recovery\n").expect("written");
    assert!(is_stopped(home.path()) && !is_braked(home.path()), "nobody put the brake on");
    recover(home.path()).expect("it is its own");
    assert!(!is_stopped(home.path()));
    assert_eq!(stop(home.path()).expect("nobody to signal"), None);
    assert!(matches!(recover(home.path()), Err(OwnerError::Stopped(_))));
    assert!(is_stopped(home.path()), "an operator's STOP stays");
    std::fs::remove_file(home.path().join(STOP)).expect("lifted");
    let _held = claim(home.path()).expect("free");
    assert!(matches!(recover(home.path()), Err(OwnerError::Live { .. })));
    assert!(!is_stopped(home.path()), "what it wrote itself is gone again");
}

#[test]
fn a_boot_id_that_systemd_passes_is_the_kernels() {
    let kernels = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there");
    let passed = kernels.trim().replace('-', "");
    assert_eq!(with_dashes(&passed).as_deref(), Some(kernels.trim()));
    for odd in ["", "1234", &passed[1..], &format!("{passed}0"), "ééééééééééééééééé"]
    {
        assert_eq!(with_dashes(odd), None, "{odd}");
    }
}
