//! Where everything of a binding is, below either manager.

use std::path::{Path, PathBuf};

use crate::plan::is_ours;
use crate::{Error, Program};

/// Whose manager runs the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The machine's.
    System,
    /// A person's.
    User,
}

impl Scope {
    /// How the manager is told something.
    #[must_use]
    pub fn systemctl(self) -> &'static str {
        match self {
            Self::System => "systemctl",
            Self::User => "systemctl --user",
        }
    }
}

/// The places of one program for one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Whose manager.
    pub scope: Scope,
    /// Where units of the administrator, or of the person, are.
    pub unit_folder: PathBuf,
    /// Where a package puts them.
    pub package_folder: PathBuf,
    /// The binding's configuration and secrets.
    pub config: PathBuf,
    /// What the program keeps.
    pub state: PathBuf,
    /// The folder of the executor's socket.
    pub runtime: PathBuf,
    /// What the units bind besides, for the roots.
    pub roots: Option<PathBuf>,
    /// Where systemd puts the service's credentials.
    pub credentials: PathBuf,
    program: String,
    name: String,
}

/// A binding's name: 1 to 32 lower-case letters, digits and `-`.
///
/// # Errors
/// What to write instead.
pub fn name(text: &str) -> Result<String, String> {
    let fits = (1..=32).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("write 1 to 32 lower-case letters, digits and `-`".to_owned())
    }
}

impl Layout {
    /// The places of a program for a binding.
    ///
    /// # Errors
    /// When the person's home is not known.
    pub fn new(program: &str, name: &str, scope: Scope) -> Result<Self, Error> {
        match scope {
            Scope::System => Ok(Self::system(program, name)),
            Scope::User => {
                let home =
                    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
                let home = home
                    .ok_or_else(|| Error::Refused("HOME is not set; --user needs it".to_owned()))?;
                let layout = Self::user(program, name, &home, nix::unistd::getuid().as_raw());
                layout.is_where_the_units_look()?;
                Ok(layout)
            }
        }
    }

    /// The units of a person name their folders below the home, whatever a shell's variables say.
    fn is_where_the_units_look(&self) -> Result<(), Error> {
        let parent = |path: &Path| path.ancestors().nth(2).unwrap_or(path).to_owned();
        for (variable, folder) in [
            ("XDG_CONFIG_HOME", parent(&self.config)),
            ("XDG_STATE_HOME", parent(&self.state)),
            ("XDG_RUNTIME_DIR", parent(&self.runtime)),
        ] {
            if std::env::var_os(variable).is_some_and(|set| !set.is_empty() && *set != *folder) {
                return Err(Error::Refused(format!(
                    "{variable} names another folder than {}, where the units look; unset it for this command, \
                     and keep Sage's files there",
                    folder.display()
                )));
            }
        }
        Ok(())
    }

    /// Below the system's manager.
    #[must_use]
    pub fn system(program: &str, name: &str) -> Self {
        Self {
            scope: Scope::System,
            unit_folder: "/etc/systemd/system".into(),
            package_folder: "/usr/lib/systemd/system".into(),
            config: Path::new("/etc/sage").join(name),
            state: Path::new("/var/lib").join(program).join(name),
            runtime: Path::new("/run/sage").join(name),
            roots: Some(Path::new("/srv/sage").join(name)),
            credentials: format!("/run/credentials/{program}@{name}.service").into(),
            program: program.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Below a person's manager.
    #[must_use]
    pub fn user(program: &str, name: &str, home: &Path, uid: u32) -> Self {
        let runtime = PathBuf::from(format!("/run/user/{uid}"));
        Self {
            scope: Scope::User,
            unit_folder: home.join(".config/systemd/user"),
            package_folder: "/usr/lib/systemd/user".into(),
            config: home.join(".config/sage").join(name),
            state: home.join(".local/state").join(program).join(name),
            runtime: runtime.join("sage").join(name),
            roots: None,
            credentials: runtime.join(format!("credentials/{program}@{name}.service")),
            program: program.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The name of a unit of this binding.
    #[must_use]
    pub fn unit(&self, kind: &str) -> String {
        format!("{}@{}.{kind}", self.program, self.name)
    }

    /// Whether a path is below one that the units bind already.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        ["/usr", "/etc/ssl", "/etc/ca-certificates"].iter().any(|base| path.starts_with(base))
    }

    /// The program's units for this manager.
    pub(crate) fn units(&self, program: &Program) -> &'static [(&'static str, &'static str)] {
        match self.scope {
            Scope::System => program.system,
            Scope::User => program.user,
        }
    }

    /// Whether a package brought every unit.
    pub(crate) fn packaged(&self, program: &Program) -> bool {
        self.units(program).iter().all(|(file, _)| self.package_folder.join(file).is_file())
    }

    pub(crate) fn drop_in_folder(&self) -> PathBuf {
        self.unit_folder.join(format!("{}.d", self.unit("service")))
    }

    /// What the configuration of this binding needs beyond the units.
    #[must_use]
    pub fn drop_in(&self) -> PathBuf {
        self.drop_in_folder().join("50-sage.conf")
    }

    /// Whether another binding of this program was installed here.
    pub(crate) fn others(&self, own: &Path) -> Result<bool, Error> {
        let folder = match std::fs::read_dir(&self.unit_folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(Error::Refused(format!("{}: {error}", self.unit_folder.display())));
            }
        };
        let begin = format!("{}@", self.program);
        let found = folder.flatten().any(|entry| {
            let drop_in = entry.path().join("50-sage.conf");
            entry.file_name().to_string_lossy().starts_with(&begin)
                && drop_in != own
                && is_ours(&drop_in)
        });
        Ok(found)
    }
}
