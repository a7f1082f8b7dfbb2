//! Controllers and node against the embedded API server, over real sockets and with real processes.
//!
//! Each test has its own cluster: a server on a free port, separate ranges of loopback addresses, and its own folder.
//! The cluster and all its processes end with the test.

#![allow(missing_docs, reason = "tests")]

mod cluster;
mod horizontal;
mod pods;
mod program;
