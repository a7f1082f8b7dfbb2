//! Holds the shape of the workspace: direction of dependencies and of imports, use of the given packages, tidiness.
//!
//! The tests are in `tests/`. [`imports`] reads which file of a crate uses which.

pub mod imports;

// Nothing of them is used: see Cargo.toml.
use {cargo_metadata as _, hpa as _, tokio as _, tonic as _, tower_test as _};
