//! `sage-executor install` and `uninstall`: the systemd units of a binding.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protocol::printable::one_line;
use setup::dropin::Needs;
use setup::layout::Layout;
use setup::{Arguments, Error, Program};

use super::exit;
use crate::config::{Config, GitConfig};

/// The units that this program brings.
static PROGRAM: Program = Program {
    name: "sage-executor",
    enabled: "socket",
    system: &[
        ("sage-executor@.service", include_str!("../../../systemd/sage-executor@.service")),
        ("sage-executor@.socket", include_str!("../../../systemd/sage-executor@.socket")),
    ],
    user: &[
        ("sage-executor@.service", include_str!("../../../systemd/user/sage-executor@.service")),
        ("sage-executor@.socket", include_str!("../../../systemd/user/sage-executor@.socket")),
    ],
    sysusers: include_str!("../../../systemd/sysusers.conf"),
    tmpfiles: include_str!("../../../systemd/tmpfiles.conf"),
};

/// Installs.
pub fn install(arguments: &Arguments) -> ExitCode {
    told((|| {
        let layout = arguments.layout(&PROGRAM)?;
        let needs = needs(&layout)?;
        let exe = std::env::current_exe().map_err(|error| Error::Refused(error.to_string()))?;
        arguments.carry_out(&setup::install(&PROGRAM, &layout, &needs, &exe)?)
    })())
}

/// Takes away what was installed.
pub fn uninstall(arguments: &Arguments) -> ExitCode {
    told((|| {
        let layout = arguments.layout(&PROGRAM)?;
        arguments.carry_out(&setup::uninstall(&PROGRAM, &layout)?)
    })())
}

fn told(done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is_refusal() { exit::USAGE } else { exit::FAULT };
            exit::because(code, one_line(&error.to_string()))
        }
    }
}

/// What the configuration of a binding needs beyond the units.
fn needs(layout: &Layout) -> Result<Needs, Error> {
    let path = layout.config.join("executor.json");
    let shown = path.display();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Error::Refused(format!("{shown}: {error}; write it first, `sage-executor init` begins one"))
    })?;
    let config =
        Config::parse(&text).map_err(|problem| Error::Refused(format!("{shown}:{problem}")))?;
    setup::expect(&path, "socket", &config.socket, &layout.runtime.join("executor.sock"))?;
    setup::expect(&path, "stateDir", &config.state_dir, &layout.state)?;
    let mut needs = Needs::default();
    let read = |needs: &mut Needs, path: &Path| {
        // The units bind the whole folder of the configuration.
        if !path.starts_with(&layout.config) {
            needs.read(path);
        }
    };
    for root in &config.roots {
        if root.write {
            needs.write(&root.path);
        } else {
            needs.read(&root.path);
        }
        let Some(GitConfig::Full(git)) = &root.git else { continue };
        if let Some(token) = &git.token_file {
            needs.secret(layout, token);
        }
        if Path::new(&git.remote).is_absolute() {
            needs.write(Path::new(&git.remote));
        }
        git.ca_file.iter().for_each(|path| read(&mut needs, path));
    }
    let web = config.web.iter().filter_map(|web| web.ca_file.as_ref());
    let programs: [&Option<PathBuf>; 2] = [&config.git_program, &config.python_program];
    web.chain(programs.into_iter().flatten()).for_each(|path| read(&mut needs, path));
    Ok(needs)
}
