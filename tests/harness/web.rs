//! Web servers that behave badly, names that lead where a test says, and a look at every connection that
//! is asked for. Nothing here leaves the loopback interface.

pub mod net;
pub mod server;
pub mod world;
