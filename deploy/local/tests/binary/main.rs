//! Tests of the `local` binary from the user's side: output, rejected input and shutdown.
//!
//! Each test starts its own processes on free ports, and waits for states instead of fixed times. All processes of a
//! test are killed with it.

#![allow(missing_docs, reason = "tests")]

mod apart;
mod disk;
mod ending;
mod faults;
mod process;
mod refusals;
mod up;
