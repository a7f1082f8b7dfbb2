//! Upstream's numbered cases (Knative Serving's own tables for its activator, sections 10.1 to 10.7 of the behavioural
//! reference) through the public interface, each under its number. 10.8 and 10.9 stand beside the backends, 10.10
//! beside the activator's discovery, 10.11 beside its time bounds; 10.12 is about whole systems.
//!
//! Where a case speaks of upstream's inner parts (tokens, packed words, panics of constructors), the row says what
//! stands for it.

mod pods;
mod requests;
mod stats;
