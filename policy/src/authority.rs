//! Which tool may touch what: one table, and nothing else decides it.
//!
//! A tool takes one or more steps. Each step runs alone, on a thread or in a child of its own, under
//! exactly its row: the executor turns the row into a Landlock domain and a seccomp filter.

use protocol::tool::ToolName;

/// One step of a tool, run under its own row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Read files of the root, in a thread of the executor.
    ReadFiles,
    /// Write files of the root, in a thread of the executor.
    WriteFiles,
    /// Read a repository with gix, in a thread of the executor.
    ReadRepository,
    /// Read a repository with git, in a child.
    GitRead,
    /// Write objects, refs and a private index with git, in a child.
    GitStage,
    /// Move the work tree and the branch forward with git, in a child.
    GitCheckout,
    /// Ask an https remote, or bring its objects here, with git, in a child.
    FetchHttps,
    /// Send objects to an https remote with git, in a child.
    PushHttps,
    /// Ask a bare repository on this machine, or bring its objects here, with git, in a child.
    FetchLocal,
    /// Send objects to a bare repository on this machine with git, in a child.
    PushLocal,
    /// Run the record protocol's validator, in a child.
    Validate,
    /// Ask the record protocol's lock tool who holds a path, in a child.
    CheckLocks,
    /// Lock or unlock a path with the record protocol's lock tool, in a child.
    LockRecord,
    /// Reserve an id with the record protocol's lock tool, in a child.
    ReserveId,
    /// Find the addresses of a name, in a thread of the executor.
    ResolveName,
    /// Ask for a page over one connection that is already there, in a thread of the executor.
    FetchPage,
    /// Turn a page into text, in a child.
    ReadPage,
}

/// What of the file system a step may touch, beyond what its programs need to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Read below the root.
    ReadRoot,
    /// Read and write below the root.
    WriteRoot,
    /// Read below the root, write below its git directory.
    WriteGitDir,
    /// Read the objects alone; neither the work tree nor the repository's configuration.
    ReadObjects,
    /// Read and write the objects alone.
    WriteObjects,
    /// Read below the root, write in its lock folder.
    WriteLocks,
    /// Read below the root, write in its lock folder and its registry.
    WriteRegistry,
    /// Nothing.
    None,
    /// Read the resolver's configuration.
    ReadResolver,
    /// Read the certificate authorities.
    ReadAuthorities,
}

/// What a step may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exec {
    /// Nothing: it runs in a thread, and execve is denied.
    None,
    /// git itself, which can start nothing (no-execve).
    Git,
    /// git, its https helper, and this program as askpass.
    GitRemoteHttps,
    /// git and a shell, since git starts the other end of a local remote through one.
    GitLocalRemote,
    /// Python itself, which can start nothing (no-execve).
    Python,
    /// This program itself, which can start nothing (no-execve).
    Itself,
}

/// What a step may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    None,
    /// TCP to the remote's port, and DNS over TCP.
    RemotePort,
    /// DNS over TCP.
    Dns,
    /// One connection to a judged address, which is handed to it; it can make none.
    OneConnection,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The step.
    pub step: Step,
    /// What it may touch.
    pub files: Files,
    /// What it may execute.
    pub exec: Exec,
    /// What it may reach.
    pub network: Network,
    /// Whether it is told where the token is.
    pub token: bool,
}

/// The table.
pub const TABLE: &[Row] = &[
    row(Step::ReadFiles, Files::ReadRoot, Exec::None, Network::None, false),
    row(Step::WriteFiles, Files::WriteRoot, Exec::None, Network::None, false),
    row(Step::ReadRepository, Files::ReadRoot, Exec::None, Network::None, false),
    row(Step::GitRead, Files::ReadRoot, Exec::Git, Network::None, false),
    row(Step::GitStage, Files::WriteGitDir, Exec::Git, Network::None, false),
    row(Step::GitCheckout, Files::WriteRoot, Exec::Git, Network::None, false),
    row(Step::FetchHttps, Files::WriteObjects, Exec::GitRemoteHttps, Network::RemotePort, true),
    row(Step::PushHttps, Files::ReadObjects, Exec::GitRemoteHttps, Network::RemotePort, true),
    row(Step::FetchLocal, Files::WriteObjects, Exec::GitLocalRemote, Network::None, false),
    row(Step::PushLocal, Files::ReadObjects, Exec::GitLocalRemote, Network::None, false),
    row(Step::Validate, Files::ReadRoot, Exec::Python, Network::None, false),
    row(Step::CheckLocks, Files::ReadRoot, Exec::Python, Network::None, false),
    row(Step::LockRecord, Files::WriteLocks, Exec::Python, Network::None, false),
    row(Step::ReserveId, Files::WriteRegistry, Exec::Python, Network::None, false),
    row(Step::ResolveName, Files::ReadResolver, Exec::None, Network::Dns, false),
    row(Step::FetchPage, Files::ReadAuthorities, Exec::None, Network::OneConnection, false),
    row(Step::ReadPage, Files::None, Exec::Itself, Network::None, false),
];

const fn row(step: Step, files: Files, exec: Exec, network: Network, token: bool) -> Row {
    Row { step, files, exec, network, token }
}

impl Step {
    /// The row that the step runs under.
    ///
    /// # Panics
    /// Never: a test shows that each step has a row.
    #[must_use]
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.step == self).expect("each step has a row")
    }

    /// The step's name, as the documentation prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadFiles => "read files",
            Self::WriteFiles => "write files",
            Self::ReadRepository => "read repository",
            Self::GitRead => "git read",
            Self::GitStage => "git stage",
            Self::GitCheckout => "git checkout",
            Self::FetchHttps => "fetch https",
            Self::PushHttps => "push https",
            Self::FetchLocal => "fetch local",
            Self::PushLocal => "push local",
            Self::Validate => "validate",
            Self::CheckLocks => "check locks",
            Self::LockRecord => "lock record",
            Self::ReserveId => "reserve id",
            Self::ResolveName => "resolve name",
            Self::FetchPage => "fetch page",
            Self::ReadPage => "read page",
        }
    }
}

/// The steps that a tool may take.
#[must_use]
pub fn steps(tool: ToolName) -> &'static [Step] {
    const READ_GIT: &[Step] = &[Step::ReadRepository, Step::GitRead];
    match tool {
        ToolName::ListRoots | ToolName::ReadOutput => &[],
        ToolName::ListFiles | ToolName::ReadFile | ToolName::SearchFiles => &[Step::ReadFiles],
        ToolName::WriteFile | ToolName::EditFile => {
            &[Step::ReadFiles, Step::WriteFiles, Step::ReadRepository, Step::LockRecord]
        }
        ToolName::GitStatus | ToolName::GitDiff | ToolName::GitShow => READ_GIT,
        ToolName::ReserveId => &[Step::ReadRepository, Step::WriteFiles, Step::ReserveId],
        ToolName::GitLog | ToolName::GitBranches => &[Step::ReadRepository],
        ToolName::GitCommit => &[
            Step::ReadRepository,
            Step::GitRead,
            Step::ReadFiles,
            Step::WriteFiles,
            Step::Validate,
            Step::CheckLocks,
            Step::GitStage,
            Step::FetchHttps,
            Step::FetchLocal,
            Step::PushHttps,
            Step::PushLocal,
        ],
        ToolName::GitPull => &[
            Step::ReadRepository,
            Step::GitRead,
            Step::FetchHttps,
            Step::FetchLocal,
            Step::GitStage,
            Step::GitCheckout,
        ],
        ToolName::GitPush => &[
            Step::ReadRepository,
            Step::FetchHttps,
            Step::FetchLocal,
            Step::PushHttps,
            Step::PushLocal,
            Step::GitStage,
        ],
        ToolName::WebFetch => &[Step::ResolveName, Step::FetchPage, Step::ReadPage],
        ToolName::WebSearch => &[Step::ResolveName, Step::FetchPage],
    }
}

/// Whether a tool changes anything, here or at the remote.
#[must_use]
pub fn writes(tool: ToolName) -> bool {
    let reads = |files: Files| {
        matches!(
            files,
            Files::ReadRoot
                | Files::ReadObjects
                | Files::None
                | Files::ReadResolver
                | Files::ReadAuthorities
        )
    };
    steps(tool).iter().any(|step| !reads(step.row().files))
}

/// Whether a tool reaches the network by itself, whatever it changes.
#[must_use]
pub fn reaches_network(tool: ToolName) -> bool {
    steps(tool).iter().any(|step| step.row().network != Network::None)
}

/// Whether STOP halts a tool: everything that writes, and everything that reaches the network.
#[must_use]
pub fn halts(tool: ToolName) -> bool {
    writes(tool) || reaches_network(tool)
}

#[cfg(test)]
mod tests {
    use protocol::tool::ToolName;

    use super::{Exec, Files, Network, Step, TABLE, halts, steps, writes};

    #[test]
    fn each_step_has_one_row_and_some_tool_takes_it() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.step == row.step).count(), 1);
            assert_eq!(row.step.row(), row);
            assert!(ToolName::ALL.iter().any(|tool| steps(*tool).contains(&row.step)), "{row:?}");
        }
        for tool in ToolName::ALL {
            for step in steps(*tool) {
                assert_eq!(step.row().step, *step);
            }
        }
    }

    #[test]
    fn the_token_and_the_work_tree_never_meet() {
        for row in TABLE.iter().filter(|row| row.token) {
            assert!(matches!(row.files, Files::ReadObjects | Files::WriteObjects), "{row:?}");
        }
    }

    #[test]
    fn only_remote_steps_reach_the_network_or_start_programs() {
        for row in TABLE {
            let remote = matches!(row.step, Step::FetchHttps | Step::PushHttps);
            let local = matches!(row.step, Step::FetchLocal | Step::PushLocal);
            assert_eq!(row.network == Network::RemotePort, remote, "{row:?}");
            let starts_nothing =
                matches!(row.exec, Exec::None | Exec::Git | Exec::Python | Exec::Itself);
            assert_eq!(starts_nothing, !remote && !local, "{row:?}");
        }
    }

    #[test]
    fn what_meets_the_web_sees_no_root_and_only_resolving_makes_a_connection() {
        for tool in [ToolName::WebFetch, ToolName::WebSearch] {
            for step in steps(tool) {
                let row = step.row();
                let sees_no_root =
                    matches!(row.files, Files::None | Files::ReadResolver | Files::ReadAuthorities);
                assert!(sees_no_root && !row.token, "{row:?}");
                assert_eq!(row.network == Network::Dns, *step == Step::ResolveName, "{row:?}");
            }
        }
    }

    #[test]
    fn stop_halts_what_writes_or_reaches_the_network_and_nothing_else() {
        let halted: Vec<&str> =
            ToolName::ALL.iter().filter(|tool| halts(**tool)).map(|tool| tool.as_str()).collect();
        assert_eq!(
            halted,
            [
                "write_file",
                "edit_file",
                "reserve_id",
                "git_commit",
                "git_pull",
                "git_push",
                "web_fetch",
                "web_search"
            ]
        );
    }

    #[test]
    fn reading_tools_write_nothing() {
        for tool in ToolName::ALL {
            let reads = !matches!(
                tool,
                ToolName::WriteFile
                    | ToolName::EditFile
                    | ToolName::ReserveId
                    | ToolName::GitCommit
                    | ToolName::GitPull
                    | ToolName::GitPush
            );
            assert_eq!(writes(*tool), !reads, "{tool}");
        }
    }
}
