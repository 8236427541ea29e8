//! The web: what may be reached, and what is made of what is there. No test sends anything anywhere but
//! to loopback: names and connections are the test's, and every connection that is asked for is seen.

mod attacks;

mod bodies;

mod dns;

mod fetches;

mod instance;

mod namespace;

mod process;

mod searches;

mod snapshots;
