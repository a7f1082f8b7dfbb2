//! Memory of a client's connection besides its requests.

pub(crate) mod connection_memory;
pub(crate) mod output;

/// Memory of each kind that a connection does not charge.
const FREE: u64 = 16 * 1024;

/// Number of bytes per charge, so that the lock is taken once for many.
const STEP: u64 = 64 * 1024;

fn charge_for(bytes: u64) -> u64 {
    bytes.saturating_sub(FREE).div_ceil(STEP) * STEP
}
