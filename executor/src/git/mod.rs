//! git: finding repositories, reading them with gix, and running the real git with fixed vectors.

pub mod repo;

pub mod log;

pub mod upstream;

pub mod verb;

pub mod child;

pub mod parse;

pub mod skeleton;

pub mod checkout;

pub mod stage;
