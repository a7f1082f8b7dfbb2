//! Reviews of identity and access: answered and not stored.

use serde_json::{Value, json};

use super::access::Access;
use super::causes::Causes;
use super::core::Api;
use super::fields::text;
use super::identity::{ADMINISTRATOR, Caller, MASTERS, texts};
use super::rbac;
use super::status::{ApiError, Result};

/// Returns the review with its status. `kind` is its kind.
pub(super) fn answer(kind: &str, api: &Api, caller: &Caller, body: &Value) -> Result<Value> {
    let status = match kind {
        "TokenReview" => token(api, body)?,
        "SelfSubjectReview" => json!({"userInfo": caller}),
        "SelfSubjectAccessReview" => json!({"allowed": rbac::allows(&api.store, caller, &attributes(body, kind)?)}),
        _ => subject_access(api, body, kind)?,
    };
    let mut answer = body.clone();
    answer["status"] = status;
    Ok(answer)
}

fn token(api: &Api, body: &Value) -> Result<Value> {
    let token = text(body, "/spec/token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(match api.tokens.review(&api.store, token, &texts(body, "/spec/audiences")) {
        Some((caller, audiences)) if audiences.is_empty() => json!({"authenticated": true, "user": caller}),
        Some((caller, audiences)) => json!({"authenticated": true, "user": caller, "audiences": audiences}),
        None => json!({"user": {}, "error": "the token was not issued by this server"}),
    })
}

fn subject_access(api: &Api, body: &Value, kind: &str) -> Result<Value> {
    let access = attributes(body, kind)?;
    let (user, mut groups) = (text(body, "/spec/user"), texts(body, "/spec/groups"));
    if user == ADMINISTRATOR {
        groups.push(MASTERS.into());
    }
    let allowed = rbac::allows(&api.store, &Caller::known(user, groups), &access);
    Ok(json!({"allowed": allowed}))
}

fn attributes(body: &Value, kind: &str) -> Result<Access> {
    let given = |key: &str| body.pointer(&format!("/spec/{key}")).is_some_and(Value::is_object);
    if given("resourceAttributes") != given("nonResourceAttributes") {
        return Ok(access(&body["spec"]));
    }
    let mut causes = Causes::default();
    let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    causes.invalid("spec.resourceAttributes", &Value::Null, rule);
    Err(ApiError::invalid_kind("authorization.k8s.io", kind, "", causes))
}

/// Returns the access in the attributes of a resource or of a path.
fn access(spec: &Value) -> Access {
    let attribute = |name: &str| text(spec, &format!("/resourceAttributes/{name}")).to_owned();
    if spec.get("resourceAttributes").is_none_or(Value::is_null) {
        return Access::path(text(spec, "/nonResourceAttributes/verb"), text(spec, "/nonResourceAttributes/path"));
    }
    let (resource, part) = (attribute("resource"), attribute("subresource"));
    let resource = if part.is_empty() { resource } else { format!("{resource}/{part}") };
    let (verb, group, namespace, name) =
        (attribute("verb"), attribute("group"), attribute("namespace"), attribute("name"));
    Access { verb, group, resource, namespace, name, path: String::new() }
}
