//! Which remote-tracking branch a branch follows, by the repository's own configuration.
//!
//! gix would say so itself, but not of a repository that is opened at reduced trust, as ours are.

/// A repository's configuration, as far as it is about branches and remotes.
#[derive(Debug, Clone, Default)]
pub struct Upstreams(Vec<(String, String)>);

impl Upstreams {
    /// From `(section.sub.key, value)` pairs, as [`super::repo::config`] reads them.
    #[must_use]
    pub fn of(config: Vec<(String, String)>) -> Self {
        Self(config)
    }

    /// The last value of a key.
    fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The full name of the ref that a branch, by its full name, follows.
    #[must_use]
    pub fn follows(&self, branch: &str) -> Option<String> {
        let short = branch.strip_prefix("refs/heads/")?;
        let remote = self.value(&format!("branch.{short}.remote"))?;
        let merge = self.value(&format!("branch.{short}.merge"))?;
        if remote == "." {
            return Some(merge.to_owned());
        }
        let key = format!("remote.{remote}.fetch");
        let refspecs = self.0.iter().filter(|(name, _)| *name == key);
        refspecs.filter_map(|(_, refspec)| mapped(refspec, merge)).next()
    }
}

/// Where a fetch refspec puts a ref of the remote.
fn mapped(refspec: &str, name: &str) -> Option<String> {
    let (from, to) = refspec.trim_start_matches('+').split_once(':')?;
    match (from.split_once('*'), to.split_once('*')) {
        (None, None) => (from == name).then(|| to.to_owned()),
        (Some((from_head, from_tail)), Some((to_head, to_tail))) => {
            let middle = name.strip_prefix(from_head)?.strip_suffix(from_tail)?;
            Some(format!("{to_head}{middle}{to_tail}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Upstreams;

    #[test]
    fn a_branch_follows_what_its_configuration_says() {
        let pairs = [
            ("branch.main.remote", "origin"),
            ("branch.main.merge", "refs/heads/main"),
            ("branch.local.remote", "."),
            ("branch.local.merge", "refs/heads/main"),
            ("branch.Odd/Name.remote", "other"),
            ("branch.Odd/Name.merge", "refs/heads/x"),
            ("branch.half.remote", "origin"),
            ("remote.origin.fetch", "+refs/tags/*:refs/odd/*"),
            ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
            ("remote.other.fetch", "refs/heads/x:refs/remotes/other/y"),
        ];
        let config = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let upstreams = Upstreams::of(config);
        for (branch, follows) in [
            ("refs/heads/main", Some("refs/remotes/origin/main")),
            ("refs/heads/local", Some("refs/heads/main")),
            ("refs/heads/Odd/Name", Some("refs/remotes/other/y")),
            ("refs/heads/half", None),
            ("refs/heads/none", None),
            ("refs/tags/main", None),
        ] {
            assert_eq!(upstreams.follows(branch).as_deref(), follows, "{branch}");
        }
    }
}
