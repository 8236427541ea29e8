//! The escape suite: attacker code in every row of the authority table, inside a daemon that confined
//! itself as the executor does. [`harness::escapes`] has the attempts, and what must come of each.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::escapes::{self, Aim, Control};
use harness::rows::Setting;
use policy::authority::TABLE;

use super::PROBE;

/// How many attempts there are at least: the suite must not lose any by accident.
const ATTEMPTS: usize = 130;

/// What the attempts aim at, held.
struct Field {
    setting: Setting,
    aim: Aim,
    victim: Child,
    _listeners: (TcpListener, UdpSocket, UnixListener, UnixListener),
}

impl Field {
    fn new() -> Self {
        let setting = Setting::new(Path::new(PROBE));
        let victim = victim();
        let socket = setting.path("listening");
        let name = format!("sage-test-{}", victim.id());
        let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(&name);
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let path = UnixListener::bind(&socket).expect("a socket");
        let by_name = UnixListener::bind_addr(&abstract_name.expect("a name")).expect("a socket");
        let aim = Aim {
            tree: setting.path("tree"),
            elsewhere: setting.path("elsewhere"),
            victim: victim.id().cast_signed(),
            tcp: tcp.local_addr().expect("it is bound").port(),
            udp: udp.local_addr().expect("it is bound").port(),
            socket,
            name,
            helper: setting.path("exec/git-remote-https"),
        };
        aim.prepare();
        std::fs::copy("/bin/true", aim.tree.join("program")).expect("a program");
        Self { setting, aim, victim, _listeners: (tcp, udp, path, by_name) }
    }

    fn aim(&self) -> String {
        serde_json::to_string(&self.aim).expect("plain data")
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// A process of the same user that does nothing, in a group of its own.
fn victim() -> Child {
    use std::os::unix::process::CommandExt;
    Command::new("/bin/sleep").arg("1000").process_group(0).spawn().expect("a process")
}

#[test]
fn every_attempt_in_every_row_ends_at_the_barrier_that_the_table_names() {
    let field = Field::new();
    let folder = field.setting.path("");
    let ports = serde_json::to_string(&field.setting.ports).expect("plain data");
    let output = Command::new(PROBE)
        .args(["rows".as_ref(), folder.as_os_str(), ports.as_ref(), field.aim().as_ref()])
        .output()
        .expect("the probe starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told = String::from_utf8(output.stdout).expect("it is UTF-8");
    assert_eq!(told.lines().count(), TABLE.len(), "{told}{errors}");
    let mut wrong = Vec::new();
    for (row, line) in TABLE.iter().zip(told.lines()) {
        let (step, letters) = line.split_once(": ").expect("a step and letters");
        assert_eq!(step, row.step.as_str());
        let letters = escapes::read(letters);
        assert_eq!(letters.len(), escapes::table().count(), "{line}");
        for (attempt, found) in escapes::table().zip(letters) {
            let expected = escapes::letter(attempt.barrier.expected(row));
            if found != expected {
                wrong.push(format!("{step}: {}: {found} and not {expected}", attempt.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{told}", wrong.join("\n"));
}

#[test]
fn every_attempt_works_where_nothing_confines_or_the_table_says_why_it_cannot() {
    let names: std::collections::BTreeSet<_> = escapes::table().map(|one| one.name).collect();
    assert_eq!(names.len(), escapes::table().count(), "each has a name of its own");
    assert!(names.len() >= ATTEMPTS, "{}", names.len());
    let mut wrong = Vec::new();
    let field = Field::new();
    for attempt in escapes::table() {
        // Each in a process of its own, as many change what the process is.
        let number = alone(attempt.name, &field.aim());
        let holds = match attempt.control {
            Control::Works => number == escapes::ALLOWED,
            Control::Answers(errors, _) => {
                number == escapes::ALLOWED || errors.iter().any(|errno| *errno as i32 == number)
            }
        };
        if !holds {
            wrong.push(format!("{}: {number}", attempt.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tries one in a process that nothing confines, and that has inherited a descriptor.
fn alone(name: &str, aim: &str) -> i32 {
    let inherited = std::fs::File::open("/dev/null").expect("a file");
    let stays = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&inherited, stays).expect("a descriptor that children inherit");
    let mut command = Command::new(PROBE);
    command.args(["escape", name, aim]).stdin(Stdio::null());
    let output = command.output().expect("the probe starts");
    let told = String::from_utf8_lossy(&output.stdout);
    // One that became another program has nothing more to say.
    if told.is_empty() && output.status.success() {
        return escapes::ALLOWED;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    told.trim().parse().unwrap_or_else(|_| panic!("{name}: {} {errors}", output.status))
}
