//! What one configuration needs beyond the units, as a drop-in.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::layout::{Layout, Scope};

/// What a configuration needs beyond the units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Further lines of `[Service]`.
    pub more: Vec<&'static str>,
    writes: Vec<PathBuf>,
    reads: Vec<PathBuf>,
}

impl Needs {
    /// A path is written.
    pub fn write(&mut self, path: &Path) {
        self.writes.push(path.to_owned());
    }

    /// A path is read.
    pub fn read(&mut self, path: &Path) {
        self.reads.push(path.to_owned());
    }

    /// A secret's file: a credential below the service's own folder, or a file that is read.
    pub fn secret(&mut self, layout: &Layout, path: &Path) {
        match path.strip_prefix(&layout.credentials) {
            Ok(name) => {
                let name = name.display().to_string();
                if !self.credentials.contains(&name) {
                    self.credentials.push(name);
                }
            }
            Err(_) => self.read(path),
        }
    }

    /// The drop-in's text.
    ///
    /// # Errors
    /// A path that a unit cannot say.
    pub(crate) fn render(&self, layout: &Layout) -> Result<String, Error> {
        let mut lines = vec!["[Service]".to_owned()];
        // Instead of the units' own, for a file that is not there keeps a service from starting.
        lines.push("LoadCredential=".to_owned());
        for name in &self.credentials {
            let source = word(&layout.config.join(name))?;
            lines.push(format!("LoadCredential={}:{source}", word(Path::new(name))?));
        }
        let (writes, reads) = self.binds(layout);
        let homes = ["/home", "/root", "/run/user"];
        let in_a_home = |path: &PathBuf| homes.iter().any(|home| path.starts_with(home));
        // The units say `yes`, below which nothing can be bound.
        if layout.scope == Scope::System && writes.iter().chain(&reads).any(in_a_home) {
            lines.push("ProtectHome=tmpfs".to_owned());
        }
        for path in writes {
            let path = word(&path)?;
            lines.extend([format!("BindPaths={path}"), format!("ReadWritePaths={path}")]);
        }
        for path in reads {
            lines.push(format!("BindReadOnlyPaths={}", word(&path)?));
        }
        lines.extend(self.more.iter().map(|line| (*line).to_owned()));
        Ok(lines.join("\n") + "\n")
    }

    /// What the units do not bind: sorted, each once, and nothing read that is written anyway.
    fn binds(&self, layout: &Layout) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let bound = |path: &Path| {
            path.starts_with(&layout.state)
                || layout.roots.as_ref().is_some_and(|roots| path.starts_with(roots))
        };
        let mut writes: Vec<PathBuf> =
            self.writes.iter().filter(|path| !bound(path)).cloned().collect();
        writes.sort();
        writes.dedup();
        let mut reads: Vec<PathBuf> =
            self.reads.iter().filter(|path| !layout.holds(path) && !bound(path)).cloned().collect();
        reads.retain(|path| !writes.iter().any(|written| path.starts_with(written)));
        reads.sort();
        reads.dedup();
        (writes, reads)
    }
}

/// A path as a word of a unit.
///
/// # Errors
/// It holds a character that units treat in their own way in some place.
pub(crate) fn word(path: &Path) -> Result<String, Error> {
    let text = path.to_str().unwrap_or("\u{0}");
    let plain = |c: char| c.is_alphanumeric() || "/._-+@,=%~".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        let problem = "a unit takes letters, digits and /._-+@,=%~ here; give it a plainer name";
        return Err(Error::Refused(format!("{}: {problem}", path.display())));
    }
    Ok(text.replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Needs, word};
    use crate::layout::Layout;

    #[test]
    fn a_path_that_a_unit_would_read_in_its_own_way_is_refused_and_a_percent_sign_is_doubled() {
        assert_eq!(word(Path::new("/srv/50%/plan")).expect("it is plain"), "/srv/50%%/plan");
        for path in
            ["/srv/a b", "/srv/a:b", "/srv/a\nUser=root", "/srv/\"a", "/srv/$A", "/srv/a\\x", ""]
        {
            word(Path::new(path)).expect_err("it cannot be said");
        }
    }

    #[test]
    fn only_what_the_units_do_not_bind_is_named_and_a_home_opens_for_it_alone() {
        let layout = Layout::system("sage-executor", "notes");
        let mut needs = Needs::default();
        needs.write(Path::new("/home/owner/strategy"));
        needs.write(Path::new("/var/lib/sage-executor/notes"));
        needs.read(Path::new("/home/owner/strategy/sub"));
        needs.write(Path::new("/srv/sage/notes/strategy"));
        needs.read(Path::new("/usr/bin/sage-executor"));
        needs.read(Path::new("/srv/library"));
        needs.secret(&layout, Path::new("/run/credentials/sage-executor@notes.service/git-token"));
        let text = needs.render(&layout).expect("it is plain");
        let expected = "[Service]\nLoadCredential=\n\
            LoadCredential=git-token:/etc/sage/notes/git-token\nProtectHome=tmpfs\n\
            BindPaths=/home/owner/strategy\nReadWritePaths=/home/owner/strategy\n\
            BindReadOnlyPaths=/srv/library\n";
        assert_eq!(text, expected);
    }
}
