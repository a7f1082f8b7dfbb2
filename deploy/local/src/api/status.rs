//! Errors as `Status` objects, which Kubernetes clients understand.
//!
//! Every error is an [`ApiError`]: an HTTP code and a `Status` with `reason`, `details` and causes. Clients evaluate
//! `reason` and `code`. People read `message`, so it names the object, the value and the rule. Field errors are
//! collected in [`Causes`] and reported together, as one 422.

use serde_json::{Value, json};

use super::access::Access;
use super::causes::Causes;
use super::resource::Resource;

/// Result of the API's handlers.
pub(crate) type Result<T> = std::result::Result<T, ApiError>;

/// An error: HTTP status code and `Status` object.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// HTTP status code, also in the body.
    pub(crate) code: u16,
    pub(crate) body: Value,
}

/// Message of a version conflict, which clients match.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl ApiError {
    /// Creates an error with code, reason and message only.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "reason": reason, "code": code,
        });
        ApiError { code, body }
    }

    fn details(mut self, details: Value) -> Self {
        self.body["details"] = details;
        self
    }

    fn about(resource: &Resource, name: &str) -> Value {
        details(&resource.group, &resource.plural, name)
    }

    /// 400: the request is invalid.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(400, "BadRequest", message)
    }

    /// 401: the token was not issued by this server.
    pub(crate) fn unauthorized() -> Self {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user has no right to the resource.
    pub(crate) fn denied(user: &str, resource: &Resource, access: &Access) -> Self {
        let Access { verb, group, resource: part, namespace, name, .. } = access;
        let scope = match namespace.as_str() {
            "" => "at the cluster scope".into(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let rule = format!("User \"{user}\" cannot {verb} resource \"{part}\" in API group \"{group}\" {scope}");
        let message = format!("{} is forbidden: {rule}", resource.qualified());
        ApiError::new(403, "Forbidden", message).details(Self::about(resource, name))
    }

    /// 403 with a custom message.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        ApiError::new(403, "Forbidden", message)
    }

    /// 403: the namespace is terminating, so nothing can be created in it.
    pub(crate) fn terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let rule = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut details = Self::about(resource, name);
        details["causes"] = json!([{
            "reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": format!("namespace {namespace} is being terminated"),
        }]);
        let message = format!("{} \"{name}\" is forbidden: {rule}", resource.qualified());
        ApiError::new(403, "Forbidden", message).details(details)
    }

    /// 404: the object does not exist.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        ApiError::new(404, "NotFound", message).details(Self::about(resource, name))
    }

    /// 404: the object of a core resource does not exist.
    pub(crate) fn not_found_named(plural: &str, name: &str) -> Self {
        let message = format!("{plural} \"{name}\" not found");
        ApiError::new(404, "NotFound", message).details(json!({"name": name, "kind": plural}))
    }

    /// 404: the resource, version or subresource does not exist.
    pub(crate) fn unknown_resource() -> Self {
        ApiError::new(404, "NotFound", "the server could not find the requested resource").details(json!({}))
    }

    /// 405: the path does not support the method.
    pub(crate) fn method_not_allowed(resource: Option<&Resource>) -> Self {
        let rule = "the server does not allow this method on the requested resource";
        let mut error = ApiError::new(405, "MethodNotAllowed", rule);
        if let Some(resource) = resource {
            error.body["details"] = Self::about(resource, "");
        }
        error
    }

    /// 406: the server supports none of the accepted media types.
    pub(crate) fn not_acceptable() -> Self {
        ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        ApiError::new(409, "AlreadyExists", message).details(Self::about(resource, name))
    }

    /// 409: a version or a precondition does not match.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        ApiError::new(409, "Conflict", message).details(Self::about(resource, name))
    }

    /// 409 of server-side apply: other managers own these fields, as `(manager, path)`.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let (mut causes, mut list) = (Vec::new(), Vec::new());
        for (manager, field) in conflicts {
            let message = format!("conflict with \"{manager}\"");
            list.push(format!("{message}: {field}"));
            causes.push(json!({"reason": "FieldManagerConflict", "field": field, "message": message}));
        }
        let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {noun}: {}", conflicts.len(), list.join(", "));
        ApiError::new(409, "Conflict", message).details(json!({"causes": causes}))
    }

    /// 410: the requested version is no longer in the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        ApiError::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    pub(crate) fn too_large(limit: usize) -> Self {
        ApiError::new(413, "RequestEntityTooLarge", format!("the request body exceeds the limit of {limit} bytes"))
    }

    /// 415: the path does not support the format of the body.
    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        let rule = "the body of the request was in an unknown format - accepted media types include";
        ApiError::new(415, "UnsupportedMediaType", format!("{rule}: {accepted}"))
    }

    /// 422 with causes, for an object of this kind.
    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, causes: Causes) -> Self {
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let lines = causes.messages();
        let list = if lines.len() == 1 { lines[0].clone() } else { format!("[{}]", lines.join(", ")) };
        let mut details = details(group, kind, name);
        details["causes"] = json!(causes.0);
        ApiError::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}")).details(details)
    }

    /// 422 without causes: a JSON patch does not fit the object.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        ApiError::new(422, "Invalid", message)
    }

    /// 504: the client requested a version that this server has not reached.
    pub(crate) fn version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        ApiError::new(504, "Timeout", message).details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }
}

impl Causes {
    /// Returns a 422 for an object of this kind if there are errors.
    pub(crate) fn into_result(self, group: &str, kind: &str, name: &str) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(ApiError::invalid_kind(group, kind, name, self)) }
    }
}

/// Returns the `details` of a `Status` about an object.
fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut details = json!({"kind": kind});
    for (field, text) in [("group", group), ("name", name)] {
        if !text.is_empty() {
            details[field] = text.into();
        }
    }
    details
}

/// Returns the `Status` of a completed deletion.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = ApiError::about(resource, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
