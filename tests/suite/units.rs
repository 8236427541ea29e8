//! The systemd units (N1 to N4), under a real systemd: what they promise is looked at from outside
//! and from inside.

use harness::https::authority::{Authority, Leaf};
use harness::https::backend::Backend;
use harness::https::server::Server;
use harness::https::watch::Marker;
use harness::systemd::SystemdBox;
use serde_json::json;
use std::net::Ipv4Addr;
use std::process::Output;

mod connector;
mod executor;
mod hardened;
mod install;
mod manual;
mod newer;
mod own_clone;
mod person;

/// One binding in a box: a clone, its remote behind https, a token, the executor's configuration, and
/// two login users of whom one is a peer.
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) marker: Marker,
}

/// Who may call the executor from a terminal, and who may not.
const PEER: &str = "owner";
const STRANGER: &str = "stranger";

pub(crate) fn users(inside: &SystemdBox) {
    inside.run(&format!("useradd --create-home {PEER}; useradd --create-home {STRANGER}"));
}

impl Instance {
    pub(crate) fn new(inside: &SystemdBox, name: &str) -> Self {
        let (marker, authority) = (Marker::new(), Authority::new().expect("a key"));
        let folder = inside.shared().join(name);
        let bare = folder.join("origin.git");
        let (bare, folder) = (bare.display().to_string(), folder.display().to_string());
        // The bare repository is served from outside, where `git http-backend` runs.
        inside.run(&format!(
            "mkdir -p {folder} /etc/sage/{name} /srv/sage/{name}; cd /srv/sage/{name}
             git init -q --bare -b main {bare}; git -C {bare} config http.receivepack true
             git init -q -b main strategy; cd strategy; echo '# Strategy' > README.md; git add README.md
             git -c user.name=Owner -c user.email=owner@example.invalid commit -q -m Start
             git push -q {bare} main; chown -R sage-executor: /srv/sage/{name}"
        ));
        let tls = authority.serve(Leaf::Good).expect("a certificate");
        let git = harness::git::installed().remove(0);
        let backend = Backend::new(&git, std::path::Path::new(&folder)).expect("git serves");
        let server = inside.in_network(|| {
            Server::start(Ipv4Addr::LOCALHOST, 0, tls, backend, marker.token()).expect("a port")
        });
        let made = Self { name: name.to_owned(), server, marker };
        made.configure(inside, authority.pem());
        made
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/origin.git", self.server.port())
    }

    fn configure(&self, inside: &SystemdBox, authority: &str) {
        let name = &self.name;
        let config = json!({
            "socket": format!("/run/sage/{name}/executor.sock"),
            "stateDir": format!("/var/lib/sage-executor/{name}"),
            "requesters": ["Owner"],
            "peers": [
                {"user": "sage-connector", "requesters": ["Owner"]},
                {"user": PEER, "requesters": ["Owner"]},
            ],
            "roots": [{
                "name": "strategy",
                "path": format!("/srv/sage/{name}/strategy"),
                "write": true,
                "git": {
                    "branch": "main",
                    "remote": self.url(),
                    "author": "Sage <sage@example.invalid>",
                    "tokenFile": format!("/run/credentials/sage-executor@{name}.service/git-token"),
                    "caFile": format!("/etc/sage/{name}/ca.pem"),
                    "requireReview": false,
                },
            }],
        });
        let put = |path: &str, text: &str, mode: &str| {
            let file = inside.shared().join("put");
            std::fs::write(&file, text).expect("it is ours");
            inside.run(&format!("install -m {mode} {} {path}", file.display()));
        };
        put(&format!("/etc/sage/{name}/executor.json"), &format!("{config:#}"), "0644");
        put(&format!("/etc/sage/{name}/ca.pem"), authority, "0644");
        put(&format!("/etc/sage/{name}/git-token"), self.marker.token(), "0600");
        put(&format!("/etc/sage/{name}/discord-token"), "not-a-token", "0600");
        let clone = format!("/srv/sage/{name}/strategy");
        inside.run(&format!(
            "runuser -u sage-executor -- bash -c 'cd {clone} && git remote add origin {0} &&
             git update-ref refs/remotes/origin/main HEAD && git config branch.main.remote origin &&
             git config branch.main.merge refs/heads/main'",
            self.url()
        ));
        let binding = json!({
            "name": name,
            "dataRoot": format!("/home/{PEER}/sage"),
            "executor": {"socket": format!("/run/sage/{name}/executor.sock")},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
        });
        for user in [PEER, STRANGER] {
            let binding = binding.to_string().replace(PEER, user);
            put(&format!("/home/{user}/{name}.json"), &binding, "0600");
            inside.run(&format!(
                "mkdir -p /home/{user}/sage; chmod 0700 /home/{user}/sage; chown -R {user}: /home/{user}"
            ));
        }
    }

    pub(crate) fn unit(&self, program: &str, kind: &str) -> String {
        format!("{program}@{}.{kind}", self.name)
    }

    /// Says lines to Sage as a user in a terminal.
    pub(crate) fn try_say(&self, inside: &SystemdBox, user: &str, lines: &str) -> Output {
        let binding = format!("/home/{user}/{}.json", self.name);
        inside.try_run_as(
            user,
            &format!("printf '{lines}\\n' | sage-connector chat --binding {binding}"),
        )
    }

    /// The same as the peer; what Sage said.
    pub(crate) fn say(&self, inside: &SystemdBox, lines: &str) -> String {
        let output = self.try_say(inside, PEER, lines);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The subject of the last commit that the remote has.
    pub(crate) fn remote_subject(&self, inside: &SystemdBox) -> String {
        let bare = inside.shared().join(&self.name).join("origin.git");
        inside.run(&format!(
            "git -c safe.directory='*' -C {} log -1 --format=%s main",
            bare.display()
        ))
    }

    pub(crate) fn start_socket(&self, inside: &SystemdBox) {
        inside.run(&format!("systemctl start '{}'", self.unit("sage-executor", "socket")));
    }
}
