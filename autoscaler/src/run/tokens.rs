//! What begins and ends when. Every token of an end is cancelled on every way out, a dropped future included.

use tokio_util::sync::{CancellationToken, DropGuard};

/// One token for each stage.
pub(super) struct Tokens {
    /// Cancelled when everything has been listed once: the campaign for leases begins, and the process is ready.
    pub(super) listed: CancellationToken,
    /// Ends with shutdown: what takes in work.
    pub(super) stop: CancellationToken,
    /// Ends when the reconcilers have: leases.
    pub(super) leases: CancellationToken,
    /// Ends when leases are released: watches, configuration, the admin port.
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
