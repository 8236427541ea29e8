//! Sage's unprivileged half: it holds the conversation and nothing else.
//!
//! Start with [`turn::run`]: one function takes a message from the inbox to the delivered answer.
//! Around it stand the transports that bring messages (the terminal), the engines that think, the
//! journal that makes every step durable before it acts, and the one door to the executor.
//!
//! What is purposely absent: this crate has no repository, no git and no git token, and it opens no
//! file but its binding, what the binding names (a key, certificates, context files) and its own data
//! folder. Only `demo`, which plays the operator, builds a repository for the executor to work in.

pub mod turn;

pub mod message;

pub mod journal;

pub mod record;

pub mod prompt;

pub mod engine;

pub mod tools;

pub mod delivery;

pub mod render;

pub mod split;

pub mod terminal;

pub mod discord;

pub mod binding;

pub mod private_file;

pub mod lock;

pub mod owner;

pub mod clock;

mod tls;

pub mod confinement;

mod manager;

mod control;

mod check;

mod history;

mod init;

mod install;

mod metrics;

mod demo;

mod cli;

pub use cli::run;

#[cfg(test)]
mod fake;
