//! Questions about identity and permission: answered, never stored.

use serde_json::{Value, json};

use super::core::Api;
use super::identity::{ADMINISTRATOR, Caller, MASTERS, texts};
use super::meta::text;
use super::rbac::{self, Access};
use super::status::{ApiError, Causes, Result};

/// TokenReview: whose token is this?
pub(crate) fn token(api: &Api, _: &Caller, body: &Value) -> Result<Value> {
    let token = text(body, "/spec/token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let status = match api.tokens.review(&api.store, token, &texts(body, "/spec/audiences")) {
        Some((caller, audiences)) => {
            let mut status = json!({"authenticated": true, "user": caller.user()});
            if !audiences.is_empty() {
                status["audiences"] = json!(audiences);
            }
            status
        }
        None => json!({"user": {}, "error": "the token is not one of this server's"}),
    };
    Ok(answer(body, status))
}

/// SelfSubjectReview: who am I?
pub(crate) fn whoami(_: &Api, caller: &Caller, body: &Value) -> Result<Value> {
    Ok(answer(body, json!({"userInfo": caller.user()})))
}

/// SelfSubjectAccessReview: may I?
pub(crate) fn may_i(api: &Api, caller: &Caller, body: &Value) -> Result<Value> {
    let access = attributes(body, "SelfSubjectAccessReview")?;
    Ok(answer(body, json!({"allowed": rbac::allows(&api.store, caller, &access)})))
}

/// SubjectAccessReview: may somebody else?
pub(crate) fn may_they(api: &Api, _: &Caller, body: &Value) -> Result<Value> {
    let access = attributes(body, "SubjectAccessReview")?;
    let (user, mut groups) = (text(body, "/spec/user"), texts(body, "/spec/groups"));
    if user == ADMINISTRATOR {
        groups.push(MASTERS.into());
    }
    let allowed = rbac::allows(&api.store, &Caller::known(user, groups), &access);
    Ok(answer(body, json!({"allowed": allowed})))
}

/// SelfSubjectRulesReview: what may I?
pub(crate) fn rules(api: &Api, caller: &Caller, body: &Value) -> Result<Value> {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if caller.groups.iter().any(|group| group == MASTERS) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in rbac::rules(&api.store, caller, text(body, "/spec/namespace")) {
        let of_paths = rule.get("nonResourceURLs").is_some();
        if of_paths { paths.push(rule) } else { resources.push(rule) }
    }
    Ok(answer(body, json!({"incomplete": false, "resourceRules": resources, "nonResourceRules": paths})))
}

fn answer(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    answer["status"] = status;
    answer
}

fn attributes(body: &Value, kind: &str) -> Result<Access> {
    let given = |key: &str| body.pointer(&format!("/spec/{key}")).is_some_and(Value::is_object);
    if given("resourceAttributes") != given("nonResourceAttributes") {
        return Ok(Access::of_review(&body["spec"]));
    }
    let mut causes = Causes::default();
    let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    causes.invalid("spec.resourceAttributes", &Value::Null, rule);
    Err(ApiError::invalid_kind("authorization.k8s.io", kind, "", causes))
}
