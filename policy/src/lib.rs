//! Sage's decisions, pure: what a string may be, what a tool may touch, what is allowed.
//!
//! No I/O, no async, no clock. Strings from the wire are parsed here, once, into types that cannot
//! hold anything else; and a tool runs only with a [`fence::Permit`], which only the fence makes.

pub mod admission;

pub mod path;

pub mod git;

pub mod secret;

pub mod authority;

pub mod fence;

pub mod repository;

pub mod review;

pub mod strict;
pub mod web;

pub mod reference;
