//! git's words: revisions, ranges, branch names, messages, identities, remotes. Each is parsed
//! before git could read it as something else.

use std::fmt;
use std::path::PathBuf;

use protocol::refusal::{Code, Refusal};

use crate::path::shown;
use crate::secret;

/// The longest commit message, in characters.
pub const MAX_MESSAGE_CHARS: usize = 500;

/// How many paths one commit may name.
pub const MAX_COMMIT_PATHS: usize = 50;

/// One revision: a hash or a ref's name, with any number of `~N` and `^N` behind it.
///
/// Not an option, not a range, no `@{…}`, no `:path`, no search: those read reflogs, configuration
/// or files, or mean more than one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(String);

impl Revision {
    /// Parses a revision as a caller wrote it.
    ///
    /// # Errors
    /// `invalid_revision`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if is_revision(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Refusal::new(
            Code::InvalidRevision,
            format!("{} is not a revision that this tool takes.", shown(text)),
            "Give one hash, branch, tag or HEAD, with `~N` or `^N` behind it if need be.",
        ))
    }

    /// The revision as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_revision(text: &str) -> bool {
    let name_end = text.find(['~', '^']).unwrap_or(text.len());
    let (name, steps) = text.split_at(name_end);
    is_ref_name(name)
        && steps.len() <= 64
        && steps.chars().all(|c| matches!(c, '~' | '^' | '0'..='9'))
}

/// git's own rules for ref names (git-check-ref-format), and no leading dash.
fn is_ref_name(name: &str) -> bool {
    const NEVER: [char; 8] = ['~', '^', ':', '?', '*', '[', '\\', ' '];
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.chars().any(|c| c.is_control() || NEVER.contains(&c))
        && name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

/// Which commits a log covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// All that lead to this one.
    To(Revision),
    /// Those that lead to the second and not to the first.
    Between(Revision, Revision),
}

impl Range {
    /// Parses one revision, or two as `A..B`.
    ///
    /// # Errors
    /// `invalid_revision`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match text.split_once("..") {
            Some((from, to)) => Ok(Self::Between(Revision::parse(from)?, Revision::parse(to)?)),
            None => Revision::parse(text).map(Self::To),
        }
    }
}

/// What a diff compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffSpec {
    /// The index with the work tree.
    Worktree,
    /// HEAD with the index.
    Staged,
    /// One commit with another.
    Between(Revision, Revision),
}

impl DiffSpec {
    /// Parses `worktree`, `staged` (also `--staged`, `--cached`), or `A..B`.
    ///
    /// # Errors
    /// `invalid_revision`.
    pub fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        match text {
            None | Some("" | "worktree") => Ok(Self::Worktree),
            Some("staged" | "--staged" | "--cached") => Ok(Self::Staged),
            Some(range) => match Range::parse(range)? {
                Range::Between(from, to) => Ok(Self::Between(from, to)),
                Range::To(_) => Err(Refusal::new(
                    Code::InvalidRevision,
                    format!("{} is one revision; a diff needs two.", shown(range)),
                    "Say `worktree`, `staged`, or two revisions as `A..B`.",
                )),
            },
        }
    }
}

/// A branch's short name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchName(String);

impl BranchName {
    /// Parses a plain branch name: no refspec, no revision syntax.
    ///
    /// # Errors
    /// Says what a branch name may be; for the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = is_ref_name(text) && text != "HEAD" && text != "@" && !text.starts_with('+');
        if plain && !text.starts_with("refs/") {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text:?} is not a plain branch name like `main`"))
        }
    }

    /// The short name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full ref name.
    #[must_use]
    pub fn full(&self) -> String {
        format!("refs/heads/{}", self.0)
    }

    /// The remote-tracking ref of `origin`.
    #[must_use]
    pub fn tracking(&self) -> String {
        format!("refs/remotes/origin/{}", self.0)
    }
}

/// A commit message, without the trailer that names the requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMessage(String);

impl CommitMessage {
    /// Parses a message as a caller wrote it.
    ///
    /// # Errors
    /// `invalid_message` when it is empty, longer than 500 characters, holds control characters, or
    /// carries identity trailers of its own; `credential_shape` when it holds one.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim_end();
        if let Some(finding) = secret::find(text) {
            return Err(Refusal::new(
                Code::CredentialShape,
                format!("The message holds something shaped like a {}.", finding.name),
                "Write it without the credential; if it is a real one, revoke it.",
            ));
        }
        let reason = if text.trim().is_empty() {
            "The message is empty.".to_owned()
        } else if text.chars().count() > MAX_MESSAGE_CHARS {
            format!("The message has more than {MAX_MESSAGE_CHARS} characters.")
        } else if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            "The message holds a control character.".to_owned()
        } else if let Some(trailer) = text.lines().find_map(identity_trailer) {
            format!("The message carries a trailer {trailer:?} of its own.")
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(Refusal::new(
            Code::InvalidMessage,
            reason,
            "Say in 1 to 500 characters what changes and why; the requester's trailer is added.",
        ))
    }

    /// The message with the trailer that names the requester.
    #[must_use]
    pub fn with_requester(&self, requester: &Requester) -> String {
        format!("{}\n\n{}\n", self.0, requester.trailer())
    }

    /// The message alone.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first line.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.0.trim_start().lines().next().unwrap_or_default()
    }
}

/// A line that would claim who did something: `Signed-off-by:`, `Co-authored-by :`, … whatever the
/// case, since git reads trailers that way.
fn identity_trailer(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    let key = key.trim();
    let lower = key.to_lowercase();
    let identity = lower.ends_with("-by") || lower == "on-behalf-of" || lower == "cc";
    let one_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (identity && one_word).then_some(key)
}

/// The person a turn acts for, by role name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester(String);

impl Requester {
    /// Parses a role name: 1 to 64 printable characters on one line.
    ///
    /// # Errors
    /// Says what a role name may be; for the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = !text.trim().is_empty()
            && text.trim() == text
            && text.chars().count() <= 64
            && !text
                .chars()
                .any(|c| c.is_control() || matches!(c, '<' | '>' | '\u{2028}' | '\u{2029}'));
        if plain { Ok(Self(text.to_owned())) } else { Err(format!("{text:?} is not a role name")) }
    }

    /// The role name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trailer that a commit for this person carries.
    #[must_use]
    pub fn trailer(&self) -> String {
        format!("Requested-by: {}", self.0)
    }
}

/// Author and committer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

impl Identity {
    /// Parses `Name <address>`.
    ///
    /// # Errors
    /// Says what an identity may be; for the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not of the form `Name <address>`");
        let (name, rest) = text.split_once('<').ok_or_else(wrong)?;
        let (name, email) = (name.trim(), rest.strip_suffix('>').ok_or_else(wrong)?.trim());
        let odd = |part: &str| part.is_empty() || part.contains(['<', '>']);
        if text.chars().any(char::is_control) || odd(name) || odd(email) || email.contains(' ') {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }
}

/// Where `origin` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// An https URL, without user or password.
    Https {
        /// The URL exactly as configured.
        url: String,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A bare repository on this machine.
    Local(PathBuf),
}

impl Remote {
    /// Parses `https://host[:port]/path`, or an absolute path.
    ///
    /// # Errors
    /// Says what a remote may be; for the configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("the remote holds white space or a control character".to_owned());
        }
        if text.starts_with('/') {
            let path = PathBuf::from(text);
            let plain =
                path.components().skip(1).all(|c| matches!(c, std::path::Component::Normal(_)));
            return if plain {
                Ok(Self::Local(path))
            } else {
                Err(format!("{text:?} is not a plain absolute path"))
            };
        }
        let rest = text
            .strip_prefix("https://")
            .ok_or_else(|| "the remote is neither an https URL nor an absolute path".to_owned())?;
        let (authority, path) = rest.split_once('/').ok_or("the remote has no path")?;
        if authority.contains('@') {
            return Err("the remote holds a user; name the token's file in `tokenFile`".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| "the remote's port is no port")?),
            None => (authority, 443),
        };
        let host_is_plain = !host.is_empty()
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        if !host_is_plain || path.is_empty() || path.contains(['?', '#']) {
            return Err(format!("{text:?} is not of the form https://host[:port]/path"));
        }
        Ok(Self::Https { url: text.to_owned(), host: host.to_owned(), port })
    }

    /// The remote as the configuration and `remote.origin.url` spell it.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Https { url, .. } => url.clone(),
            Self::Local(path) => path.display().to_string(),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Code;

    use super::{
        BranchName, CommitMessage, DiffSpec, Identity, Range, Remote, Requester, Revision,
    };

    #[test]
    fn revisions_of_the_usual_forms_are_taken() {
        for text in
            ["HEAD", "@", "main", "HEAD~1", "HEAD^^2~3", "v1.0", "feature/x", "a1b2c3d", "größe"]
        {
            assert_eq!(Revision::parse(text).map(|r| r.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_git_would_read_as_something_else_is_refused() {
        for text in [
            "",
            "-p",
            "--all",
            "--output=/tmp/x",
            " --output=x",
            "HEAD:../../etc/passwd",
            "a..b",
            "@{u}",
            "HEAD@{1}",
            "@{-1}",
            ":/fix",
            ":0:f",
            "HEAD^{/x}",
            "HEAD^{tree}",
            "^HEAD",
            "a b",
            "a\nb",
            "a\0",
            "../../etc/passwd",
            "x.lock",
            "*",
            "a[b",
            "refs//x",
            "~1",
            "HEAD~1x",
            "main@{upstream}",
        ] {
            let refusal = Revision::parse(text).expect_err(text);
            assert_eq!(refusal.code, Code::InvalidRevision, "{text:?}");
        }
    }

    #[test]
    fn ranges_have_two_dots_and_two_ends() {
        assert!(matches!(Range::parse("a..b~2"), Ok(Range::Between(_, _))));
        assert!(matches!(Range::parse("a"), Ok(Range::To(_))));
        for text in ["a...b", "..b", "a..", "a..b..c", "HEAD..--output=/tmp/m"] {
            assert!(Range::parse(text).is_err(), "{text}");
        }
        assert_eq!(DiffSpec::parse(None), Ok(DiffSpec::Worktree));
        assert_eq!(DiffSpec::parse(Some("staged")), Ok(DiffSpec::Staged));
        assert!(DiffSpec::parse(Some("HEAD")).is_err());
        assert!(DiffSpec::parse(Some("--no-index")).is_err());
    }

    #[test]
    fn a_branch_name_is_never_a_refspec() {
        assert_eq!(BranchName::parse("main").map(|b| b.full()), Ok("refs/heads/main".to_owned()));
        for text in [
            "+main",
            "+HEAD:main",
            ":main",
            "main:release",
            "refs/heads/main",
            "refs/heads/*",
            "@{u}",
            "main^{}",
            "",
            "-D",
            "--mirror",
            "HEAD",
            "@",
            "a b",
        ] {
            assert!(BranchName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_message_says_something_and_claims_nobody() {
        let message = CommitMessage::parse("Decide on the channel\n\nBecause: it is quiet.\n");
        let owner = Requester::parse("Owner").expect("a role");
        let text = message.map(|m| m.with_requester(&owner)).expect("it parses");
        assert!(text.ends_with("it is quiet.\n\nRequested-by: Owner\n"));
        let long = "x".repeat(501);
        for text in [
            "",
            "  \n\t",
            long.as_str(),
            "a\0b",
            "a\u{1b}[31m",
            "x\n\nRequested-by: Partner",
            "x\nsigned-off-by : a",
            "x\n  Co-authored-by: a <b@c>",
            "Acked-by:a",
            "x\n\nOn-behalf-of: y",
        ] {
            assert_eq!(CommitMessage::parse(text).expect_err(text).code, Code::InvalidMessage);
        }
        assert!(CommitMessage::parse(&"ü".repeat(500)).is_ok());
    }

    #[test]
    fn identities_and_roles_stay_on_one_line() {
        assert!(Identity::parse("Sage <sage@example.invalid>").is_ok());
        for text in ["Sage", "<a@b>", "Sage <a b>", "S\n <a@b>", "Sage <a@b> x", "Sage <>"] {
            assert!(Identity::parse(text).is_err(), "{text:?}");
        }
        for text in ["", " Owner", "a\nb", "O <x>"] {
            assert!(Requester::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_remote_is_https_without_a_user_or_an_absolute_path() {
        assert_eq!(
            Remote::parse("https://git.example.com:8443/o/r.git"),
            Ok(Remote::Https {
                url: "https://git.example.com:8443/o/r.git".to_owned(),
                host: "git.example.com".to_owned(),
                port: 8443
            })
        );
        assert!(matches!(Remote::parse("/srv/r.git"), Ok(Remote::Local(_))));
        for text in [
            "http://h/x",
            "ssh://h/x",
            "ext::sh -c x",
            "file:///x",
            "https://u:p@h/x",
            "https://u@h/x",
            "https://h",
            "https://h/",
            "https://h:x/y",
            "/a/../b",
            "relative",
            "--upload-pack=x",
            "https://h/x?y",
            "https:///x",
            "git@h:x.git",
            "https://[::1]/x",
        ] {
            assert!(Remote::parse(text).is_err(), "{text}");
        }
    }
}
