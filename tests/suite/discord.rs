//! Discord. The fake is judged by twilight, a client that nobody here wrote; Sage talks to it through
//! `sage-connector run`, and to a real executor.

mod buttons;
mod check;
mod controls;
mod crash;
mod day;
mod fake;
mod gateway;
mod locks;
mod soak;
mod talk;
