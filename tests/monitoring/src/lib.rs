//! What `deploy/kubernetes/monitoring` says of our metrics, held to the list of them.
//!
//! - Each query of the alert rules and of the board names metrics, labels and values that there are ([`promql`],
//!   `common_runtime`'s catalog), so that a renamed metric breaks a test and no dashboard.
//! - The rules are written once; the object for the Prometheus Operator and the page of the manual are made of them
//!   ([`made`]).
//! - Each fault fires its own alert and no other, as Prometheus's `promtool` sees it.

pub mod board;
pub mod made;
pub mod promql;
pub mod rules;

#[cfg(test)]
mod faults;

use std::path::{Path, PathBuf};

/// A place in the repository.
pub fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
