//! The suites over Sage's real processes: one binary, a module per theme.

mod check;

mod flow;

mod fences;

mod clone_fences;

mod review;

mod remote;

mod files;

mod edits;

mod beneath;

mod once;

mod killed;

mod half_done;

mod full_disk;

mod approvals;

mod status;

mod stop;

mod explain;

mod audit;

mod rate;

mod peers;

mod vault;

mod records;

mod reads;

mod repositories;

mod crowd;

mod differences;

mod same_as_git;

mod generated;

mod hostile;

mod redirects;

mod traps;

mod wire;

mod token;

mod web;

mod confinement;

mod engines;

mod browser;
mod call;
mod discord;
mod install;
mod logs;
mod terminal;

mod units;

mod mcp;

mod doctor;

mod config_files;

mod docs;
