//! What one child can reach and what it is given.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use ::confine::child::ExecRule;
use ::confine::grants::{self, Grant, Rights};
use harness::confine::{self, Ground};

use super::{ALLOWED, EACCES, EPERM, expect, run, succeed};

#[test]
fn a_child_reads_and_writes_exactly_what_it_was_granted() {
    let ground = Ground::new();
    let code = format!(
        "
attempt('read-inside', lambda: open('{0}/tree/inside').read())
attempt('read-outside', lambda: open('{0}/outside').read())
attempt('read-dotted', lambda: open('{0}/tree/../outside').read())
attempt('write-inside', lambda: open('{0}/tree/inside', 'a'))
attempt('truncate', lambda: os.truncate('{0}/tree/inside', 0))
attempt('make', lambda: os.mkdir('{0}/tree/folder'))
",
        ground.path("tree").parent().expect("it lies in a folder").display()
    );
    let expected = |inside| {
        [
            ("read-inside", ALLOWED),
            ("read-outside", EACCES),
            ("read-dotted", EACCES),
            ("write-inside", inside),
            ("truncate", inside),
            ("make", inside),
        ]
    };
    expect(&succeed(&confine::python(&code, ground.tree(Rights::READ))), &expected(EACCES));
    expect(&succeed(&confine::python(&code, ground.tree(Rights::WRITE_TREE))), &expected(ALLOWED));
}

#[test]
fn a_no_exec_child_starts_nothing_and_an_exec_child_what_it_was_granted() {
    let code = "
attempt('fork', lambda: os.fork() or os._exit(0))
attempt('execve', lambda: os.execve('/bin/true', ['true'], {}))
";
    let granted =
        || grants::program(Path::new("/bin/true"), "something to run").expect("it is ELF");
    let mut spec = confine::python(code, granted());
    spec.exec = ExecRule::NoExec;
    expect(&succeed(&spec), &[("fork", EPERM), ("execve", EPERM)]);
    let without = confine::python(code, Vec::new());
    expect(&succeed(&without), &[("fork", ALLOWED), ("execve", EACCES)]);
    // A successful execve says nothing more.
    expect(&succeed(&confine::python(code, granted())), &[("fork", ALLOWED)]);
}

#[test]
fn a_no_exec_child_has_threads_all_the_same() {
    let mut spec = confine::python(
        "import threading; t = threading.Thread(target=lambda: print('ran')); t.start(); t.join()",
        Vec::new(),
    );
    spec.exec = ExecRule::NoExec;
    assert_eq!(succeed(&spec), "ran\n");
}

#[test]
fn a_program_that_its_grants_do_not_let_execute_is_not_run() {
    let mut spec = confine::shell("exit 0", Vec::new());
    assert_eq!(succeed(&spec), "");
    spec.grants.files.retain(|grant| !grant.rights.contains(Rights::EXECUTE));
    let error = run(&spec).expect_err("no execution").to_string();
    assert!(error.contains("executing the program: Permission denied"), "{error}");
}

#[test]
fn a_child_asks_whether_a_process_lives_and_its_own_abort_works() {
    let code = "
attempt('self', lambda: os.kill(os.getpid(), 0))
os.abort()
";
    let output = run(&confine::python(code, Vec::new())).expect("a run");
    expect(&String::from_utf8_lossy(&output.stdout), &[("self", ALLOWED)]);
    assert_eq!(output.status.signal(), Some(6));
}

#[test]
fn a_child_has_no_privilege_left_and_cannot_regain_any() {
    let proc = Grant::new("/proc", Rights::READ, "to see for the test");
    let status = succeed(&confine::python("print(open('/proc/self/status').read())", vec![proc]));
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Umask:\t0022",
    ] {
        assert!(status.contains(line), "{line} in {status}");
    }
    // Only one who may can empty the bounding set. Without new privileges it decides nothing.
    let bounded = status.contains("CapBnd:\t0000000000000000");
    assert!(bounded || !nix::unistd::geteuid().is_root(), "{status}");
}

#[test]
fn a_child_gets_exactly_its_environment_arguments_and_three_streams() {
    let code = "
print(sorted(os.environ.items()), sys.argv[1:], sys.orig_argv[0])
is_open = lambda n: libc.fcntl(n, 1) >= 0
print([n for n in range(1024) if is_open(n)])
";
    let ground = Ground::new();
    let inherited = std::fs::File::open(ground.path("outside")).expect("a file");
    let stays = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&inherited, stays).expect("a descriptor that children inherit");
    let mut spec = confine::python(code, Vec::new());
    spec.env = vec![("NAME".into(), "a=b".into()), ("LC_ALL".into(), "C.UTF-8".into())];
    spec.args.push("--".into());
    spec.args.push("spaced word".into());
    spec.argv0 = "another name".into();
    let text = succeed(&spec);
    let env = "[('LC_ALL', 'C.UTF-8'), ('NAME', 'a=b')]";
    assert_eq!(text, format!("{env} ['--', 'spaced word'] another name\n[0, 1, 2]\n"));
    let free = confine::unconfined(code, &ground.path(""));
    assert!(!free.ends_with("[0, 1, 2]\n"), "it was there to be inherited: {free}");
}

#[test]
fn standard_input_arrives_whole_and_a_child_that_never_reads_does_not_block() {
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let mut spec = confine::shell("exec /bin/cat", Vec::new());
    spec.stdin.clone_from(&data);
    spec.max_stdout = 2 << 20;
    let output = run(&spec).expect("a run");
    assert!(output.stdout == data && !output.stdout_truncated);
    let mut spec = confine::shell("echo done", Vec::new());
    spec.stdin = data;
    assert_eq!(succeed(&spec), "done\n");
}

#[test]
fn a_flood_is_cut_at_the_bound_and_the_child_still_ends() {
    let code = "sys.stdout.write('o' * 5000000); sys.stderr.write('e' * 5000000)";
    let mut spec = confine::python(code, Vec::new());
    (spec.max_stdout, spec.max_stderr) = (1000, 10);
    let output = run(&spec).expect("a run");
    assert!(output.status.success());
    assert_eq!((output.stdout.len(), output.stderr.len()), (1000, 10));
    assert!(output.stdout_truncated && output.stderr_truncated);
    let mut spec = confine::python("print('o' * 999)", Vec::new());
    spec.max_stdout = 1000;
    let output = run(&spec).expect("a run");
    assert_eq!((output.stdout.len(), output.stdout_truncated), (1000, false));
}
