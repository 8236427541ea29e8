//! `install` and `uninstall`, of both programs, from the programs alone.

use harness::systemd::SystemdBox;

use super::connector::Guild;
use super::{Instance, PEER, users};

/// Where install writes, and what is there of Sage's.
const WRITTEN: &str =
    "find /etc/systemd/system /etc/sysusers.d /etc/tmpfiles.d -name '*sage*' | sort";

/// The packages go, and their units; the programs stay, where no unit looks by itself.
fn programs_alone(inside: &SystemdBox) {
    inside.run(
        "mkdir /opt/sage; cp /usr/bin/sage-executor /usr/bin/sage-connector /opt/sage/
         dpkg --purge sage-executor sage-connector; systemctl daemon-reload",
    );
    assert_eq!(inside.run(WRITTEN), "");
}

fn refused(inside: &SystemdBox, line: &str) -> String {
    let output = inside.try_run(line);
    assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_was_installed_serves_and_what_is_uninstalled_leaves_records_and_secrets_alone() {
    let inside = SystemdBox::new();
    users(&inside);
    let notes = Instance::new(&inside, "notes");
    let guild = Guild::new(&inside, &notes);
    programs_alone(&inside);

    // Shown first, and only shown.
    let shown = inside.run("/opt/sage/sage-executor install notes --system --dry-run");
    assert!(shown.contains("would write /etc/systemd/system/sage-executor@.socket:"), "{shown}");
    assert!(shown.contains("LoadCredential=git-token:/etc/sage/notes/git-token"), "{shown}");
    assert_eq!(inside.run(WRITTEN), "");
    let person = inside.try_run_as(PEER, "/opt/sage/sage-executor install notes --system");
    assert_eq!(person.status.code(), Some(2), "{person:?}");
    assert!(String::from_utf8_lossy(&person.stderr).contains("only root"), "{person:?}");

    let said = inside.run("/opt/sage/sage-executor install notes --system");
    let next = said.lines().last().unwrap_or_default();
    assert_eq!(next, "next: systemctl enable --now sage-executor@notes.socket", "{said}");
    let said = inside.run("/opt/sage/sage-connector install notes --system");
    assert!(said.contains("wrote /etc/systemd/system/sage-connector@.service"), "{said}");
    inside.run("systemctl enable --now sage-executor@notes.socket");
    let started = inside.try_run("systemctl enable --now sage-connector@notes.service");
    assert!(started.status.success(), "{}", inside.journal("sage-connector@notes.service"));
    let answer = guild.answer(guild.say("write strategy/plan.md: Installed"));
    assert!(answer.contains("Created plan.md"), "{answer}");
    let answer = guild.answer(guild.say("commit strategy/plan.md: An installed plan"));
    assert!(answer.contains("pushed to origin/main"), "{answer}");
    assert_eq!(notes.remote_subject(&inside), "An installed plan");

    // Once more changes nothing.
    let again = inside.run("/opt/sage/sage-executor install notes --system");
    assert!(again.contains("as it should be") && !again.contains("wrote "), "{again}");

    inside.run("/opt/sage/sage-connector uninstall notes --system");
    let said = inside.run("/opt/sage/sage-executor uninstall notes --system");
    assert!(said.contains("kept: /etc/sage/notes, /var/lib/sage-executor/notes"), "{said}");
    assert_eq!(inside.run(WRITTEN), "");
    assert_eq!(inside.property("sage-executor@notes.socket", "LoadState"), "not-found");
    assert_eq!(inside.run("pgrep -c 'sage-' || true"), "0");
    inside.run(
        "test -f /etc/sage/notes/git-token && test -f /var/lib/sage-executor/notes/audit.jsonl &&
         test -d /var/lib/sage-connector/notes/turns && test -d /srv/sage/notes/strategy",
    );
    let said = inside.run("/opt/sage/sage-executor uninstall notes --system");
    assert!(said.starts_with("nothing of sage-executor@notes.service is installed"), "{said}");
}

#[test]
fn nothing_of_anybody_else_is_replaced_or_removed_and_another_binding_keeps_the_units() {
    let inside = SystemdBox::new();
    users(&inside);
    let (notes, _plans) = (Instance::new(&inside, "notes"), Instance::new(&inside, "plans"));
    programs_alone(&inside);
    let unit = "/etc/systemd/system/sage-executor@.socket";
    let drop_in = "/etc/systemd/system/sage-executor@notes.service.d/50-sage.conf";

    // A file in the way: nothing is done at all.
    inside.run(&format!("echo '# mine' > {unit}"));
    let said = refused(&inside, "/opt/sage/sage-executor install notes --system");
    assert!(said.contains(unit) && said.contains("was not written by install"), "{said}");
    assert_eq!(inside.run(WRITTEN), unit);
    inside.run(&format!("rm {unit}"));

    // A configuration that the units do not fit, or that is not there.
    let config = "/etc/sage/notes/executor.json";
    inside
        .run(&format!("cp {config} /root/good; sed -i 's#/run/sage/notes/#/run/other/#' {config}"));
    let said = refused(&inside, "/opt/sage/sage-executor install notes --system");
    assert!(
        said.contains("`socket` is /run/other/executor.sock") && said.contains("write that"),
        "{said}"
    );
    let said = refused(&inside, "/opt/sage/sage-executor install nobody --system");
    assert!(said.contains("/etc/sage/nobody/executor.json"), "{said}");
    inside.run(&format!("cp /root/good {config}"));
    for wrong in ["../notes", "Notes", "a b", ""] {
        refused(&inside, &format!("/opt/sage/sage-executor install '{wrong}' --system"));
    }

    inside.run("/opt/sage/sage-executor install notes --system; /opt/sage/sage-executor install plans --system");
    // What a person changed stays theirs.
    inside.run(&format!("echo '# mine' >> {drop_in}"));
    let said = refused(&inside, "/opt/sage/sage-executor install notes --system");
    assert!(said.contains(drop_in) && said.contains("a drop-in of its own"), "{said}");
    let said = inside.run("/opt/sage/sage-executor uninstall notes --system");
    assert!(said.contains(&format!("{drop_in} stays")), "{said}");
    assert!(said.contains("other bindings use them"), "{said}");
    inside.run(&format!("test -e {unit}; rm -r {drop_in}"));

    // The other one still serves.
    inside.run("systemctl start sage-executor@plans.socket");
    inside.run("/opt/sage/sage-executor uninstall plans --system");
    assert_eq!(inside.run(&format!("test -e {unit} || echo gone")), "gone");
    drop(notes);
}
