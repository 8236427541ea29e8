//! Paths: relative to a root, parsed once.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use protocol::refusal::{Code, Refusal};

/// The longest path, in bytes: what the kernel takes, less its closing NUL.
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest segment, in bytes: what common file systems take.
pub const MAX_SEGMENT_BYTES: usize = 255;

/// A path relative to a root that names something strictly below it.
///
/// UTF-8, `/`-separated, not empty; no empty, `.`, `..` or otherwise dot-prefixed segment; no
/// control characters. It is data about where to look, not a promise that something is there:
/// symbolic links are the opener's business.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(String);

impl RelPath {
    /// Parses a path as a caller wrote it.
    ///
    /// # Errors
    /// `invalid_path`, naming the rule.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match broken_rule(text) {
            None => Ok(Self(text.to_owned())),
            Some(rule) => Err(Refusal::new(
                Code::InvalidPath,
                format!("The path {} {rule}.", shown(text)),
                "Give a path relative to the root, like `notes/plan.md`.",
            )),
        }
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder that holds it; `None` for the root itself.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    /// Its last segment.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn broken_rule(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("is empty");
    }
    if text.len() > MAX_PATH_BYTES {
        return Some("is longer than 4095 bytes");
    }
    if text.starts_with('/') {
        return Some("is absolute");
    }
    if text.chars().any(char::is_control) {
        return Some("holds a control character");
    }
    text.split('/').find_map(|segment| match segment {
        "" => Some("has an empty segment"),
        ".." => Some("has a `..` segment"),
        _ if segment.starts_with('.') => Some("has a segment that starts with a dot"),
        _ if segment.len() > MAX_SEGMENT_BYTES => Some("has a segment longer than 255 bytes"),
        _ => None,
    })
}

/// A caller's text inside a message: quoted, flattened, short, and without credentials.
#[must_use]
pub fn shown(text: &str) -> String {
    let masked = crate::secret::mask(text);
    let mut short: String = masked.chars().take(120).collect();
    if short.len() < masked.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// A pattern over paths, as ripgrep and .gitignore know them; `*` stays within a segment.
#[derive(Debug, Clone)]
pub struct PathGlob(GlobMatcher);

impl PathGlob {
    /// Parses a pattern as a caller or the configuration wrote it.
    ///
    /// # Errors
    /// `invalid_path`, saying what is wrong with the pattern.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let refuse = |why: String| {
            Refusal::new(
                Code::InvalidPath,
                format!("The glob {} {why}.", shown(text)),
                "Give a pattern like `**/*.md`.",
            )
        };
        if text.is_empty() || text.len() > 512 {
            return Err(refuse("is empty or longer than 512 bytes".to_owned()));
        }
        GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| refuse(format!("does not parse: {}", error.kind())))
    }

    /// Whether a path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use protocol::refusal::Code;

    use super::{PathGlob, RelPath};

    #[test]
    fn ordinary_paths_are_taken_as_they_are() {
        for path in
            ["a", "a/b.md", "Bücher/文件.md", "a -> b", " lead", "trail ", "-x", "a\\b", "x..y"]
        {
            assert_eq!(RelPath::parse(path).map(|p| p.as_str().to_owned()), Ok(path.to_owned()));
        }
    }

    #[test]
    fn each_rule_refuses_by_name() {
        let long = "a".repeat(256);
        let deep = "a/".repeat(2100);
        for (path, rule) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("../x", "`..`"),
            ("a/../b", "`..`"),
            ("a/./b", "starts with a dot"),
            (".git/config", "starts with a dot"),
            ("a/.hidden", "starts with a dot"),
            ("a//b", "empty segment"),
            ("a/", "empty segment"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            ("a\u{85}b", "control"),
            (long.as_str(), "255"),
            (deep.as_str(), "4095"),
        ] {
            let refusal = RelPath::parse(path).expect_err(path);
            assert_eq!(refusal.code, Code::InvalidPath);
            assert!(refusal.message.contains(rule), "{path:?}: {}", refusal.message);
        }
    }

    #[test]
    fn a_star_stays_within_its_segment() {
        let glob = PathGlob::parse("tools/**").expect("it parses");
        assert!(glob.matches("tools/a/b.py") && !glob.matches("toolsx/a"));
        let flat = PathGlob::parse("*.md").expect("it parses");
        assert!(flat.matches("a.md") && !flat.matches("a/b.md"));
    }

    proptest! {
        #[test]
        fn no_accepted_path_leaves_the_root(text in any::<String>()) {
            if let Ok(path) = RelPath::parse(&text) {
                let mut depth = 0_i32;
                for segment in std::path::Path::new(path.as_str()).components() {
                    assert!(matches!(segment, std::path::Component::Normal(_)), "{text:?}");
                    depth += 1;
                }
                assert!(depth > 0);
                assert!(!path.as_str().contains('\0'));
            }
        }
    }
}
