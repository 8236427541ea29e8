//! Confinement: what makes an authority row true whatever the code inside it does.
//!
//! Three rings, each sufficient against what it names.
//!
//! 1. [`daemon`]: the whole process, once, before a second thread exists: no capabilities, no new
//!    privileges, Landlock over the union of all rows, a seccomp allow list.
//! 2. [`domain`]: each in-process call, on a thread of its own that never leaves its domain.
//! 3. [`launcher`]: each child, by way of this same binary in a hidden role that confines itself
//!    and only then becomes git or python.
//!
//! What must stay true: nothing here widens. Rulesets are frozen once built, filters only stack, and
//! a step that fails ends the start, the call or the child, never only itself. No function here
//! decides *whether* something may happen: rows arrive as [`grants::Grants`], already decided.
//!
//! [`kernel`] says which kernel is enough and which ring covers what an older one lacks.

pub mod cancel;
pub mod child;
pub mod daemon;
pub mod domain;
mod elf;
mod error;
mod fds;
pub mod grants;
pub mod kernel;
pub mod launcher;
mod privileges;
mod pump;
mod role;
pub mod seccomp;
mod syscalls;

pub use error::ConfineError;
