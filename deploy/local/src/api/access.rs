//! What somebody asks to do, as roles name it.

/// What somebody asks to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// As roles name it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural, with `/` and a subresource behind it; empty for a path that is no resource.
    pub resource: String,
    /// Namespace; empty across namespaces.
    pub namespace: String,
    /// Object; empty for all.
    pub name: String,
    /// Path, where it is no resource.
    pub path: String,
}

impl Access {
    /// To what is no resource.
    pub(crate) fn path(verb: &str, path: &str) -> Self {
        Access { verb: verb.to_lowercase(), path: path.into(), ..Access::default() }
    }
}
