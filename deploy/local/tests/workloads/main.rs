//! Controllers and node against the embedded API server, over real sockets and with real processes.
//!
//! Each test has a cluster of its own: a server on a free port, ranges of loopback addresses that no other test has,
//! its own folder. When a test ends its cluster is shut down, and with it every process.

#![allow(missing_docs, reason = "tests")]

mod capacity;
mod cluster;
mod collisions;
mod controllers;
mod horizontal;
mod node_alone;
mod pods;
mod program;
mod samples;
mod services;
