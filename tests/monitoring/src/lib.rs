//! Checks of `deploy/kubernetes/monitoring` against the list of metrics.
//!
//! - The queries of alert rules and board refer only to metrics, labels and values in `common_runtime`'s catalog
//!   ([`promql`]). So a renamed metric breaks a test instead of a dashboard.
//! - The rules have one source. The object for the Prometheus Operator and the page of the manual are generated from it
//!   ([`rules`]).
//! - Each fault fires its own alert and no other, according to Prometheus's `promtool`.

pub mod board;
pub mod promql;
pub mod rules;

#[cfg(test)]
mod faults;

use std::path::{Path, PathBuf};

/// Returns the path of a file of the repository.
pub fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
