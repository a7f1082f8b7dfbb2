//! Report of an activator about a workload's port number that it listens on ([`crate::bound_ports`]).
//!
//! It names the process, the workload that has the number there, and whether the number may be written into slices. A
//! released number is closing and may not. The instance is random for each start. It distinguishes a restarted process
//! at the same address from the former one.

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
