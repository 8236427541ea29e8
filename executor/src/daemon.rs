//! Start-up: a straight, visible, irreversible sequence. It fails closed.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::audit::Audit;
use crate::config::Config;
use crate::git::{skeleton, stage};
use crate::manager;
use crate::outcomes::Outcomes;
use crate::server::{Executor, serve};
use crate::stop;
use crate::tools::files;
use crate::workplace::{self, Workplace};
use confine::daemon::DaemonPlan;
use confine::kernel::KernelSupport;

/// How many descriptors the process may have open.
const OPEN_FILES: u64 = 1024;

/// Starts the executor and serves until SIGTERM or SIGINT.
///
/// # Errors
/// Why it does not start, and what to do.
pub fn run(config: &Path) -> anyhow::Result<()> {
    let config = Config::load(config)?;
    let peers = workplace::peers(&config).map_err(anyhow::Error::msg)?;
    make_state_dir(&config.state_dir)?;
    let passed = manager::passed_socket(&config.socket)?;
    let is_ours = passed.is_none();
    let listener = passed.map_or_else(|| listen(&config.socket), Ok)?;

    let kernel = KernelSupport::detect().allow_degraded(config.allow_degraded);
    let mut workplace = Workplace::open(&config, &kernel).map_err(anyhow::Error::msg)?;
    let audit = Audit::open(&config.state_dir, config.limits.max_audit_bytes)
        .context("the audit cannot be opened")?;
    let stops = stop::Watch::of(&config.state_dir).context(
        "a stop could not be noticed: stateDir cannot be watched; raise fs.inotify.max_user_instances",
    )?;
    let outcomes = Outcomes::open(&config.state_dir).context("the outcomes cannot be opened")?;
    skeleton::remove_leftovers(&config.state_dir).context("leftovers cannot be removed")?;

    // From here on there is no way back, and no second thread yet.
    let mut grants = workplace.daemon_grants();
    grants.files.extend(manager::grant());
    let plan = DaemonPlan { grants, kernel, open_files: OPEN_FILES };
    let enforced = confine::daemon::enter(&plan)?;
    for missing in enforced.degraded() {
        tracing::warn!(
            missing,
            "DEGRADED: the kernel does not enforce this, and the configuration allows it"
        );
    }
    workplace.degraded = enforced.degraded().iter().map(ToString::to_string).collect();

    put_right(&workplace, &audit, &outcomes)?;
    audit.append(
        "started",
        serde_json::json!({
            "landlockAbi": enforced.abi(),
            "degraded": workplace.degraded,
            "stopped": stop::standing(&config.state_dir),
        }),
    )?;
    if let (None, Some(by)) =
        (stop::standing(&config.state_dir), stop::take_resumed(&config.state_dir))
    {
        audit.append("resumed", serde_json::json!({"order": by}))?;
    }
    audit.tell_head();
    let executor = Arc::new(Executor::new(workplace, audit, outcomes, peers));
    executor.look_for_stop();
    let looking = Arc::clone(&executor);
    stops.keep(move || drop(looking.look_for_stop()))?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(
        async move {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            // Before anyone is told that it is ready: until then a signal ends the process at once.
            let shutdown = shutdown()?;
            tracing::info!(abi = enforced.abi(), "ready");
            manager::ready();
            serve(listener, executor, shutdown).await
        },
    )?;
    if is_ours {
        let _ = fs::remove_file(&config.socket);
    }
    Ok(())
}

/// Finishes or removes what a killed process left, and says so in the audit.
fn put_right(workplace: &Workplace, audit: &Audit, outcomes: &Outcomes) -> anyhow::Result<()> {
    for recovered in stage::recover(workplace, outcomes).map_err(anyhow::Error::msg)? {
        audit.append("recovered", serde_json::to_value(&recovered)?)?;
    }
    for root in workplace.roots.iter().filter(|root| root.is_writable()) {
        let removed = root.write(|| Ok(files::remove_leftovers(&root.path)));
        let removed = removed.map_err(|failure| anyhow::anyhow!("{}: {failure:?}", root.name))?;
        if removed > 0 {
            audit.append(
                "removed_leftovers",
                serde_json::json!({"root": root.name, "files": removed}),
            )?;
        }
    }
    Ok(())
}

fn make_state_dir(path: &Path) -> anyhow::Result<()> {
    if !path.exists() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("stateDir {} cannot be made", path.display()))?;
    }
    check_state_dir(path)
}

/// Whether the state directory is this user's alone.
///
/// # Errors
/// What is wrong; after the last `; `, how to fix it.
pub fn check_state_dir(path: &Path) -> anyhow::Result<()> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("stateDir {}", path.display()))?;
    let me = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != me || metadata.mode() & 0o077 != 0 {
        bail!(
            "stateDir {0} must be a folder of this user with mode 0700; run `chown {me} {0} && chmod 0700 {0}`",
            path.display()
        );
    }
    Ok(())
}

/// Whether nobody else can put another socket in the place of ours.
///
/// # Errors
/// What is wrong; after the last `; `, how to fix it.
pub fn check_socket_dir(socket: &Path) -> anyhow::Result<()> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let metadata = fs::metadata(folder)
        .with_context(|| format!("the socket's folder {}", folder.display()))?;
    let me = rustix::process::geteuid().as_raw();
    if (metadata.uid() != me && metadata.uid() != 0) || metadata.mode() & 0o002 != 0 {
        bail!(
            "the socket's folder {0} can be changed by others; run `chown {me} {0} && chmod o-w {0}`",
            folder.display()
        );
    }
    Ok(())
}

/// Listens on the socket. Its folder decides who could put another socket in its place.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    check_socket_dir(socket)?;
    if let Ok(found) = fs::symlink_metadata(socket) {
        if !found.file_type().is_socket() {
            bail!("{} is there and is no socket; move it away", socket.display());
        }
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            bail!("another executor serves on {}; stop it first", socket.display());
        }
        fs::remove_file(socket)?;
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("{}", socket.display()))?;
    // Who may connect is decided by SO_PEERCRED; the folder's mode narrows it further.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

fn shutdown() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        manager::stopping();
    })
}
