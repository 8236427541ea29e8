//! Installs the systemd units of a program for one binding, and takes them away again.
//!
//! Both programs bring their units and say what a configuration needs beyond them; everything that is
//! done about it is here. What must stay true: a plan is complete and checked before its first step; no
//! file is replaced or removed that was not written here, or was changed since; and records, tokens and
//! configurations are never touched.

pub mod dropin;
pub mod layout;
pub mod plan;

use std::path::{Path, PathBuf};

use clap::Args;
use dropin::Needs;
use layout::{Layout, Scope};
use plan::{Plan, Step};

/// A program that has units.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its name, and the first part of its units' names.
    pub name: &'static str,
    /// The unit that is enabled for a binding: `socket` or `service`.
    pub enabled: &'static str,
    /// Its units below the system's manager: file name and text.
    pub system: &'static [(&'static str, &'static str)],
    /// Its units below a person's manager.
    pub user: &'static [(&'static str, &'static str)],
    /// The lines of sysusers.d for all of Sage's users; the one of this program's name is taken.
    pub sysusers: &'static str,
    /// The lines of tmpfiles.d.
    pub tmpfiles: &'static str,
}

/// What both commands take.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The binding's name: the units are PROGRAM@NAME.
    #[arg(value_parser = layout::name)]
    pub name: String,
    #[command(flatten)]
    scope: ScopeArguments,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ScopeArguments {
    /// Below your own manager (`systemctl --user`).
    #[arg(long)]
    user: bool,
    /// Below the system's manager, as root.
    #[arg(long)]
    system: bool,
}

impl Arguments {
    /// Does what is planned, or prints it, on standard output.
    ///
    /// # Errors
    /// When somebody else than root changes the machine's units, or a step fails.
    pub fn carry_out(&self, plan: &Plan) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        if self.dry_run {
            // When nobody reads it there is nobody to tell.
            let _ = plan.show(&mut out);
            return Ok(());
        }
        if self.scope.system && !nix::unistd::geteuid().is_root() {
            let why = "only root changes the machine's units: run it with sudo, or take --user; \
                       --dry-run shows what it would do";
            return Err(Error::Refused(why.to_owned()));
        }
        plan.perform(&mut out)
    }

    /// Where everything is for this binding.
    ///
    /// # Errors
    /// When the person's home or runtime folder is not known.
    pub fn layout(&self, program: &Program) -> Result<Layout, Error> {
        let scope = if self.scope.user { Scope::User } else { Scope::System };
        Layout::new(program.name, &self.name, scope)
    }
}

/// Why nothing was done, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked cannot be done; nothing was.
    #[error("{0}")]
    Refused(String),
    /// A step failed; those before it were said and stand.
    #[error("{step}: {why}")]
    Failed {
        /// What was to be done.
        step: String,
        /// What the system said.
        why: String,
    },
}

impl Error {
    /// Whether nothing was done.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// The units know where the program's socket and records are, and a configuration must say the same.
///
/// # Errors
/// When it says something else.
pub fn expect(file: &Path, key: &str, has: &Path, wanted: &Path) -> Result<(), Error> {
    if has == wanted {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{}: `{key}` is {}, and the units have {}; write that",
        file.display(),
        has.display(),
        wanted.display()
    )))
}

/// Plans the installation of a program's units for a binding.
///
/// # Errors
/// When a path cannot be said in a unit, or a file in the way is not ours.
pub fn install(
    program: &Program,
    layout: &Layout,
    needs: &Needs,
    exe: &Path,
) -> Result<Plan, Error> {
    let mut plan = Plan::new(program.name);
    let mut needs = needs.clone();
    let packaged = layout.packaged(program);
    if packaged {
        plan.note(format!("the package's units in {} are used", layout.package_folder.display()));
    } else {
        let shown = dropin::word(exe)?;
        for (file, text) in layout.units(program) {
            let text = text.replace(&format!("/usr/bin/{} ", program.name), &format!("{shown} "));
            plan.write(layout.unit_folder.join(file), &text)?;
        }
        needs.read(exe);
        if layout.scope == Scope::System {
            system_files(program, &mut plan)?;
        }
    }
    if layout.scope == Scope::User {
        plan.step(Step::Folder(layout.state.clone()));
    }
    plan.write(layout.drop_in(), &needs.render(layout)?)?;
    plan.step(Step::Systemctl(layout.scope, vec!["daemon-reload".to_owned()]));
    let unit = layout.unit(program.enabled);
    plan.next(format!("{} enable --now {unit}", layout.scope.systemctl()));
    Ok(plan)
}

fn system_files(program: &Program, plan: &mut Plan) -> Result<(), Error> {
    let user = format!("u {} ", program.name);
    let line: String = program
        .sysusers
        .lines()
        .filter(|line| line.starts_with(&user))
        .fold(String::new(), |all, line| all + line + "\n");
    for (folder, text, tool) in [
        ("/etc/sysusers.d", line.as_str(), "systemd-sysusers"),
        ("/etc/tmpfiles.d", program.tmpfiles, "systemd-tmpfiles"),
    ] {
        let path = PathBuf::from(folder).join(format!("{}.conf", program.name));
        plan.write(path.clone(), text)?;
        let create = (tool == "systemd-tmpfiles").then(|| "--create".to_owned());
        let arguments = create.into_iter().chain([path.display().to_string()]).collect();
        plan.step(Step::Command(tool, arguments));
    }
    Ok(())
}

/// Plans to take away what [`install`] wrote for a binding. The units themselves go with the last
/// binding that used them.
///
/// # Errors
/// When a folder cannot be read.
pub fn uninstall(program: &Program, layout: &Layout) -> Result<Plan, Error> {
    let mut plan = Plan::new(program.name);
    let drop_in = layout.drop_in();
    let installed = plan::is_ours(&drop_in);
    if installed {
        let mut stop = vec!["disable".to_owned(), "--now".to_owned()];
        let kinds = layout.units(program).iter().filter_map(|(file, _)| file.rsplit_once('.'));
        stop.extend(kinds.map(|(_, kind)| layout.unit(kind)));
        plan.step(Step::Systemctl(layout.scope, stop));
    }
    plan.remove(drop_in.clone());
    plan.step(Step::RemoveFolder(layout.drop_in_folder()));
    if layout.others(&drop_in)? {
        plan.note("the units stay: other bindings use them".to_owned());
    } else {
        for (file, _) in layout.units(program) {
            plan.remove(layout.unit_folder.join(file));
        }
        if layout.scope == Scope::System {
            for folder in ["/etc/sysusers.d", "/etc/tmpfiles.d"] {
                plan.remove(PathBuf::from(folder).join(format!("{}.conf", program.name)));
            }
        }
    }
    if plan.is_idle() {
        plan.note(format!("nothing of {} is installed here", layout.unit("service")));
    } else {
        plan.step(Step::Systemctl(layout.scope, vec!["daemon-reload".to_owned()]));
        plan.note(format!("kept: {}, {}", layout.config.display(), layout.state.display()));
    }
    Ok(plan)
}
