//! Failures as the `Status` objects that Kubernetes clients understand.
//!
//! Every refusal of the server is an [`ApiError`]: an HTTP code and a `Status` with `reason`, `details` and causes.
//! Clients decide by `reason` and `code`; people read `message`, so it names the thing, the value and the rule.
//! Field errors are collected in [`Causes`] and reported together, as one 422.

use serde_json::{Map, Value, json};

use super::access::Access;
use super::causes::Causes;
use super::resource::Resource;

/// What handlers of the API return.
pub(crate) type Result<T> = std::result::Result<T, ApiError>;

/// A refusal: an HTTP status code and the `Status` object that goes with it.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// HTTP status code, also in the body.
    pub(crate) code: u16,
    pub(crate) body: Value,
}

/// The words of a version conflict; clients match on them.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl ApiError {
    /// A failure with nothing but code, reason and message.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "reason": reason, "code": code,
        });
        ApiError { code, body }
    }

    fn details(mut self, details: Value) -> Self {
        if let Some(body) = self.body.as_object_mut() {
            body.insert("details".into(), details);
        }
        self
    }

    fn about(resource: &Resource, name: &str) -> Value {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !resource.group.is_empty() {
            details.insert("group".into(), resource.group.clone().into());
        }
        details.insert("kind".into(), resource.plural.clone().into());
        Value::Object(details)
    }

    /// 400: the request itself makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(400, "BadRequest", message)
    }

    /// 401: a token that this server did not give out.
    pub(crate) fn unauthorized() -> Self {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user has no right to it.
    pub(crate) fn denied(user: &str, resource: &Resource, access: &Access) -> Self {
        let message = format!("{} is forbidden: {}", resource.qualified(), access.refusal(user));
        ApiError::new(403, "Forbidden", message).details(Self::about(resource, &access.name))
    }

    /// 403 with a sentence of its own.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        ApiError::new(403, "Forbidden", message)
    }

    /// 403: the namespace is on its way out and takes nothing new.
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

    /// 404: no such object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        ApiError::new(404, "NotFound", message).details(Self::about(resource, name))
    }

    /// 404: no such object of a core resource.
    pub(crate) fn not_found_named(plural: &str, name: &str) -> Self {
        let message = format!("{plural} \"{name}\" not found");
        ApiError::new(404, "NotFound", message).details(json!({"name": name, "kind": plural}))
    }

    /// 404: no such resource, version or subresource.
    pub(crate) fn unknown_resource() -> Self {
        ApiError::new(404, "NotFound", "the server could not find the requested resource").details(json!({}))
    }

    /// 405: the path is known, the method is not.
    pub(crate) fn method_not_allowed(resource: Option<&Resource>) -> Self {
        let error =
            ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        match resource {
            Some(resource) => error.details(Self::about(resource, "")),
            None => error,
        }
    }

    /// 406: none of the media types that the client takes can be given.
    pub(crate) fn not_acceptable() -> Self {
        ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        ApiError::new(409, "AlreadyExists", message).details(Self::about(resource, name))
    }

    /// 409: a version or a precondition does not hold.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        ApiError::new(409, "Conflict", message).details(Self::about(resource, name))
    }

    /// 409 of server-side apply: fields that other managers own, as `(manager, path)`.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "field": field, "message": format!("conflict with \"{manager}\"")})
            })
            .collect();
        let list: Vec<String> =
            conflicts.iter().map(|(manager, field)| format!("conflict with \"{manager}\": {field}")).collect();
        let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {noun}: {}", conflicts.len(), list.join(", "));
        ApiError::new(409, "Conflict", message).details(json!({"causes": causes}))
    }

    /// 410: the version asked for is no longer in the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        ApiError::new(410, "Expired", message)
    }

    /// 413: the body is larger than the server reads.
    pub(crate) fn too_large(limit: usize) -> Self {
        ApiError::new(413, "RequestEntityTooLarge", format!("the request body exceeds the limit of {limit} bytes"))
    }

    /// 415: a body in a format that this path does not take.
    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        ApiError::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
        )
    }

    /// 422 with causes, for an object of a resource.
    pub(crate) fn invalid(resource: &Resource, name: &str, causes: Causes) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 with causes, for anything that has a group and a kind.
    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, causes: Causes) -> Self {
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let lines = causes.messages();
        let list = if lines.len() == 1 { lines[0].clone() } else { format!("[{}]", lines.join(", ")) };
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        details.insert("kind".into(), kind.into());
        let causes: Vec<Value> = causes
            .as_slice()
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        details.insert("causes".into(), causes.into());
        ApiError::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}"))
            .details(Value::Object(details))
    }

    /// 422 without causes: a JSON patch that does not fit the object.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        ApiError::new(422, "Invalid", message)
    }

    /// 504: the client has seen a version that this server has not reached.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        ApiError::new(504, "Timeout", message).details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }
}

/// The `Status` of a deletion that is complete.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = ApiError::about(resource, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
