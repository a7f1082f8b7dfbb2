//! What Knative Serving's own tests demand of its activator, row by row, through the public interface. The rows about
//! probing stand beside the backends.
//!
//! Where a row speaks of upstream's inner parts (tokens, packed words, panics of constructors), it says what
//! stands for them.

mod pods;
mod requests;
mod stats;
