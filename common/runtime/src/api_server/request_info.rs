//! Describes a request in the terms of roles: a verb, a resource and a namespace.

use http::{Method, Uri};
use std::fmt;

/// Verb, and the resource that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub(super) verb: &'static str,
    /// API group; empty for core.
    pub(super) group: String,
    /// Plural of the resource, followed by `/` and the subresource, if any.
    pub(super) resource: String,
    /// Namespace; empty for requests across namespaces.
    pub(super) namespace: String,
}

impl RequestInfo {
    /// Parses a request. Returns `None` if it concerns no resource, such as `/version` and discovery.
    pub(super) fn from_request(method: &Method, uri: &Uri) -> Option<Self> {
        let mut parts = uri.path().split('/').skip(1);
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        // A namespace is also an object: `namespaces/a` names one, whereas `namespaces/a/pods` concerns pods in it.
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(name), None),
            [plural, name, subresource, ..] => (*plural, Some(name), Some(subresource)),
            [] => return None,
        };
        let watches = uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        let verb = match (method, name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if watches => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => return None,
        };
        let resource = subresource.map_or_else(|| plural.to_owned(), |part| format!("{plural}/{part}"));
        Some(Self { verb, group: group.to_owned(), resource, namespace: namespace.to_owned() })
    }

    /// Reports whether the request reads a collection, so that a 404 concerns the resource and not one object.
    pub(super) fn is_list_or_watch(&self) -> bool {
        matches!(self.verb, "list" | "watch")
    }

    /// Returns the resource with its group, which is also the name of a CustomResourceDefinition.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.qualified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_verb_and_resource_of_their_role() {
        let rows = [
            ("GET /api/v1/pods?&watch=true&timeoutSeconds=290", "watch pods ", true),
            ("GET /api/v1/pods?limit=500", "list pods ", true),
            ("GET /api/v1/namespaces/a", "get namespaces ", false),
            ("GET /api/v1/namespaces", "list namespaces ", true),
            ("GET /api/v1/namespaces/a/configmaps", "list configmaps a", true),
            ("POST /apis/authentication.k8s.io/v1/tokenreviews", "create tokenreviews.authentication.k8s.io ", false),
            ("PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b", "update leases.coordination.k8s.io a", false),
            ("PATCH /apis/apps/v1/namespaces/a/deployments/b/scale", "patch deployments/scale.apps a", false),
            ("DELETE /api/v1/namespaces/a/services/b", "delete services a", false),
            ("GET /version", "", false), // Concerns no resource, as the next ones.
            ("GET /apis/apps/v1", "", false),
            ("GET /apis", "", false),
        ];
        for (request, expected, is_list_or_watch) in rows {
            let (method, path) = request.split_once(' ').expect("a path");
            let info = RequestInfo::from_request(&method.parse().expect("a method"), &path.parse().expect("a path"));
            let text = info.as_ref().map(|info| format!("{info} {}", info.namespace)).unwrap_or_default();
            assert_eq!(text, expected, "{request}");
            assert_eq!(info.is_some_and(|info| info.is_list_or_watch()), is_list_or_watch, "{request}");
        }
    }
}
