//! Identifies the workload of a connection by the port number on which it arrived.
//!
//! Each port of each workload has its own TCP port number on every activator. This module holds the parts on which both
//! planes must agree: the record of all owners ([`ledger`]), the numbers on which an activator listens ([`listeners`]),
//! and the response to a probe of a number ([`answer`]). The autoscaler allocates and releases numbers.
//!
//! The ledger is the only authority. Port numbers in an object's status are for people and tools to read. A tenant that
//! edits a status, or restores an old one from a backup, redirects no requests.

pub mod answer;
pub mod ledger;
pub mod listeners;

pub use ledger::{Block, Entry, Ledger, NumberState, PortId};
