//! The world that the suites run in: a strategy repository with a bare remote, and the real
//! `sage-executor` beside it.
//!
//! Start reading at [`world::World`]. A test builds a world, makes calls in a [`turn::Turn`] and looks
//! at the clone with plain git. Everything is in one temporary folder and is gone when the world is.

pub mod world;

pub mod builder;

pub mod held;

pub mod turn;

pub mod calls;

pub mod wire;

pub mod footprint;

pub mod git;

pub mod snapshot;

pub mod dice;

pub mod programs;

pub mod cli;

pub mod terminal;

pub mod https;

pub mod web;

pub mod confine;

pub mod escapes;

pub mod rows;

pub mod chat;

pub mod model;

pub mod pi;

pub mod discord;
pub mod systemd;

pub mod service;
