//! Runs vectors (cases recorded from the systems that Zeroscale replaces) through our own code, and reports the
//! differences.
//!
//! A vector file contains one JSON object per line. Its `kind` selects the check, and fields named `want…` contain the
//! expected results. A function in [`kinds`] parses the cases of a kind into a typed struct, calls the core, and
//! compares. A case passes if every expected value is reproduced; [`compare`] has the tolerances.
//!
//! # Adding a kind
//!
//! Add one function in `kinds/`, one line in [`kinds::KINDS`], and one small hand-written case `tests/data/KIND.json`.
//! `tests/perturbation.rs` then proves that the case passes, and that it fails as soon as any expected value is
//! changed. So a check that compares nothing is detected.
//!
//! The vectors are in `vectors/`, packed, with a README that names their source. A kind that is not in the table is
//! unknown and fails: nothing is skipped silently.

mod api;
pub mod compare;
pub mod kinds;
pub mod run;
pub mod suite;
mod worker;

pub use compare::Mismatch;
