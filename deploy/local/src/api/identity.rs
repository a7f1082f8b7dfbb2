//! Identities: the administrator, by the server's own token, and ServiceAccounts, by issued tokens.
//!
//! The `token` subresource of a ServiceAccount issues tokens. A token is valid for certain audiences until it expires,
//! as long as its account exists, and its Pod if it is bound to one. It is opaque, and its grant is stored here,
//! whereas Kubernetes signs the data into the token.
//!
//! [`admit`] identifies the caller of a request. A web page can make a browser send requests to loopback under a name
//! that the page's owner points there (DNS rebinding). So `Host` must be a loopback address or `localhost`, and an
//! `Origin`, which browsers add, must be the server itself. After that, the token is checked. [`super::rbac`] decides
//! what the caller may do.

use super::fields::items;
use super::status::{ApiError, Causes, Result};
use super::store::{PODS, Store};
use common_runtime::credential::is_secret;
use http::Request;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use uuid::Uuid;

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
/// Minimum and default lifetime of a token in seconds.
const EXPIRATION: (i64, i64) = (600, 3600);

/// Caller of a request, serialized as in reviews.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Caller {
    #[serde(rename = "username")]
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    /// uid of the ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    /// Name and uid of the pod to which the token is bound.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<&'static str, [String; 1]>,
}

/// Grant behind a token.
#[derive(Debug, Clone)]
struct Grant {
    caller: Caller,
    /// Table, key and uid of objects that must exist: the account, and the pod to which the token is bound.
    objects: Vec<(&'static str, String, String)>,
    audiences: Vec<String>,
    expires: Timestamp,
}

impl Caller {
    pub(crate) fn anonymous() -> Self {
        Self::known(ANONYMOUS, vec![UNAUTHENTICATED.into()])
    }

    pub(crate) fn known(name: &str, groups: Vec<String>) -> Self {
        Caller { name: name.into(), groups, ..Caller::default() }
    }
}

pub(crate) struct Tokens {
    administrator: String,
    /// Grants by their tokens.
    issued: Mutex<HashMap<String, Grant>>,
}

impl Tokens {
    /// Starts with the administrator's token only.
    pub(crate) fn new(administrator: &str) -> Self {
        Tokens { administrator: administrator.into(), issued: Mutex::default() }
    }

    /// Returns the owner of the token if it is valid for one of `audiences` (empty: this server), and the matching
    /// audiences. The administrator's token has no audience.
    pub(crate) fn review(&self, store: &Store, token: &str, audiences: &[String]) -> Option<(Caller, Vec<String>)> {
        if is_secret(token, &self.administrator) {
            let groups = vec![MASTERS.into(), AUTHENTICATED.into()];
            return Some((Caller::known(ADMINISTRATOR, groups), Vec::new()));
        }
        let grant = self.issued.lock().get(token).cloned()?;
        let own = [API_AUDIENCE.to_owned()];
        let wanted = if audiences.is_empty() { &own[..] } else { audiences };
        let matching: Vec<_> = wanted.iter().filter(|audience| grant.audiences.contains(audience)).cloned().collect();
        let exist = grant
            .objects
            .iter()
            .all(|(table, key, uid)| store.get(table, key).is_some_and(|object| object.text("/metadata/uid") == uid));
        (exist && !matching.is_empty() && Timestamp::now() < grant.expires).then_some((grant.caller, matching))
    }

    /// Handles a TokenRequest for the account `name`.
    pub(crate) fn issue(&self, store: &Store, namespace: &str, name: &str, body: Value) -> Result<Value> {
        let key = format!("{namespace}/{name}");
        let account = store.get(ACCOUNTS, &key).ok_or_else(|| ApiError::not_found_named("serviceaccounts", name))?;
        let refuse = |error: serde_json::Error| ApiError::bad_request(format!("TokenRequest: {error}"));
        let mut request: TokenRequest = serde_json::from_value(body).map_err(refuse)?;
        let spec = request.spec.get_or_insert_default();
        let seconds = *spec.expiration_seconds.get_or_insert(EXPIRATION.1);
        if seconds < EXPIRATION.0 {
            let mut causes = Causes::default();
            let rule = "may not specify a duration less than 10 minutes";
            causes.invalid("spec.expirationSeconds", &seconds.into(), rule);
            return Err(ApiError::invalid_kind("authentication.k8s.io", "TokenRequest", "", causes));
        }
        let audiences = spec.audiences.get_or_insert_default();
        if audiences.is_empty() {
            audiences.push(API_AUDIENCE.into());
        }
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), AUTHENTICATED];
        let caller = format!("system:serviceaccount:{namespace}:{name}");
        let mut caller = Caller::known(&caller, groups.map(str::to_owned).to_vec());
        let uid = account.text("/metadata/uid").to_owned();
        caller.uid = Some(uid.clone());
        let mut grant = Grant {
            caller,
            objects: vec![(ACCOUNTS, key, uid)],
            audiences: audiences.clone(),
            expires: Timestamp::now().saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX),
        };
        if let Some(reference) = &spec.bound_object_ref {
            bind(&mut grant, store, namespace, name, reference)?;
        }
        let token = generate_token();
        let expires = Some(Time(grant.expires));
        request.status = Some(TokenRequestStatus { token: Some(token.clone()), expiration_timestamp: expires });
        let mut issued = self.issued.lock();
        issued.retain(|_, grant| Timestamp::now() < grant.expires);
        issued.insert(token, grant);
        Ok(json!(request))
    }
}

pub(crate) fn generate_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Binds the token of an account to a pod.
fn bind(
    grant: &mut Grant,
    store: &Store,
    namespace: &str,
    account: &str,
    reference: &BoundObjectReference,
) -> Result<()> {
    let BoundObjectReference { kind, name, uid: expected, .. } = reference;
    let kind = kind.as_deref().unwrap_or_default();
    if kind != "Pod" {
        return Err(ApiError::bad_request(format!("cannot bind token for serviceaccount to object kind {kind:?}")));
    }
    let name = name.as_deref().unwrap_or_default();
    let key = format!("{namespace}/{name}");
    let pod = store.get(PODS, &key).ok_or_else(|| ApiError::not_found_named("pods", name))?;
    let actual = pod.text("/spec/serviceAccountName");
    if actual != account {
        let why = format!("cannot bind token for serviceaccount {account:?} to pod running with {actual:?}");
        return Err(ApiError::bad_request(why));
    }
    let uid = pod.text("/metadata/uid");
    if let Some(expected) = expected.as_deref().filter(|expected| !expected.is_empty() && *expected != uid) {
        let why = format!("the UID in the bound object reference ({expected}) does not match that of pod {name}");
        return Err(ApiError::new(409, "Conflict", why));
    }
    grant.caller.extra = [
        ("authentication.kubernetes.io/pod-name", [name.to_owned()]),
        ("authentication.kubernetes.io/pod-uid", [uid.to_owned()]),
    ]
    .into();
    grant.objects.push((PODS, key, uid.to_owned()));
    Ok(())
}

pub(crate) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    items(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Identifies the caller. Rejects requests from foreign pages and with unknown tokens.
pub(crate) fn admit<B>(request: &Request<B>, tokens: &Tokens, store: &Store) -> Result<Caller> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = request.uri().authority().map(|authority| authority.as_str()).or_else(|| header(HOST));
    let host = host.unwrap_or_default();
    if !is_loopback(host) {
        return Err(ApiError::forbidden(format!("Host \"{host}\" is not a loopback address of this server")));
    }
    if let Some(origin) = header(ORIGIN)
        && origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) != Some(host)
    {
        return Err(ApiError::forbidden(format!("Origin \"{origin}\" is not the address of this server")));
    }
    if request.headers().keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(ApiError::bad_request("this server does not support impersonation; omit --as and --as-group"));
    }
    match header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")) {
        None => Ok(Caller::anonymous()),
        Some(token) => {
            tokens.review(store, token.trim(), &[]).map(|(caller, _)| caller).ok_or_else(ApiError::unauthorized)
        }
    }
}

/// Reports whether `host` or `host:port` is a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::Api;
    use crate::api::fields::text;
    use crate::api::query::WriteOptions;

    /// Goal: a token is issued for any lifetime of ten minutes or more, and a body with a wrong type is rejected.
    #[test]
    fn a_token_is_issued_for_any_lifetime_and_no_body_panics() {
        let api = Api::for_tests();
        let accounts = api.registry.load().get("", "v1", "serviceaccounts").expect("ServiceAccounts");
        let account = json!({"metadata": {"name": "a"}});
        api.create(&accounts, "default", account, &WriteOptions::default()).expect("created");
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
            let issued = api.tokens.issue(&api.store, "default", "a", body.clone());
            assert_eq!(issued.as_ref().err().map(|error| error.code), refused, "{body}");
            if let Ok(issued) = issued {
                let caller = api.tokens.review(&api.store, text(&issued, "/status/token"), &[]);
                assert!(caller.is_some(), "{body}");
            }
        }
    }

    #[test]
    fn only_loopback_names_are_local() {
        for host in ["127.0.0.1:80", "127.9.8.7", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.com", "127.0.0.1.example.com", "10.0.0.1:80", "localhost.example.com:80", "[::2]:80"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
