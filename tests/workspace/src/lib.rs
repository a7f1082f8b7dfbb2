//! Tests of the shape of the workspace: direction of dependencies and imports, use of the given packages, tidiness.
//!
//! The tests are in `tests/`. [`imports`] determines which file of a crate uses which other file.

pub mod imports;

// Listed but unused on purpose: see Cargo.toml.
use {cargo_metadata as _, hpa as _, tokio as _, tonic as _, tower_test as _};
