//! Questions about identity and permission: answered, never stored.
//!
//! There is one identity, the holder of the token, and it may do everything. Others may do nothing, unless they say
//! that they are in `system:masters`.

use serde_json::{Value, json};

use super::meta::text;
use super::status::{ApiError, Causes, Result};

/// Who the holder of the token is.
const ADMINISTRATOR: &str = "zeroscale:admin";
const MASTERS: &str = "system:masters";

/// Knows the token.
#[derive(Debug)]
pub(crate) struct Reviewer {
    token: String,
}

impl Reviewer {
    pub(crate) fn new(token: &str) -> Self {
        Reviewer { token: token.into() }
    }

    /// Whether a bearer token is the one given out; takes the same time for every token of its length.
    pub(crate) fn accepts(&self, token: &str) -> bool {
        let (given, known) = (token.as_bytes(), self.token.as_bytes());
        given.len() == known.len() && given.iter().zip(known).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    /// TokenReview: whose token is this?
    pub(crate) fn token(&self, body: &Value) -> Result<Value> {
        let token = text(body, "/spec/token");
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let status = match self.accepts(token) {
            true => json!({"authenticated": true, "user": administrator()}),
            false => json!({"user": {}, "error": "the token is not one of this server's"}),
        };
        Ok(answer(body, status))
    }

    /// SelfSubjectReview: who am I?
    pub(crate) fn whoami(&self, body: &Value) -> Result<Value> {
        Ok(answer(body, json!({"userInfo": administrator()})))
    }

    /// SelfSubjectAccessReview: may I?
    pub(crate) fn may_i(&self, body: &Value) -> Result<Value> {
        attributes(body, "SelfSubjectAccessReview")?;
        Ok(answer(body, json!({"allowed": true})))
    }

    /// SubjectAccessReview: may somebody else?
    pub(crate) fn may_they(&self, body: &Value) -> Result<Value> {
        attributes(body, "SubjectAccessReview")?;
        let groups = body.pointer("/spec/groups").and_then(Value::as_array);
        let allowed = text(body, "/spec/user") == ADMINISTRATOR
            || groups.is_some_and(|groups| groups.iter().any(|group| group == MASTERS));
        Ok(answer(body, json!({"allowed": allowed})))
    }

    /// SelfSubjectRulesReview: what may I?
    pub(crate) fn rules(&self, body: &Value) -> Result<Value> {
        let status = json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        });
        Ok(answer(body, status))
    }
}

fn administrator() -> Value {
    json!({"username": ADMINISTRATOR, "groups": [MASTERS, "system:authenticated"]})
}

fn answer(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    answer["status"] = status;
    answer
}

fn attributes(body: &Value, kind: &str) -> Result<()> {
    let given = |key: &str| body.pointer(&format!("/spec/{key}")).is_some_and(Value::is_object);
    if given("resourceAttributes") != given("nonResourceAttributes") {
        return Ok(());
    }
    let mut causes = Causes::default();
    let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    causes.invalid("spec.resourceAttributes", &Value::Null, rule);
    Err(ApiError::invalid_kind("authorization.k8s.io", kind, "", causes))
}
