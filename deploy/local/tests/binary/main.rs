//! The `local` binary as its user meets it: what it prints, what it refuses, how it ends.
//!
//! Each test starts processes of its own on free ports, and waits for states, never for time to pass. Whatever a test
//! starts is killed with it.

#![allow(missing_docs, reason = "tests")]

mod apart;
mod disk;
mod ending;
mod external;
mod faults;
mod process;
mod refusals;
mod up;
