//! Requested access, in the terms of roles, and its audit.

use std::sync::Arc;

/// Requested access, in the terms of roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// Verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural, followed by `/` and the subresource if there is one; empty for a path without a resource.
    pub resource: String,
    /// Namespace; empty for access across namespaces.
    pub namespace: String,
    /// Name of the object; empty for all.
    pub name: String,
    /// Path, for access without a resource.
    pub path: String,
}

impl Access {
    /// Returns the access to a path without a resource.
    pub(crate) fn path(verb: &str, path: &str) -> Self {
        Access { verb: verb.to_lowercase(), path: path.into(), ..Access::default() }
    }
}

/// Callback for every admitted request with user, requested access and decision. It must not block.
#[derive(Clone)]
pub struct Audit(Arc<AuditFn>);

type AuditFn = dyn Fn(&str, &Access, bool) + Send + Sync;

impl Audit {
    /// Creates an audit that calls `callback` with user, access, and true if the access is allowed.
    pub fn new(callback: impl Fn(&str, &Access, bool) + Send + Sync + 'static) -> Self {
        Audit(Arc::new(callback))
    }

    pub(super) fn record(&self, user: &str, access: &Access, allowed: bool) {
        self.0(user, access, allowed);
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audit")
    }
}
