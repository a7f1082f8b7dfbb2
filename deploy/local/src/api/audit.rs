//! Who is told of every request.

use std::sync::Arc;

use super::access::Access;

/// Hears of every request: the user, what was asked for, and whether it was allowed. Must not block.
#[derive(Clone)]
pub struct Audit(Arc<AuditFn>);

type AuditFn = dyn Fn(&str, &Access, bool) + Send + Sync;

impl Audit {
    /// Calls `hear` with user, access and whether it was allowed.
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
