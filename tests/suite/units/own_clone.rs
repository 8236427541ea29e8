//! A person's own clone as the root: the executor runs as that person, by a drop-in.

use harness::systemd::SystemdBox;

use super::{Instance, PEER, users};

/// As docs/operations.md shows it.
const DROP_IN: &str =
    "[Service]\\nUser=owner\\nProtectHome=tmpfs\\nBindPaths=/home/owner/strategy\\n";

#[test]
fn the_persons_own_clone_is_written_as_that_person_and_the_rest_of_the_home_is_not_there() {
    let inside = SystemdBox::new();
    users(&inside);
    let notes = Instance::new(&inside, "notes");
    let unit = notes.unit("sage-executor", "service");
    inside.run(&format!(
        "mv /srv/sage/notes/strategy /home/{PEER}/strategy; chown -R {PEER}: /home/{PEER}
         sed -i 's#/srv/sage/notes/strategy#/home/{PEER}/strategy#' /etc/sage/notes/executor.json
         mkdir -p '/etc/systemd/system/{unit}.d'
         printf '{DROP_IN}' > '/etc/systemd/system/{unit}.d/own-clone.conf'; systemctl daemon-reload"
    ));
    notes.start_socket(&inside);
    let said = notes.say(&inside, "write strategy/plan.md: mine\ncommit strategy/plan.md: My plan");
    assert!(said.contains("pushed to origin/main"), "{said}\n{}", inside.journal(&unit));
    assert_eq!(notes.remote_subject(&inside), "My plan");
    let owner = inside.run(&format!("stat -c %U /home/{PEER}/strategy/plan.md"));
    assert_eq!(owner, PEER, "the person can go on with it");
    let git = inside.try_run_as(PEER, "cd ~/strategy && git status --porcelain");
    assert!(git.status.success() && git.stdout.is_empty(), "{git:?}");

    let pid = inside.property(&unit, "MainPID");
    let sees = |path: &str| inside.try_run(&format!("nsenter -t {pid} -m test -e {path}"));
    assert!(sees(&format!("/home/{PEER}/strategy/plan.md")).status.success());
    inside.run(&format!("test -e /home/{PEER}/notes.json"));
    assert!(!sees(&format!("/home/{PEER}/notes.json")).status.success());
    // What it gives up: the person's own processes are the service's user, so they can read the token.
    let credential = format!("/run/credentials/{unit}/git-token");
    assert!(inside.try_run_as(PEER, &format!("cat {credential}")).status.success());
}
