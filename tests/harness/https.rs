//! A git server over https on this machine, with its own authority and a token that it requires; a
//! world whose executor talks to it; and a watch over every process for a marker.

pub mod authority;

pub mod backend;

pub mod calls;

mod executor;

pub mod server;

pub mod watch;

pub mod world;
