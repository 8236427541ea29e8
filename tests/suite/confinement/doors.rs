//! Ways out that are not files: sockets, and system calls that Landlock has no word for.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;

use ::confine::child::ExecRule;
use ::confine::grants::Rights;
use harness::confine::{self, Ground};
use nix::libc;

use super::{ALLOWED, EACCES, EPERM, LEAST_ABI, expect, kernel, numbers, succeed, succeed_on};

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

#[test]
fn a_networked_child_reaches_its_port_by_plain_tcp_and_nothing_else() {
    let ground = Ground::new();
    let ((_one, granted), (_two, other)) = (listener(), listener());
    let socket = ground.path("tree/socket");
    let _three = UnixListener::bind(&socket).expect("a socket");
    let code = format!(
        "
HOST = '127.0.0.1'
STREAM, INET = socket.SOCK_STREAM, socket.AF_INET
tcp = lambda port, protocol=0: socket.socket(INET, STREAM, protocol).connect((HOST, port))
unix = lambda path: socket.socket(socket.AF_UNIX).connect(path)
attempt('granted', lambda: tcp({granted}))
attempt('granted-by-number', lambda: tcp({granted}, 6))
attempt('other', lambda: tcp({other}))
attempt('mptcp', lambda: tcp({other}, 262))
attempt('fast-open', lambda: socket.socket().sendto(b'x', 0x20000000, (HOST, {other})))
attempt('udp', lambda: socket.socket(INET, socket.SOCK_DGRAM))
attempt('udp6', lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
attempt('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt('unix', lambda: unix('{socket}'))
attempt('abstract', lambda: unix('\\0x'))
attempt('listen', lambda: socket.socket().listen())
",
        socket = socket.display()
    );
    let mut spec = confine::python(&code, ground.tree(Rights::WRITE_TREE));
    spec.grants.connect_ports = vec![granted];
    let mut expected =
        vec![("granted", ALLOWED), ("granted-by-number", ALLOWED), ("other", EACCES)];
    let doors = ["mptcp", "fast-open", "udp", "udp6", "netlink", "unix", "abstract", "listen"];
    expected.extend(doors.map(|door| (door, EPERM)));
    for exec in [ExecRule::Exec { network: true }, ExecRule::NoExecNetwork] {
        spec.exec = exec;
        for abi in LEAST_ABI..=kernel().abi() {
            expect(&succeed_on(kernel().limited_to(abi), &spec), &expected);
        }
    }
    let free = numbers(&confine::unconfined(&code, &ground.path("")));
    let blocked: Vec<_> = free.iter().filter(|(_, number)| **number == EPERM).collect();
    assert!(blocked.is_empty(), "nothing but our filter refuses these: {blocked:?}");
    for door in ["other", "udp", "netlink", "unix", "listen"] {
        assert_eq!(free[door], ALLOWED, "{door}");
    }
}

#[test]
fn a_child_without_network_makes_no_socket() {
    let code = "
attempt('tcp', lambda: socket.socket())
attempt('unix', lambda: socket.socket(socket.AF_UNIX))
attempt('pair', lambda: socket.socketpair())
";
    let all = |number| [("tcp", number), ("unix", number), ("pair", number)];
    for exec in [ExecRule::NoExec, ExecRule::Exec { network: false }] {
        let mut spec = confine::python(code, Vec::new());
        spec.exec = exec;
        expect(&succeed(&spec), &all(EPERM));
    }
    let ground = Ground::new();
    expect(&confine::unconfined(code, &ground.path("")), &all(ALLOWED));
}

/// Calls by number, so that it does not matter what python has a name for. One process makes them
/// unconfined too: each is harmless.
const CALLS: &[(&str, i64, &str)] = &[
    ("userns", libc::SYS_unshare, "0x10000000"),
    ("mount", libc::SYS_mount, "b'none', b'/nonexistent', b'tmpfs', 0, 0"),
    ("io_uring", libc::SYS_io_uring_setup, "1, buffer(256)"),
    ("memfd", libc::SYS_memfd_create, "b'x', 0"),
    ("keyring", libc::SYS_keyctl, "0, -3, 1"),
    ("ptrace", libc::SYS_ptrace, "0, 0, 0, 0"),
    ("process_vm", libc::SYS_process_vm_readv, "os.getppid(), 0, 0, 0, 0, 0"),
    ("bpf", libc::SYS_bpf, "0, 0, 0"),
    ("perf", libc::SYS_perf_event_open, "buffer(128), 0, -1, -1, 0"),
    ("userfaultfd", libc::SYS_userfaultfd, "0"),
    ("handle", libc::SYS_name_to_handle_at, "-100, b'/', buffer(256), buffer(8), 0"),
    ("shm", libc::SYS_shmget, "0, 4096, 0o1600"),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, "3, 3, 0"),
    ("prlimit", libc::SYS_prlimit64, "os.getppid(), 4, 0, buffer(16)"),
    ("death-signal", libc::SYS_prctl, "1, 0, 0, 0, 0"),
    #[cfg(target_arch = "x86_64")]
    ("x32-socket", 0x4000_0000 | libc::SYS_socket, "1, 1, 0"),
];

/// What python has a name for.
const NAMED: &[(&str, &str)] = &[
    ("chroot", "os.chroot('/')"),
    ("setsid", "os.setsid()"),
    ("setpgid", "os.setpgid(0, 0)"),
    ("priority", "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)"),
    ("affinity", "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))"),
    ("signal-daemon", "os.kill(os.getppid(), 18)"),
    ("chmod", "os.chmod('inside', 0o644)"),
    ("utime", "os.utime('inside')"),
    ("chown", "os.chown('inside', os.getuid(), os.getgid())"),
    ("xattr", "os.setxattr('inside', 'user.x', b'x')"),
    ("mkfifo", "os.mkfifo('fifo')"),
];

fn kernel_doors() -> String {
    let mut code = "buffer = ctypes.create_string_buffer\n".to_owned();
    for (name, number, arguments) in CALLS {
        code += &format!("attempt('{name}', lambda: call({number}, {arguments}))\n");
    }
    for (name, action) in NAMED {
        code += &format!("attempt('{name}', lambda: {action})\n");
    }
    code
}

#[test]
fn doors_that_landlock_does_not_know_are_shut_on_the_oldest_kernel_too() {
    let ground = Ground::new();
    for kernel in [kernel(), kernel().limited_to(3)] {
        for exec in [ExecRule::NoExec, ExecRule::Exec { network: false }] {
            let mut spec = confine::python(&kernel_doors(), ground.tree(Rights::WRITE_TREE));
            spec.exec = exec;
            spec.cwd = ground.path("tree");
            let results = numbers(&succeed_on(kernel, &spec));
            assert_eq!(results.len(), CALLS.len() + NAMED.len());
            let open: Vec<_> = results.iter().filter(|(_, number)| **number != EPERM).collect();
            assert!(open.is_empty(), "{kernel:?} {exec:?}: {open:?}");
        }
    }
}

#[test]
fn a_networked_child_that_starts_nothing_has_the_same_doors_shut_and_a_time_that_only_seems_set() {
    let ground = Ground::new();
    let time = || std::fs::metadata(ground.path("tree/inside")).and_then(|meta| meta.modified());
    let before = time().expect("it is there");
    let code = format!(
        "{}attempt('fork', lambda: os.fork() or os._exit(0))\n\
         attempt('execve', lambda: os.execve('/bin/true', ['true'], {{}}))\n\
         attempt('utime-named', lambda: os.utime('inside', (1, 1)))\n",
        kernel_doors()
    );
    for kernel in [kernel(), kernel().limited_to(LEAST_ABI)] {
        let mut files = ground.tree(Rights::WRITE_TREE);
        files.extend(
            ::confine::grants::program(std::path::Path::new("/bin/true"), "something to run")
                .expect("it is ELF"),
        );
        let mut spec = confine::python(&code, files);
        spec.exec = ExecRule::NoExecNetwork;
        spec.grants.connect_ports = vec![1];
        spec.cwd = ground.path("tree");
        let results = numbers(&succeed_on(kernel, &spec));
        assert_eq!(results.len(), CALLS.len() + NAMED.len() + 3);
        let open: Vec<_> = results.iter().filter(|(_, number)| **number != EPERM).collect();
        let seem = ["utime", "utime-named"];
        assert!(open.iter().all(|(name, _)| seem.contains(&name.as_str())), "{kernel:?}: {open:?}");
        assert_eq!((results["utime"], results["utime-named"]), (ALLOWED, ALLOWED));
        assert_eq!(time().expect("it is there"), before, "it was not set");
    }
}

#[test]
fn most_of_those_doors_are_open_to_a_process_that_nothing_confines() {
    let ground = Ground::new();
    // A process between, so that the parent that they try to change is not this one.
    let attempts = kernel_doors().replace('\n', "\n    ");
    let code = format!("if os.fork() == 0:\n    {attempts}os._exit(0)\nos.wait()\n");
    let results = numbers(&confine::unconfined(&code, &ground.path("tree")));
    for door in [
        "memfd",
        "death-signal",
        "prlimit",
        "setsid",
        "priority",
        "affinity",
        "signal-daemon",
        "chmod",
        "utime",
        "mkfifo",
    ] {
        assert_eq!(results[door], ALLOWED, "{door}");
    }
}
