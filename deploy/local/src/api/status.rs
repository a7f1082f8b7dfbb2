//! Errors as `Status` objects, which Kubernetes clients understand.
//!
//! Every error is an [`ApiError`]: an HTTP code and a `Status` with `reason`, `details` and causes. Clients evaluate
//! `reason` and `code`. People read `message`, so it names the object, the value and the rule. Field errors are
//! collected in [`Causes`] and reported together, as one 422.

use super::access::Access;
use super::resource::Resource;
use serde::Serialize;
use serde_json::{Value, json};

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

pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = ApiError::about(resource, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// A field error, as in the details of a Status.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

/// Field errors in the order of detection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Causes(pub(super) Vec<Cause>);

impl Causes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the errors as `FIELD: MESSAGE`.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    fn push(&mut self, reason: &'static str, field: impl Into<String>, message: String) {
        self.0.push(Cause { reason, field: field.into(), message });
    }

    /// Adds an error: a required field is missing.
    pub(crate) fn required(&mut self, field: impl Into<String>, rule: &str) {
        let message = if rule.is_empty() { "Required value".into() } else { format!("Required value: {rule}") };
        self.push("FieldValueRequired", field, message);
    }

    /// Adds an error: the value breaks a rule.
    pub(crate) fn invalid(&mut self, field: impl Into<String>, value: &Value, rule: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {value}: {rule}"));
    }

    pub(crate) fn wrong_type(&mut self, field: impl Into<String>, value: &Value, rule: &str) {
        self.push("FieldValueTypeInvalid", field, format!("Invalid value: {value}: {rule}"));
    }

    /// Adds an error: the value is not one of the allowed ones.
    pub(crate) fn not_supported(&mut self, field: impl Into<String>, value: &Value, allowed: &[&str]) {
        let allowed: Vec<String> = allowed.iter().map(|a| format!("\"{a}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        self.push("FieldValueNotSupported", field, message);
    }

    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: &Value) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    /// Adds an error: the field must not be set or changed here.
    pub(crate) fn forbidden(&mut self, field: impl Into<String>, rule: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {rule}"));
    }

    pub(crate) fn too_long(&mut self, field: impl Into<String>, limit: u64) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {limit} bytes"));
    }

    pub(crate) fn too_many(&mut self, field: impl Into<String>, count: usize, limit: u64) {
        self.push("FieldValueTooMany", field, format!("Too many: {count}: must have at most {limit} items"));
    }
}
