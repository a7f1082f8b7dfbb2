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
        let (plural, name, part) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(name), None),
            [plural, name, part, ..] => (*plural, Some(name), Some(part)),
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
        let resource = part.map_or_else(|| plural.to_owned(), |part| format!("{plural}/{part}"));
        Some(Self { verb, group: group.to_owned(), resource, namespace: namespace.to_owned() })
    }

    /// Reports whether the request concerns all objects of the resource, so a 404 means the resource and not one
    /// object.
    pub(super) fn is_about_all(&self) -> bool {
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
    fn a_path_says_what_a_role_must_allow() {
        let rows = [
            ("GET", "/api/v1/pods?&watch=true&timeoutSeconds=290", Some("watch pods "), true),
            ("GET", "/api/v1/pods?limit=500", Some("list pods "), true),
            ("GET", "/api/v1/namespaces/a", Some("get namespaces "), false),
            ("GET", "/api/v1/namespaces", Some("list namespaces "), true),
            ("GET", "/api/v1/namespaces/a/configmaps", Some("list configmaps a"), true),
            (
                "POST",
                "/apis/authentication.k8s.io/v1/tokenreviews",
                Some("create tokenreviews.authentication.k8s.io "),
                false,
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                Some("update leases.coordination.k8s.io a"),
                false,
            ),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", Some("patch deployments/scale.apps a"), false),
            ("DELETE", "/api/v1/namespaces/a/services/b", Some("delete services a"), false),
            ("GET", "/version", None, false),
            ("GET", "/apis/apps/v1", None, false),
            ("GET", "/apis", None, false),
        ];
        for (method, path, expected, about_all) in rows {
            let info = RequestInfo::from_request(&method.parse().expect("a method"), &path.parse().expect("a path"));
            let found = info.as_ref().map(|info| format!("{info} {}", info.namespace));
            assert_eq!(found.as_deref(), expected, "{method} {path}");
            assert_eq!(info.is_some_and(|info| info.is_about_all()), about_all, "{method} {path}");
        }
    }
}
