//! Identities: the administrator, by the server's own token, and ServiceAccounts, by issued tokens.
//!
//! The `token` subresource of a ServiceAccount issues tokens. A token is valid for certain audiences, until it expires,
//! and while the account exists, and the Pod if the token is bound to one. It is opaque, and its grant is stored here,
//! whereas Kubernetes signs the data into the token.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use super::causes::Causes;
use super::fields::{items, number, text};
use super::meta::time;
use super::status::{ApiError, Result};
use super::store::Store;

/// Audience of tokens for this server.
pub(crate) const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";
/// Group that may do everything.
pub(crate) const MASTERS: &str = "system:masters";
/// User name of the administrator, the holder of the server's own token.
pub(crate) const ADMINISTRATOR: &str = "zeroscale:admin";
/// Group of all callers with a token.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Group of all callers without a token.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// User name of callers without a token.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
const ACCOUNTS: &str = "/serviceaccounts";
const PODS: &str = "/pods";
/// Minimum and default lifetime of a token in seconds.
const EXPIRATION: (i64, i64) = (600, 3600);

/// Caller of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    /// Grant of the token, if the caller is a ServiceAccount.
    about: Option<Box<Grant>>,
}

/// Grant behind a token.
#[derive(Debug, Clone, PartialEq)]
struct Grant {
    namespace: String,
    account: String,
    uid: String,
    /// Name and uid of the pod to which the token is bound.
    pod: Option<(String, String)>,
    audiences: Vec<String>,
    expires: Timestamp,
}

impl Caller {
    /// Returns the caller without a token.
    pub(crate) fn anonymous() -> Self {
        Self::known(ANONYMOUS, vec![UNAUTHENTICATED.into()])
    }

    /// Returns a caller with known name and groups.
    pub(crate) fn known(name: &str, groups: Vec<String>) -> Self {
        Caller { name: name.into(), groups, about: None }
    }

    fn administrator() -> Self {
        Self::known(ADMINISTRATOR, vec![MASTERS.into(), AUTHENTICATED.into()])
    }

    fn account(grant: Grant) -> Self {
        let name = format!("system:serviceaccount:{}:{}", grant.namespace, grant.account);
        let [all, own] = account_groups(&grant.namespace);
        let groups = vec![all, own, AUTHENTICATED.into()];
        Caller { name, groups, about: Some(Box::new(grant)) }
    }

    /// Returns the user in the form of reviews.
    pub(crate) fn user(&self) -> Value {
        let mut user = json!({"username": self.name, "groups": self.groups});
        if let Some(grant) = &self.about {
            user["uid"] = grant.uid.as_str().into();
            if let Some((name, uid)) = &grant.pod {
                user["extra"] = json!({
                    "authentication.kubernetes.io/pod-name": [name], "authentication.kubernetes.io/pod-uid": [uid],
                });
            }
        }
        user
    }
}

pub(crate) struct Tokens {
    administrator: String,
    given: Mutex<HashMap<String, Grant>>,
}

impl Tokens {
    /// Starts with the administrator's token only.
    pub(crate) fn new(administrator: &str) -> Self {
        Tokens { administrator: administrator.into(), given: Mutex::default() }
    }

    /// Returns the owner of the token if it is valid for one of `audiences` (empty: this server), and the matching
    /// audiences. The administrator's token has no audience.
    pub(crate) fn review(&self, store: &Store, token: &str, audiences: &[String]) -> Option<(Caller, Vec<String>)> {
        if same(token, &self.administrator) {
            return Some((Caller::administrator(), Vec::new()));
        }
        let grant = self.given.lock().get(token).cloned()?;
        let own = [API_AUDIENCE.to_owned()];
        let wanted = if audiences.is_empty() { &own[..] } else { audiences };
        let good: Vec<_> = wanted.iter().filter(|audience| grant.audiences.contains(audience)).cloned().collect();
        let exists = |table: &str, name: &str, uid: &str| {
            store
                .get(table, &format!("{}/{name}", grant.namespace))
                .is_some_and(|object| object.text("/metadata/uid") == uid)
        };
        let lives = exists(ACCOUNTS, &grant.account, &grant.uid)
            && grant.pod.as_ref().is_none_or(|(name, uid)| exists(PODS, name, uid));
        (lives && !good.is_empty() && Timestamp::now() < grant.expires).then(|| (Caller::account(grant), good))
    }

    /// Handles a TokenRequest for the account `name`.
    pub(crate) fn issue(&self, store: &Store, namespace: &str, name: &str, body: &Value) -> Result<Value> {
        let account = store
            .get(ACCOUNTS, &format!("{namespace}/{name}"))
            .ok_or_else(|| ApiError::not_found_named("serviceaccounts", name))?;
        if !body.is_object() || body.get("spec").is_some_and(|spec| !spec.is_object() && !spec.is_null()) {
            return Err(ApiError::bad_request("TokenRequest: the body and its spec must be objects"));
        }
        let seconds = number(body, "/spec/expirationSeconds").unwrap_or(EXPIRATION.1);
        if seconds < EXPIRATION.0 {
            let mut causes = Causes::default();
            let rule = "may not specify a duration less than 10 minutes";
            causes.invalid("spec.expirationSeconds", &seconds.into(), rule);
            return Err(ApiError::invalid_kind("authentication.k8s.io", "TokenRequest", "", causes));
        }
        let audiences: Vec<String> = texts(body, "/spec/audiences");
        let grant = Grant {
            namespace: namespace.into(),
            account: name.into(),
            uid: account.text("/metadata/uid").into(),
            pod: bound_pod(store, namespace, name, body)?,
            audiences: if audiences.is_empty() { vec![API_AUDIENCE.into()] } else { audiences },
            expires: Timestamp::now().saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX),
        };
        let mut answer = body.clone();
        answer["spec"]["audiences"] = json!(grant.audiences);
        answer["spec"]["expirationSeconds"] = seconds.into();
        let token = make();
        answer["status"] = json!({"token": token, "expirationTimestamp": time(grant.expires)});
        let mut given = self.given.lock();
        given.retain(|_, grant| Timestamp::now() < grant.expires);
        given.insert(token, grant);
        Ok(answer)
    }
}

/// Returns the groups of the ServiceAccounts of a namespace.
pub(crate) fn account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// Generates an unguessable token.
pub(crate) fn make() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Returns the Pod to which a TokenRequest binds the token.
fn bound_pod(store: &Store, namespace: &str, account: &str, body: &Value) -> Result<Option<(String, String)>> {
    let bound = |field: &str| text(body, &format!("/spec/boundObjectRef/{field}"));
    let (kind, name) = (bound("kind"), bound("name"));
    if kind.is_empty() && name.is_empty() {
        return Ok(None);
    }
    if kind != "Pod" {
        return Err(ApiError::bad_request(format!("cannot bind token for serviceaccount to object kind {kind:?}")));
    }
    let key = format!("{namespace}/{name}");
    let pod = store.get(PODS, &key).ok_or_else(|| ApiError::not_found_named("pods", name))?;
    let of = pod.text("/spec/serviceAccountName");
    if of != account {
        let why = format!("cannot bind token for serviceaccount {account:?} to pod running with {of:?}");
        return Err(ApiError::bad_request(why));
    }
    let uid = pod.text("/metadata/uid");
    if !bound("uid").is_empty() && bound("uid") != uid {
        let why = format!("the UID in the bound object reference ({}) does not match that of pod {name}", bound("uid"));
        return Err(ApiError::new(409, "Conflict", why));
    }
    Ok(Some((name.into(), uid.into())))
}

/// Returns the texts in an array.
pub(crate) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    items(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Compares two tokens in constant time for a given length.
fn same(given: &str, known: &str) -> bool {
    let (given, known) = (given.as_bytes(), known.as_bytes());
    given.len() == known.len() && given.iter().zip(known).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::Api;
    use crate::api::query::WriteOptions;

    /// Goal: a token is issued for any lifetime of ten minutes or more, and a body with a wrong type is rejected.
    #[test]
    fn a_token_is_given_for_any_lifetime_and_no_body_panics() {
        let api = Api::for_tests();
        let accounts = api.registry.load().get("", "v1", "serviceaccounts").expect("ServiceAccounts");
        let account = json!({"metadata": {"name": "a"}});
        api.create(&accounts, "default", account, &WriteOptions::default()).expect("taken");
        let rows = [
            (json!({}), None),
            (json!({"spec": null}), None),
            (json!({"spec": {"expirationSeconds": i64::MAX}}), None),
            (json!({"spec": {"expirationSeconds": i64::MIN}}), Some(422)),
            (json!({"spec": []}), Some(400)),
            (json!({"spec": "a"}), Some(400)),
            (json!(null), Some(400)),
            (json!([]), Some(400)),
            (json!("a"), Some(400)),
        ];
        for (body, refused) in rows {
            let given = api.tokens.issue(&api.store, "default", "a", &body);
            assert_eq!(given.as_ref().err().map(|error| error.code), refused, "{body}");
            if let Ok(given) = given {
                let caller = api.tokens.review(&api.store, text(&given, "/status/token"), &[]);
                assert!(caller.is_some(), "{body}");
            }
        }
    }
}
