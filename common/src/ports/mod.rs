//! Identifies the workload of a connection by the port number on which it arrived.
//!
//! Each port of each workload has its own TCP port number on every activator. This module holds the parts on which both
//! planes must agree: the record of all owners ([`ledger`]), the numbers on which an activator listens ([`listeners`]),
//! and the response to a probe of a number ([`Listening`]). The autoscaler allocates and releases numbers.
//!
//! The ledger is the only authority. Port numbers in an object's status are for people and tools to read. A tenant that
//! edits a status, or restores an old one from a backup, redirects no requests.

pub mod ledger;
pub mod listeners;

pub use ledger::{Block, Entry, Ledger, NumberState, PortId};

/// Report of an activator about a port number on which it listens ([`crate::bound_ports`]). A number that it has
/// released is not held, and must not be written into slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Random identifier of the responding process, valid until it ends: it distinguishes a restarted process at the
    /// same address from the former one.
    pub instance: String,
    /// Uid of the ZeroScaler that owns this number.
    pub uid: String,
    /// Set if the responding process regards the number as held by the workload.
    pub is_held: bool,
}
