//! Report of an activator about a port number on which it listens ([`crate::bound_ports`]).
//!
//! The instance is random for each start, which distinguishes a restarted process at the same address from the former
//! one. A released number is no longer held, and must not be written into slices.

/// A port number on which an activator listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Identifier of the responding process, valid until it ends.
    pub instance: String,
    /// Uid of the ZeroScaler that owns this number.
    pub uid: String,
    /// Set if the responding process regards the number as held by the workload.
    pub is_held: bool,
}
