//! The fence: a call, and what the configuration offers, become a [`Permit`] or a [`Refusal`].
//!
//! Every rule that needs nothing but the call and the configuration stands here. Rules about the
//! state of a repository stand in [`crate::repository`]; what the file system holds, the tools see.

use protocol::refusal::{Code, Refusal};
use protocol::reply::GitAccess;
use protocol::tool::{self, ToolCall, ToolName};
use protocol::turn::Turn;

use crate::authority;
use crate::git::{CommitMessage, DiffSpec, MAX_COMMIT_PATHS, Range, Requester, Revision};
use crate::path::{PathGlob, RelPath, shown};
use crate::secret;
use crate::web::FetchUrl;
use crate::web::search::Query;

/// The longest search pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// The longest title of a record, in characters.
const MAX_TITLE_CHARS: usize = 120;

/// What the configuration offers.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The roots, in the order of the configuration.
    pub roots: Vec<Root>,
    /// The longest text that is written, in bytes.
    pub max_file_bytes: u64,
    /// The largest diff budget, in bytes.
    pub max_bytes: u64,
    /// Calls in one turn.
    pub max_calls_per_turn: u32,
    /// What of the web is offered.
    pub web: Web,
}

/// What of the web is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Web {
    /// Whether pages are fetched.
    pub fetch: bool,
    /// Whether there is an instance to search with.
    pub search: bool,
}

/// What the fence knows of a root.
#[derive(Debug, Clone)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// Whether files in it can be written.
    pub writable: bool,
    /// What git can do in it.
    pub git: GitAccess,
    /// Whether it follows the record protocol.
    pub vault: bool,
    /// Paths that are read and never written.
    pub protected: Vec<PathGlob>,
}

/// Who calls, and what the turn has done so far.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Whom the peer may speak for.
    pub may_speak_for: &'a [Requester],
    /// The turn as the peer gave it.
    pub turn: &'a Turn,
    /// How many calls the turn has made before this one.
    pub calls_before: u32,
    /// How long the peer has to wait, in seconds, when it has called too often.
    pub wait: Option<u64>,
    /// Since when all writing and network tools are stopped, if they are.
    pub stopped: Option<&'a str>,
}

/// The right to do one thing. Only the fence makes one, each tool takes one, and it cannot be kept
/// for a second time.
#[derive(Debug)]
#[must_use]
pub struct Permit<A> {
    root: usize,
    requester: Option<Requester>,
    action: A,
}

impl<A> Permit<A> {
    /// The root, by its place in [`Ground::roots`]; of no use where the tool works in none.
    #[must_use]
    pub fn root(&self) -> usize {
        self.root
    }

    /// The person the turn acts for.
    #[must_use]
    pub fn requester(&self) -> Option<&Requester> {
        self.requester.as_ref()
    }

    /// What may be done.
    #[must_use]
    pub fn action(&self) -> &A {
        &self.action
    }
}

/// What may be done, by tool.
#[derive(Debug)]
#[must_use]
#[allow(missing_docs)]
pub enum Permitted {
    ListRoots,
    ListFiles(Permit<ListFiles>),
    ReadFile(Permit<ReadFile>),
    SearchFiles(Permit<SearchFiles>),
    WriteFile(Permit<WriteFile>),
    EditFile(Permit<EditFile>),
    GitStatus(Permit<GitStatus>),
    GitDiff(Permit<GitDiff>),
    GitLog(Permit<GitLog>),
    GitShow(Permit<GitShow>),
    GitBranches(Permit<GitBranches>),
    ReadOutput { handle: String, offset: u64 },
    ReserveId(Permit<ReserveId>),
    GitCommit(Permit<GitCommit>),
    GitPull(Permit<GitPull>),
    GitPush(Permit<GitPush>),
    WebFetch(Permit<WebFetch>),
    WebSearch(Permit<WebSearch>),
}

impl Permitted {
    /// The root it works in, by its place in [`Ground::roots`], if it works in one.
    #[must_use]
    pub fn root(&self) -> Option<usize> {
        let root = match self {
            Self::ListRoots | Self::ReadOutput { .. } => NO_ROOT,
            Self::ListFiles(permit) => permit.root,
            Self::ReadFile(permit) => permit.root,
            Self::SearchFiles(permit) => permit.root,
            Self::WriteFile(permit) => permit.root,
            Self::EditFile(permit) => permit.root,
            Self::GitStatus(permit) => permit.root,
            Self::GitDiff(permit) => permit.root,
            Self::GitLog(permit) => permit.root,
            Self::GitShow(permit) => permit.root,
            Self::GitBranches(permit) => permit.root,
            Self::ReserveId(permit) => permit.root,
            Self::GitCommit(permit) => permit.root,
            Self::GitPull(permit) => permit.root,
            Self::GitPush(permit) => permit.root,
            Self::WebFetch(permit) => permit.root,
            Self::WebSearch(permit) => permit.root,
        };
        (root != NO_ROOT).then_some(root)
    }
}

/// List the files below a folder.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ListFiles {
    pub folder: Option<RelPath>,
    pub glob: Option<PathGlob>,
}

/// Read a file, or a part of it.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ReadFile {
    pub path: RelPath,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Find lines in files.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct SearchFiles {
    pub pattern: String,
    pub within: Option<RelPath>,
    pub glob: Option<PathGlob>,
}

/// Create or replace a file.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct WriteFile {
    pub path: RelPath,
    pub text: String,
}

/// Replace one text in a file.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct EditFile {
    pub path: RelPath,
    pub old: String,
    pub new: String,
    pub dry_run: bool,
    pub expect: Option<String>,
}

/// Show the state of the repository that holds a path.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitStatus {
    pub within: Option<RelPath>,
}

/// Show changes.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitDiff {
    pub spec: DiffSpec,
    pub path: Option<RelPath>,
    pub budget: u64,
}

/// List commits.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitLog {
    pub range: Option<Range>,
    pub path: Option<RelPath>,
    pub limit: u32,
}

/// Show one commit.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitShow {
    pub rev: Revision,
    pub path: Option<RelPath>,
    pub budget: u64,
}

/// List the branches of the repository that holds a path.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitBranches {
    pub within: Option<RelPath>,
}

/// Reserve the id of a new record.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ReserveId {
    pub prefix: tool::Prefix,
    pub title: String,
}

/// Commit exactly these paths for this person, and push.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct GitCommit {
    pub message: CommitMessage,
    pub paths: Vec<RelPath>,
    pub requester: Requester,
}

/// Bring the branch up to date.
#[derive(Debug)]
pub struct GitPull;

/// Push the branch.
#[derive(Debug)]
pub struct GitPush;

/// Fetch a page.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct WebFetch {
    pub url: FetchUrl,
}

/// Search the web.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct WebSearch {
    pub query: Query,
}

/// The place of no root.
const NO_ROOT: usize = usize::MAX;

/// The tools that this ground offers: no writable root, no write tools; no git key, no git tools; no web
/// key, no web tools.
#[must_use]
pub fn offered(ground: &Ground) -> Vec<ToolName> {
    let any = |test: fn(&Root) -> bool| ground.roots.iter().any(test);
    let offers = |tool: ToolName| match tool {
        ToolName::ListRoots | ToolName::ListFiles | ToolName::ReadFile | ToolName::SearchFiles => {
            true
        }
        ToolName::WriteFile | ToolName::EditFile => any(|root| root.writable),
        ToolName::ReserveId => any(|root| root.vault && root.git == GitAccess::Write),
        ToolName::GitCommit | ToolName::GitPull | ToolName::GitPush => {
            any(|root| root.git == GitAccess::Write)
        }
        ToolName::GitStatus
        | ToolName::GitDiff
        | ToolName::GitLog
        | ToolName::GitShow
        | ToolName::GitBranches => any(|root| root.git != GitAccess::None),
        ToolName::ReadOutput => ground.web.fetch || any(|root| root.git != GitAccess::None),
        ToolName::WebFetch => ground.web.fetch,
        ToolName::WebSearch => ground.web.search,
    };
    ToolName::ALL.iter().copied().filter(|tool| offers(*tool)).collect()
}

/// Judges one call.
///
/// # Errors
/// The refusal of the first rule that says no.
pub fn judge(ground: &Ground, caller: Caller<'_>, call: ToolCall) -> Result<Permitted, Refusal> {
    let tool = call.name();
    if !offered(ground).contains(&tool) {
        return Err(not_offered(tool, "The configuration offers no such tool."));
    }
    let requester = speaks_for(caller)?;
    if let Some(seconds) = caller.wait {
        return Err(too_often(seconds));
    }
    if let Some(since) = caller.stopped.filter(|_| authority::halts(tool)) {
        return Err(stopped(tool, since));
    }
    if caller.calls_before >= ground.max_calls_per_turn {
        return Err(Refusal::new(
            Code::TooManyCalls,
            format!("This turn has made its {} calls.", ground.max_calls_per_turn),
            "Answer with what you have; a new message starts a new turn.",
        ));
    }
    Bench { ground, tool, requester }.parse(call)
}

/// Whom the turn speaks for: nobody, or one whom the peer may speak for.
fn speaks_for(caller: Caller<'_>) -> Result<Option<Requester>, Refusal> {
    let Some(name) = &caller.turn.requester else { return Ok(None) };
    match caller.may_speak_for.iter().find(|allowed| allowed.as_str() == name) {
        Some(requester) => Ok(Some(requester.clone())),
        None => Err(Refusal::new(
            Code::RequesterNotAllowed,
            format!("This peer may not speak for {}.", shown(name)),
            "Name a requester that the executor's configuration lists for this peer.",
        )),
    }
}

fn too_often(seconds: u64) -> Refusal {
    Refusal::new(
        Code::Busy,
        "This peer has called too often in the last minute.",
        format!("Call again in {seconds} s."),
    )
}

/// The refusal of everything that writes or reaches the network while STOP stands.
#[must_use]
pub fn stopped(tool: ToolName, since: &str) -> Refusal {
    Refusal::new(
        Code::Stopped,
        format!("{tool}: the operator has stopped all writing and network tools ({since})."),
        "Reading goes on. The operator lifts the stop with `sage-executor resume`; call again then.",
    )
}

fn not_offered(tool: ToolName, why: &str) -> Refusal {
    Refusal::new(
        Code::NotOffered,
        format!("{tool}: {why}"),
        "`list_roots` shows what each root allows; the operator can change the configuration.",
    )
}

/// Everything that parsing one call needs.
struct Bench<'a> {
    ground: &'a Ground,
    tool: ToolName,
    requester: Option<Requester>,
}

impl Bench<'_> {
    fn parse(self, call: ToolCall) -> Result<Permitted, Refusal> {
        match call {
            ToolCall::ListRoots(_) => Ok(Permitted::ListRoots),
            ToolCall::ListFiles(c) => self.list_files(c).map(Permitted::ListFiles),
            ToolCall::ReadFile(c) => self.read_file(c).map(Permitted::ReadFile),
            ToolCall::SearchFiles(c) => self.search_files(c).map(Permitted::SearchFiles),
            ToolCall::WriteFile(c) => self.write_file(c).map(Permitted::WriteFile),
            ToolCall::EditFile(c) => self.edit_file(c).map(Permitted::EditFile),
            ToolCall::GitStatus(c) => {
                let within = optional(c.path.as_deref())?;
                self.read_git(&c.root, GitStatus { within }).map(Permitted::GitStatus)
            }
            ToolCall::GitDiff(c) => self.git_diff(c).map(Permitted::GitDiff),
            ToolCall::GitLog(c) => self.git_log(c).map(Permitted::GitLog),
            ToolCall::GitShow(c) => self.git_show(c).map(Permitted::GitShow),
            ToolCall::GitBranches(c) => {
                let within = optional(c.path.as_deref())?;
                self.read_git(&c.root, GitBranches { within }).map(Permitted::GitBranches)
            }
            ToolCall::ReadOutput(c) => {
                Ok(Permitted::ReadOutput { handle: c.handle, offset: c.offset })
            }
            ToolCall::ReserveId(c) => self.reserve_id(c).map(Permitted::ReserveId),
            ToolCall::GitCommit(c) => self.git_commit(c).map(Permitted::GitCommit),
            ToolCall::GitPull(c) => self.write_git(&c.root, GitPull).map(Permitted::GitPull),
            ToolCall::GitPush(c) => self.write_git(&c.root, GitPush).map(Permitted::GitPush),
            ToolCall::WebFetch(c) => {
                let url = FetchUrl::parse(&c.url)?;
                Ok(Permitted::WebFetch(self.permit(NO_ROOT, WebFetch { url })))
            }
            ToolCall::WebSearch(c) => {
                let query = Query::parse(&c.query)?;
                Ok(Permitted::WebSearch(self.permit(NO_ROOT, WebSearch { query })))
            }
        }
    }

    fn list_files(self, call: tool::ListFiles) -> Result<Permit<ListFiles>, Refusal> {
        let root = self.root(&call.root)?;
        let folder = optional(call.path.as_deref())?;
        let glob = call.glob.as_deref().map(PathGlob::parse).transpose()?;
        Ok(self.permit(root, ListFiles { folder, glob }))
    }

    fn read_file(self, call: tool::ReadFile) -> Result<Permit<ReadFile>, Refusal> {
        let root = self.root(&call.root)?;
        let path = RelPath::parse(&call.path)?;
        let offset = call.offset.unwrap_or(0);
        Ok(self.permit(root, ReadFile { path, offset, limit: call.limit }))
    }

    fn search_files(self, call: tool::SearchFiles) -> Result<Permit<SearchFiles>, Refusal> {
        let root = self.root(&call.root)?;
        let within = optional(call.path.as_deref())?;
        let glob = call.glob.as_deref().map(PathGlob::parse).transpose()?;
        if call.pattern.is_empty() || call.pattern.len() > MAX_PATTERN_BYTES {
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("A pattern has 1 to {MAX_PATTERN_BYTES} bytes."),
                "Give a regular expression, or a word.",
            ));
        }
        Ok(self.permit(root, SearchFiles { pattern: call.pattern, within, glob }))
    }

    fn write_file(self, call: tool::WriteFile) -> Result<Permit<WriteFile>, Refusal> {
        let (root, path) = self.writable(&call.root, &call.path)?;
        self.text_may_be_written(&call.text)?;
        Ok(self.permit(root, WriteFile { path, text: call.text }))
    }

    fn edit_file(self, call: tool::EditFile) -> Result<Permit<EditFile>, Refusal> {
        let (root, path) = self.writable(&call.root, &call.path)?;
        self.text_may_be_written(&call.new)?;
        if call.old.is_empty() {
            return Err(Refusal::new(
                Code::InvalidArguments,
                "The text to replace is empty.",
                "Give a text that occurs exactly once; to write a whole file, use write_file.",
            ));
        }
        let (old, new, dry_run, expect) = (call.old, call.new, call.dry_run, call.expect);
        Ok(self.permit(root, EditFile { path, old, new, dry_run, expect }))
    }

    fn git_diff(self, call: tool::GitDiff) -> Result<Permit<GitDiff>, Refusal> {
        let spec = DiffSpec::parse(call.spec.as_deref())?;
        let path = optional(call.path.as_deref())?;
        let budget = self.budget(call.max_bytes);
        self.read_git(&call.root, GitDiff { spec, path, budget })
    }

    fn git_log(self, call: tool::GitLog) -> Result<Permit<GitLog>, Refusal> {
        let range = call.range.as_deref().map(Range::parse).transpose()?;
        let path = optional(call.path.as_deref())?;
        let limit = call.limit.unwrap_or(20).clamp(1, 100);
        self.read_git(&call.root, GitLog { range, path, limit })
    }

    fn git_show(self, call: tool::GitShow) -> Result<Permit<GitShow>, Refusal> {
        let rev = Revision::parse(&call.rev)?;
        let path = optional(call.path.as_deref())?;
        let budget = self.budget(call.max_bytes);
        self.read_git(&call.root, GitShow { rev, path, budget })
    }

    fn reserve_id(self, call: tool::ReserveId) -> Result<Permit<ReserveId>, Refusal> {
        let root = self.root(&call.root)?;
        if !self.ground.roots[root].vault {
            return Err(not_offered(self.tool, "This root does not follow the record protocol."));
        }
        let title = call.title.trim();
        let odd = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if title.is_empty() || title.chars().count() > MAX_TITLE_CHARS || title.contains(odd) {
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("A title has 1 to {MAX_TITLE_CHARS} characters on one line."),
                "Give the record's title as its heading will say it.",
            ));
        }
        self.text_may_be_written(title)?;
        self.write_git(&call.root, ReserveId { prefix: call.prefix, title: title.to_owned() })
    }

    fn git_commit(self, call: tool::GitCommit) -> Result<Permit<GitCommit>, Refusal> {
        let Some(requester) = self.requester.clone() else {
            return Err(Refusal::new(
                Code::RequesterNotAllowed,
                "A commit carries the name of the person who asked for it, and this turn has none.",
                "Commit in a turn that names its requester.",
            ));
        };
        let message = CommitMessage::parse(&call.message)?;
        if call.paths.is_empty() || call.paths.len() > MAX_COMMIT_PATHS {
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("A commit names 1 to {MAX_COMMIT_PATHS} paths, not {}.", call.paths.len()),
                "Name each file that belongs to this change.",
            ));
        }
        let mut paths: Vec<RelPath> =
            call.paths.iter().map(|path| RelPath::parse(path)).collect::<Result<_, _>>()?;
        paths.sort();
        paths.dedup();
        self.write_git(&call.root, GitCommit { message, paths, requester })
    }

    fn read_git<A>(self, root: &str, action: A) -> Result<Permit<A>, Refusal> {
        let root = self.root(root)?;
        if self.ground.roots[root].git == GitAccess::None {
            return Err(not_offered(self.tool, "This root has no git."));
        }
        Ok(self.permit(root, action))
    }

    fn write_git<A>(self, root: &str, action: A) -> Result<Permit<A>, Refusal> {
        let root = self.root(root)?;
        if self.ground.roots[root].git != GitAccess::Write {
            return Err(not_offered(self.tool, "This root's git is not writable."));
        }
        Ok(self.permit(root, action))
    }

    fn permit<A>(self, root: usize, action: A) -> Permit<A> {
        Permit { root, requester: self.requester, action }
    }

    fn root(&self, name: &str) -> Result<usize, Refusal> {
        self.ground.roots.iter().position(|root| root.name == name).ok_or_else(|| {
            Refusal::new(
                Code::UnknownRoot,
                format!("There is no root named {}.", shown(name)),
                "`list_roots` shows the names.",
            )
        })
    }

    fn writable(&self, root: &str, path: &str) -> Result<(usize, RelPath), Refusal> {
        let index = self.root(root)?;
        let root = &self.ground.roots[index];
        if !root.writable {
            return Err(Refusal::new(
                Code::ReadOnlyRoot,
                format!("The root {:?} is read-only.", root.name),
                "`list_roots` shows which roots can be written.",
            ));
        }
        let path = RelPath::parse(path)?;
        if root.protected.iter().any(|glob| glob.matches(path.as_str())) {
            return Err(Refusal::new(
                Code::ProtectedPath,
                format!(
                    "{} is protected: it can be read and is never written by a tool.",
                    shown(path.as_str())
                ),
                "A person changes it from the terminal.",
            ));
        }
        Ok((index, path))
    }

    fn text_may_be_written(&self, text: &str) -> Result<(), Refusal> {
        if text.len() as u64 > self.ground.max_file_bytes {
            return Err(Refusal::new(
                Code::TooLarge,
                format!(
                    "The text has {} bytes; the limit is {}.",
                    text.len(),
                    self.ground.max_file_bytes
                ),
                "Split it into several files.",
            ));
        }
        match secret::find(text) {
            None => Ok(()),
            Some(finding) => Err(Refusal::new(
                Code::CredentialShape,
                format!("The text holds something shaped like a {}.", finding.name),
                "Write it without the credential; if it is a real one, revoke it.",
            )),
        }
    }

    fn budget(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.ground.max_bytes).clamp(256, self.ground.max_bytes.max(256))
    }
}

fn optional(path: Option<&str>) -> Result<Option<RelPath>, Refusal> {
    match path {
        // What people write for "the root itself".
        None | Some("" | ".") => Ok(None),
        Some(path) => RelPath::parse(path).map(Some),
    }
}

/// Whether a tool can change something: for annotations.
#[must_use]
pub fn read_only(tool: ToolName) -> bool {
    !authority::writes(tool)
}
