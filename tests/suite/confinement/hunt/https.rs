//! The rows that reach a remote over https, against a server that wants the token.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use confine::cancel;
use confine::kernel::KernelSupport;
use executor::config::Config;
use executor::git::child::{Call, Https};
use executor::git::repo::{self, Place};
use executor::git::skeleton::{self, Skeleton};
use executor::git::verb::Verb;
use executor::workplace::Workplace;
use harness::https::world::{Setup, World};
use harness::programs::program;
use policy::authority::Step;
use policy::git::{BranchName, Remote};

use super::Taking;

/// A clone whose remote is an https server with a token.
pub(super) struct Hunt {
    taking: Taking,
    workplace: Workplace,
    place: Place,
    world: World,
    commits: Cell<u32>,
}

impl Hunt {
    pub(super) fn new(git: &Path) -> Self {
        let world = Setup::new(git).build().expect("a world");
        let taking = Taking::new(world.folder().join("launcher"));
        let config = Config::parse(&world.config().to_string()).expect("a configuration");
        let mut workplace =
            Workplace::open(&config, &KernelSupport::detect()).expect("a workplace");
        workplace.launcher = taking.launcher();
        // The askpass is the real one.
        workplace.git.askpass = program("sage-executor");
        skeleton::remove_leftovers(&workplace.state_dir).expect("a folder for skeletons");
        let place = repo::locate(&workplace.roots[0].path, None).expect("a repository");
        Self { taking, workplace, place, world, commits: Cell::new(0) }
    }

    pub(super) fn taking(&self) -> &Taking {
        &self.taking
    }

    /// Does everything that the executor does in a step; its answers, if nothing broke.
    pub(super) fn does(&self, step: Step) -> Result<String, String> {
        let root = &self.workplace.roots[0];
        let remote = &root.git.as_ref().expect("a git root").terms.remote;
        assert!(matches!(remote, Remote::Https { .. }));
        let branch = BranchName::parse("main").expect("a branch");
        if step == Step::FetchHttps {
            // There is something to fetch each time.
            self.world.commit_elsewhere(&self.fresh()).expect("it commits");
            self.run(Verb::LsRemote(remote, &branch))?;
            return self.run(Verb::Fetch(remote, &branch)).map(|_| String::new());
        }
        self.world.commit_by_hand(&self.fresh()).expect("it commits");
        let head = self.world.head();
        self.run(Verb::Push(remote, &branch, &head)).map(|_| String::new())
    }

    fn fresh(&self) -> String {
        let number = self.commits.get() + 1;
        self.commits.set(number);
        format!("{number}.md")
    }

    fn run(&self, verb: Verb<'_>) -> Result<String, String> {
        let skeleton = Skeleton::make(&self.workplace.state_dir, &self.place, &[]);
        let skeleton = skeleton.expect("a skeleton");
        let (token, ca_file) = (self.world.token_file(), self.world.folder().join("ca.pem"));
        let call = Call {
            root: &self.workplace.roots[0].path,
            place: &self.place,
            index: None,
            skeleton: Some(skeleton.path()),
            https: Some(Https { token_file: Some(&token), ca_file: Some(&ca_file) }),
            stdin: Vec::new(),
            max_output: 1 << 16,
            wall: Duration::from_secs(60),
            verb,
        };
        let (_guard, cancel) = cancel::pair().expect("descriptors");
        let output = self.workplace.git.run(&self.workplace.launcher, call, &cancel);
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
