//! Sage in a Discord channel: who is heard, in which order, what is said back.
//!
//! [`gateway`] and [`rest`] are the network, [`live`] puts everything together.
//!
//! [`intake`] makes an event an admitted turn in the queue, [`reply`] says the answer and brings an
//! outbox of an earlier process in order, [`approve`] waits for a button. All of them reach Discord
//! through a [`port::Port`], which is the network client or, in a test, a list.

pub mod port;

pub mod intake;

pub mod reply;

pub mod approve;

pub mod run;

pub mod event;

pub mod gateway;

pub mod rest;

pub mod network;

pub mod live;

#[cfg(test)]
mod tests;
