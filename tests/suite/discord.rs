//! Discord. The fake is judged by twilight, a client that nobody here wrote.

mod fake;
