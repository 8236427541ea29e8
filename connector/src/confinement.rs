//! What the connector itself may reach: its binding's folder, the executor's socket, names, and the
//! ports of Discord and of the model. Nothing else, for good, before the first word from outside is read.
//!
//! It has to be entered while there is one thread. What is read before is not granted: the bot's token,
//! the model's key, certificates, context files. The binding itself is granted as a file, for a reload: one
//! that was replaced by another file is another file, and takes a restart.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use confine::daemon::{DaemonPlan, enter};
use confine::grants::{self, Grant, Grants, Rights};
use confine::kernel::KernelSupport;

use crate::binding::Binding;
use crate::engine::AnyEngine;

/// How many descriptors the process may have open.
const OPEN_FILES: u64 = 1024;

/// DNS over TCP: there is no UDP.
const DNS_PORT: u16 = 53;

/// Where names are looked up.
const NAMES: [&str; 6] = [
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/run/systemd/resolve",
];

/// Starts this program anew when its C library would ask for names over UDP, which it must not: the
/// library reads that from the environment, and once.
///
/// # Errors
/// When it cannot be started anew.
pub fn names_over_tcp() -> io::Result<()> {
    let options = std::env::var("RES_OPTIONS").unwrap_or_default();
    if options.split_whitespace().any(|option| option == "use-vc") {
        return Ok(());
    }
    let options = format!("{options} use-vc");
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "sage-connector".into());
    Err(Command::new(std::env::current_exe()?)
        .arg0(name)
        .args(arguments)
        .env("RES_OPTIONS", options.trim())
        .exec())
}

/// What a binding needs. `discord` says whether Discord is talked to.
///
/// # Errors
/// When the engine's child cannot be read.
pub fn plan(
    path: &Path,
    binding: &Binding,
    engine: &AnyEngine,
    discord: bool,
) -> Result<DaemonPlan> {
    let mut grants = Grants { files: files(path, binding), connect_ports: Vec::new() };
    grants.connect_ports.extend(engine.ports());
    if let Some(section) = binding.discord.as_ref().filter(|_| discord) {
        grants.connect_ports.extend(section.ports());
    }
    if !grants.connect_ports.is_empty() {
        grants.connect_ports.push(DNS_PORT);
        let name = |path| Grant::optional(path, Rights::READ, "looking names up");
        grants.files.extend(NAMES.map(name));
        grants.files.extend(grants::system_libraries());
    }
    let child = engine.child_grants().context("the engine's program cannot be read")?;
    if !child.files.is_empty() {
        let own = std::env::current_exe().context("this program has no file")?;
        grants.files.extend(grants::program(&own, "the engine's child starts as this program")?);
        grants.files.extend(grants::system_libraries());
    }
    grants.extend(&child);
    grants.connect_ports.sort_unstable();
    grants.connect_ports.dedup();
    let kernel = KernelSupport::detect().allow_degraded(binding.allow_degraded);
    Ok(DaemonPlan { grants, kernel, open_files: OPEN_FILES })
}

fn files(path: &Path, binding: &Binding) -> Vec<Grant> {
    let mut files = vec![
        Grant::new(binding.folder(), Rights::WRITE_TREE, "the journal"),
        Grant::new(path, Rights::READ_FILE, "a reload of the binding"),
        grants::dev_null(),
    ];
    // The folder and not the socket: one that is made anew is another file.
    let socket = binding.executor.socket.parent().unwrap_or(Path::new("/"));
    files.push(Grant::optional(socket, Rights::CONNECT_UNIX, "the executor"));
    let manager = std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from);
    files.extend(
        manager
            .filter(|path| path.is_absolute())
            .map(|path| Grant::optional(path, Rights::CONNECT_UNIX, "telling the service manager")),
    );
    files
}

/// Confines the process.
///
/// # Errors
/// A step failed or does not hold; the process must end.
pub fn confine(path: &Path, binding: &Binding, engine: &AnyEngine, discord: bool) -> Result<()> {
    let enforced = enter(&plan(path, binding, engine, discord)?)?;
    for missing in enforced.degraded() {
        tracing::warn!(
            missing,
            "DEGRADED: the kernel does not enforce this, and the binding allows it"
        );
    }
    tracing::debug!(abi = enforced.abi(), "confined");
    Ok(())
}
