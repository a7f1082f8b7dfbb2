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

    /// That `user` has no right to a resource, as refusals say it.
    pub(crate) fn refusal(&self, user: &str) -> String {
        let Access { verb, group, resource, namespace, .. } = self;
        let scope = match namespace.as_str() {
            "" => "at the cluster scope".into(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}")
    }
}
