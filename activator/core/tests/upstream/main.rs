//! Knative Serving's own tests of its activator, row by row, through the public interface. The rows about probing are
//! in the tests of the backends.
//!
//! If a row depends on internals of Knative (tokens, packed words, panics of constructors), a comment names the
//! equivalent here.

mod pods;
mod requests;
mod stats;
