//! Audit of requests.

use std::sync::Arc;

use super::access::Access;

/// Callback for every admitted request with user, requested access and decision. It must not block.
#[derive(Clone)]
pub struct Audit(Arc<AuditFn>);

type AuditFn = dyn Fn(&str, &Access, bool) + Send + Sync;

impl Audit {
    /// Creates an audit that calls `hear` with user, access, and true if the access is allowed.
    pub fn new(hear: impl Fn(&str, &Access, bool) + Send + Sync + 'static) -> Self {
        Audit(Arc::new(hear))
    }

    pub(super) fn hear(&self, user: &str, access: &Access, allowed: bool) {
        self.0(user, access, allowed);
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audit")
    }
}
