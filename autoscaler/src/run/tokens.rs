//! Tokens for the start and the end of the process's stages. Every end token is cancelled on each exit path, also if
//! the future is dropped.

use tokio_util::sync::{CancellationToken, DropGuard};

/// One token for each stage.
pub(super) struct Tokens {
    /// Cancelled when everything has been listed once: the campaign for leases starts, and the process is ready.
    pub(super) listed: CancellationToken,
    /// Cancelled at shutdown: ends all parts that accept work.
    pub(super) stop: CancellationToken,
    /// Cancelled when the reconcilers have ended: releases the leases.
    pub(super) leases: CancellationToken,
    /// Cancelled when the leases are released: ends watches, configuration and the admin port.
    pub(super) last: CancellationToken,
    _guards: [DropGuard; 3],
}

impl Tokens {
    pub(super) fn new(shutdown: &CancellationToken) -> Self {
        let (stop, leases, last) = (shutdown.child_token(), CancellationToken::new(), CancellationToken::new());
        let _guards = [stop.clone().drop_guard(), leases.clone().drop_guard(), last.clone().drop_guard()];
        Self { listed: CancellationToken::new(), stop, leases, last, _guards }
    }
}
