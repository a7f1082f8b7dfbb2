//! Runs vectors (cases recorded from the systems we replace) through our own code, and says where the two differ.
//!
//! A vector file holds one JSON object a line; its `kind` says what is asked, and fields named `want…` hold the
//! answer. [`kinds`] has one small file for each kind: it reads the case into a typed struct, calls the core, and
//! compares. A case passes when every expected value is reproduced; [`compare`] has the tolerances.
//!
//! # Adding a kind
//!
//! One file in `kinds/`, one line in [`kinds::KINDS`], and one small case `tests/data/KIND.json`, written by hand.
//! `tests/perturbation.rs` then proves that the case passes, and that it fails as soon as any expected value is
//! changed: a check that compares nothing cannot go unnoticed.
//!
//! The vectors stand in `vectors/`, packed, with a README that says what computed them. A kind that is not in the table
//! is unknown, and fails: nothing is skipped in silence.

mod api;
pub mod compare;
pub mod kinds;
pub mod run;
pub mod suite;
mod worker;

pub use compare::Mismatch;
