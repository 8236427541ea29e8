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
    ("io_uring-enter", libc::SYS_io_uring_enter, "-1, 0, 0, 0, 0, 0"),
    ("io_uring-register", libc::SYS_io_uring_register, "-1, 0, 0, 0"),
    ("add-key", libc::SYS_add_key, "0, 0, 0, 0, 0"),
    ("request-key", libc::SYS_request_key, "0, 0, 0, 0"),
    ("kcmp", libc::SYS_kcmp, "os.getpid(), os.getpid(), 0, 0, 0"),
    ("process_vm-write", libc::SYS_process_vm_writev, "os.getppid(), 0, 0, 0, 0, 0"),
    ("process_madvise", libc::SYS_process_madvise, "-1, 0, 0, 0, 0"),
    ("move_pages", libc::SYS_move_pages, "os.getpid(), 0, 0, 0, 0, 0"),
    ("fsopen", libc::SYS_fsopen, "0, 0"),
    ("fsconfig", libc::SYS_fsconfig, "-1, 0, 0, 0, 0"),
    ("mount_setattr", libc::SYS_mount_setattr, "-1, b'/nonexistent', 0, 0, 0"),
    ("open_by_handle", libc::SYS_open_by_handle_at, "-1, 0, 0"),
    ("module", libc::SYS_finit_module, "-1, b'', 0"),
    ("kexec", libc::SYS_kexec_load, "0, 0, 0, -1"),
    ("syslog", libc::SYS_syslog, "10, 0, 0"),
    ("clock", libc::SYS_clock_settime, "-1, 0"),
    ("swap", libc::SYS_swapoff, "b'/nonexistent'"),
    ("scheduler", libc::SYS_sched_setscheduler, "os.getppid(), 0, buffer(8)"),
    ("io-priority", libc::SYS_ioprio_set, "1, os.getppid(), 0"),
    ("semaphores", libc::SYS_semget, "0, 1, 0o1600"),
    ("messages", libc::SYS_msgget, "0, 0o1600"),
    ("secret-memory", libc::SYS_memfd_secret, "-1"),
    ("setns", libc::SYS_setns, "-1, 0"),
    ("pivot_root", libc::SYS_pivot_root, "b'/nonexistent', b'/nonexistent'"),
    ("clone-userns", libc::SYS_clone, "0x10000011, 0, 0, 0, 0"),
    ("terminal-input", libc::SYS_ioctl, "0, 0x5412, b'x'"),
    ("terminal-paste", libc::SYS_ioctl, "0, 0x541c, b'x'"),
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
        for exec in
            [ExecRule::NoExec, ExecRule::Exec { network: false }, ExecRule::Exec { network: true }]
        {
            if exec.network() && kernel.abi() < LEAST_ABI {
                continue;
            }
            let mut spec = confine::python(&kernel_doors(), ground.tree(Rights::WRITE_TREE));
            spec.exec = exec;
            spec.grants.connect_ports = if exec.network() { vec![1] } else { Vec::new() };
            spec.cwd = ground.path("tree");
            let results = numbers(&succeed_on(kernel, &spec));
            assert_eq!(results.len(), CALLS.len() + NAMED.len());
            let open: Vec<_> = results.iter().filter(|(_, number)| **number != EPERM).collect();
            assert!(open.is_empty(), "{kernel:?} {exec:?}: {open:?}");
        }
    }
}

/// What the daemon's filter leaves open of these doors, and a thread's filter shuts: they are in the
/// table of the escape suite.
const THE_DAEMONS: [&str; 4] = ["setpgid", "utime", "death-signal", "signal-daemon"];

#[test]
fn the_daemons_own_filter_which_lies_below_every_row_shuts_all_but_what_a_daemon_does() {
    let output = std::process::Command::new(super::PROBE)
        .args(["raw", &kernel_doors()])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the probe starts");
    let results = numbers(&String::from_utf8_lossy(&output.stdout));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(results.len(), CALLS.len() + NAMED.len(), "{errors}");
    let open: Vec<_> = results
        .iter()
        .filter(|(name, number)| **number != EPERM && !THE_DAEMONS.contains(&name.as_str()))
        .collect();
    // Without a tree that it may write, what makes or changes a file ends at Landlock.
    assert!(open.is_empty(), "{open:?}");
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
