//! The words that Sage's two processes share: tool calls, replies, refusals, and the wire.
//!
//! This crate decides nothing and opens nothing but the socket it is told to. What the words may
//! contain is `policy`'s business; what they do is the executor's.

pub mod tool;

pub mod reply;

pub mod refusal;

pub mod printable;

pub mod turn;

pub mod explain;

pub mod metrics;

pub mod status;

pub mod service;

pub mod wire;
