//! A person's own units (N4): the second-best variant, under a real manager of that person.

use harness::systemd::SystemdBox;
use serde_json::json;

use super::connector::Guild;
use super::{Instance, PEER, users};

/// A person who stays, with a configuration of their own.
struct Person {
    uid: String,
    notes: Instance,
}

impl Person {
    fn new(inside: &SystemdBox) -> Self {
        users(inside);
        let notes = Instance::new(inside, "notes");
        let uid = inside.run(&format!("id -u {PEER}"));
        inside.run(&format!("loginctl enable-linger {PEER}"));
        inside.until("their manager runs", |inside| {
            inside.property(&format!("user@{uid}.service"), "ActiveState") == "active"
        });
        let home = format!("/home/{PEER}");
        let config = json!({
            "socket": format!("/run/user/{uid}/sage/notes/executor.sock"),
            "stateDir": format!("{home}/.local/state/sage-executor/notes"),
            "requesters": ["Owner"],
            "peers": [{"user": PEER, "requesters": ["Owner"]}],
            "roots": [{
                "name": "strategy",
                "path": format!("{home}/strategy"),
                "write": true,
                "git": {
                    "branch": "main",
                    "remote": notes.url(),
                    "author": "Sage <sage@example.invalid>",
                    "tokenFile": format!("/run/user/{uid}/credentials/sage-executor@notes.service/git-token"),
                    "caFile": format!("{home}/.config/sage/notes/ca.pem"),
                    "requireReview": false,
                },
            }],
        });
        std::fs::write(inside.shared().join("config"), config.to_string()).expect("it is ours");
        inside.run(&format!(
            "mkdir -p {home}/.config/sage/notes; cp /etc/sage/notes/ca.pem {home}/.config/sage/notes/
             install -m 0600 /etc/sage/notes/git-token {home}/.config/sage/notes/git-token
             install -m 0600 {}/config {home}/.config/sage/notes/executor.json
             mv /srv/sage/notes/strategy {home}/strategy; echo private > {home}/diary
             sed -i 's#/run/sage/notes/#/run/user/{uid}/sage/notes/#' {home}/notes.json
             chmod 0700 {home}; chown -R {PEER}: {home}",
            inside.shared().display()
        ));
        Self { uid, notes }
    }

    /// A line of shell as the person, with their manager.
    fn run(&self, inside: &SystemdBox, line: &str) -> String {
        let uid = &self.uid;
        let line = format!("export XDG_RUNTIME_DIR=/run/user/{uid}; {line}");
        let output = inside.try_run_as(PEER, &line);
        assert!(output.status.success(), "{line}: {output:?}\n{}", self.journal(inside));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Their connector serves a guild, and a message there is answered.
    fn has_a_guild(&self, inside: &SystemdBox) {
        let guild = Guild::new(inside, &self.notes);
        let (uid, home) = (&self.uid, format!("/home/{PEER}"));
        inside.run(&format!(
            "cd {home}/.config/sage/notes; cp /etc/sage/notes/discord-token discord-token
             sed -e 's#/var/lib/sage-connector#{home}/.local/state/sage-connector#' \
                 -e 's#/run/sage/notes#/run/user/{uid}/sage/notes#' /etc/sage/notes/binding.json > binding.json
             chmod 0600 binding.json discord-token; chown {PEER}: binding.json discord-token"
        ));
        self.run(
            inside,
            "sage-connector install notes --user && \
             systemctl --user enable --now sage-connector@notes.service",
        );
        let answer = guild.answer(guild.say("git log of strategy"));
        assert!(answer.contains("My own plan"), "{answer}\n{}", self.journal(inside));
    }

    fn journal(&self, inside: &SystemdBox) -> String {
        inside.run(&format!("journalctl --no-pager --output=cat _UID={}", self.uid))
    }
}

#[test]
fn a_persons_own_units_bring_a_decision_to_the_remote_and_go_again() {
    serves_and_goes_again(&SystemdBox::new());
}

pub(super) fn serves_and_goes_again(inside: &SystemdBox) {
    let person = Person::new(inside);
    let said = person.run(inside, "sage-executor install notes --user");
    assert!(
        said.ends_with("next: systemctl --user enable --now sage-executor@notes.socket"),
        "{said}"
    );
    person.run(inside, "systemctl --user enable --now sage-executor@notes.socket");
    let lines = "write strategy/plan.md: mine\\ncommit strategy/plan.md: My own plan";
    let said = person
        .run(inside, &format!("printf '{lines}\\n' | sage-connector chat --binding ~/notes.json"));
    assert!(said.contains("pushed to origin/main"), "{said}\n{}", person.journal(inside));
    assert_eq!(person.notes.remote_subject(inside), "My own plan");
    let state = person.run(inside, "systemctl --user is-active sage-executor@notes.service");
    assert_eq!(state, "active", "it said that it is ready");
    person.has_a_guild(inside);
    person.run(
        inside,
        "sage-connector uninstall notes --user && sage-executor uninstall notes --user",
    );
    let left = person.run(inside, "find ~/.config/systemd -name '*sage*'");
    assert_eq!(left, "");
    person.run(
        inside,
        "test -f ~/.local/state/sage-executor/notes/audit.jsonl && \
         test -d ~/.local/state/sage-connector/notes/turns",
    );
}

/// What is tried below, in that order.
const TRIED: [&str; 6] = ["diary", "manager", "bus", "systembus", "memory", "root"];

/// What a process tries that wants to leave its unit; a line for each.
const PROBE: &str = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name: yes"; else echo "$name: no"; fi; }
export XDG_RUNTIME_DIR=/run/user/$(id -u)
try diary cat ~OWNER/diary
echo x > ~OWNER/planted
try manager systemd-run --user --wait /bin/true
try bus busctl --user list
try systembus busctl --system list
try memory cat /proc/$PPID/environ
try root ls ~OWNER/strategy/README.md
"#;

#[test]
fn a_persons_unit_holds_what_systemd_run_does_not() {
    is_contained(&SystemdBox::new());
}

pub(super) fn is_contained(inside: &SystemdBox) {
    let person = Person::new(inside);
    person.run(inside, "sage-executor install notes --user");
    let probe = inside.shared().join("probe");
    std::fs::write(&probe, PROBE.replace("OWNER", PEER)).expect("it is ours");
    inside.run(&format!("install -m 0755 {} /usr/local/bin/probe", probe.display()));
    let said = |unit: &str| -> Vec<String> {
        let start = format!("systemctl --user daemon-reload; systemctl --user start '{unit}'");
        person.run(inside, &start);
        let uid = &person.uid;
        let journal = format!(
            "journalctl --no-pager --output=cat _UID={uid} _SYSTEMD_USER_UNIT='{unit}' | grep -E ': (yes|no)$'"
        );
        let mut lines = Vec::new();
        inside.until("the journal has all of it", |inside| {
            let output = inside.try_run(&journal);
            lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            lines.len() == TRIED.len()
        });
        lines
    };
    // The manager of 257 has a capability that its services have not, and so is safe from them anyway.
    let version = inside.run("systemctl --version | head -n 1 | cut -d ' ' -f 2");
    let spared = if version.parse::<u32>().is_ok_and(|it| it >= 254) { "memory" } else { "" };
    // The control: a unit that holds nothing lets all of it through.
    person.run(
        inside,
        "printf '[Service]\\nType=oneshot\\nExecStart=/bin/bash /usr/local/bin/probe\\n' \
         > ~/.config/systemd/user/open@notes.service",
    );
    let open = said("open@notes.service");
    let each = |let_through: &dyn Fn(&str) -> bool| -> Vec<String> {
        let word = |name| if let_through(name) { "yes" } else { "no" };
        TRIED.iter().map(|name| format!("{name}: {}", word(name))).collect()
    };
    assert_eq!(open, each(&|name| name != spared));
    person.run(inside, "rm ~/planted");
    // The unit itself, with the probe in the program's place.
    person.run(
        inside,
        "cd ~/.config/systemd/user && mkdir -p held@notes.service.d && \
         sed 's#^ExecStart=.*#ExecStart=/bin/bash /usr/local/bin/probe#; s#^Type=.*#Type=oneshot#; \
              /^Restart/d; /^WatchdogSec/d; /^Requires=/d' /usr/lib/systemd/user/sage-executor@.service > held@notes.service && \
         cp sage-executor@notes.service.d/50-sage.conf held@notes.service.d/ && \
         mkdir -p /run/user/$(id -u)/sage/notes",
    );
    let held = said("held@notes.service");
    assert_eq!(held, each(&|name| name == "root"));
    person.run(inside, "test ! -e ~/planted");
}
