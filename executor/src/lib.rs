//! The executor: the only Sage process that touches repositories, git and the web.
//!
//! Start reading at [`server::Executor::perform`] (what happens to a call) or at [`daemon::run`]
//! (what happens at start).

pub mod config;

pub mod daemon;

pub mod manager;

pub mod server;

pub mod session;

pub mod workplace;

pub mod tools;

pub mod git;

pub mod records;

pub mod credential;

pub mod audit;

pub mod outcomes;

pub mod approval;

pub mod rate;

pub mod tally;

pub mod stop;

mod explain;

pub mod cli;
