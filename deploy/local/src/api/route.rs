//! Parsing of request paths.

use std::sync::Arc;

use http::Method;

use super::access::Access;
use super::query::Query;
use super::resource::{Registry, Resource};
use super::status::{ApiError, Result};

/// A resource, an object of it, or a subresource of an object.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    pub(crate) resource: Arc<Resource>,
    /// Namespace; empty for access across namespaces and for cluster-scoped resources.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl RequestInfo {
    /// Returns the access that `verb` needs here.
    pub(crate) fn access(&self, verb: &str, query: &Query) -> Access {
        // A list or watch may be restricted to one name.
        let one = query.text("fieldSelector").strip_prefix("metadata.name=");
        let resource = match &self.subresource {
            Some(part) => format!("{}/{part}", self.resource.plural),
            None => self.resource.plural.clone(),
        };
        // A Namespace counts as an object in itself, so that a Role in it can allow to read it.
        let namespace = match &self.name {
            Some(name) if self.resource.group.is_empty() && self.resource.plural == "namespaces" => name.clone(),
            _ => self.namespace.clone(),
        };
        Access {
            verb: verb.into(),
            group: self.resource.group.clone(),
            resource,
            namespace,
            name: self.name.as_deref().or(one).unwrap_or_default().into(),
            path: String::new(),
        }
    }

    /// Parses the segments of a path. Returns `None` for a path without a resource.
    pub(crate) fn parse(segments: &[&str], registry: &Registry) -> Result<Option<Self>> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() && registry.has_group(group) => {
                (*group, *version, rest)
            }
            _ => return Ok(None),
        };
        let (namespace, rest) = match rest {
            // The Namespace itself and its status.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let [plural, rest @ ..] = rest else { return Err(ApiError::unknown_resource()) };
        let resource = registry.get(group, version, plural).ok_or_else(ApiError::unknown_resource)?;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some(name.to_string()), None),
            [name, subresource] => (Some(name.to_string()), Some(subresource.to_string())),
            _ => return Err(ApiError::unknown_resource()),
        };
        let in_namespace = !namespace.is_empty();
        if in_namespace != resource.namespaced && (in_namespace || name.is_some()) {
            return Err(ApiError::unknown_resource());
        }
        Ok(Some(RequestInfo { resource, namespace: namespace.into(), name, subresource }))
    }

    /// Returns the verb of a request, in the terms of roles.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> &'static str {
        match (method.as_str(), &self.name) {
            ("GET", Some(_)) => "get",
            ("GET", None) if query.flag("watch") => "watch",
            ("GET", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => "use",
        }
    }
}
