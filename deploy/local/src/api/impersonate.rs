//! Whom a request acts as: its caller, or the user and groups of its `Impersonate-` headers (`kubectl --as`).
//!
//! As in Kubernetes a caller needs the verb `impersonate` on the user, or ServiceAccount, and on each of the groups.
//! Who names no groups acts with those that the user has by its name.
//!
//! Not here: `Impersonate-Uid` and `Impersonate-Extra-`, which are refused.

use http::HeaderMap;

use super::access::Access;
use super::identity::{ANONYMOUS, AUTHENTICATED, Caller, UNAUTHENTICATED, account_groups};
use super::rbac;
use super::status::{ApiError, Result};
use super::store::Store;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";

/// Whom a request of `caller` acts as.
pub(crate) fn impersonate(headers: &HeaderMap, caller: Caller, store: &Store) -> Result<Caller> {
    let mut names = headers.keys().map(|name| name.as_str());
    if let Some(name) = names.find(|name| *name == "impersonate-uid" || name.starts_with("impersonate-extra-")) {
        return Err(ApiError::bad_request(format!("header {name}: only users and groups can be impersonated here")));
    }
    let values = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let mut groups = values(GROUP);
    let Some(user) = values(USER).into_iter().next().filter(|user| !user.is_empty()) else {
        return match groups.is_empty() {
            true => Ok(caller),
            false => Err(ApiError::bad_request(format!("requested groups {groups:?} without impersonating a user"))),
        };
    };
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let account = account.filter(|(_, name)| !name.contains(':'));
    match account {
        Some((namespace, name)) => check(store, &caller, "serviceaccounts", namespace, name)?,
        None => check(store, &caller, "users", "", &user)?,
    }
    for group in &groups {
        check(store, &caller, "groups", "", group)?;
    }
    if let Some((namespace, _)) = account.filter(|_| groups.is_empty()) {
        groups.extend(account_groups(namespace));
    }
    if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        let all = if user == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        groups.push(all.into());
    }
    Ok(Caller::known(&user, groups))
}

/// Refuses a caller who may not impersonate that name.
fn check(store: &Store, caller: &Caller, resource: &str, namespace: &str, name: &str) -> Result<()> {
    let access = Access {
        verb: "impersonate".into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Access::default()
    };
    match rbac::allows(store, caller, &access) {
        true => Ok(()),
        false => {
            let rule = access.refusal(&caller.name);
            Err(ApiError::forbidden(format!("{resource} \"{name}\" is forbidden: {rule}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::identity::MASTERS;
    use http::{HeaderName, HeaderValue};

    fn acting(caller: &Caller, headers: &[(&'static str, &'static str)]) -> std::result::Result<Caller, (u16, String)> {
        let mut map = HeaderMap::new();
        for &(name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        impersonate(&map, caller.clone(), &Store::new(16))
            .map_err(|error| (error.code, error.body["message"].as_str().unwrap_or_default().to_owned()))
    }

    fn known(name: &str, groups: &[&str]) -> Caller {
        Caller::known(name, groups.iter().map(|group| (*group).to_owned()).collect())
    }

    /// Goal: the administrator acts as the user and the groups that the headers name, and with those that the user has by
    /// its name.
    #[test]
    fn the_administrator_acts_as_whom_the_headers_name() {
        let administrator = known("admin", &[MASTERS]);
        let account = "system:serviceaccount:shop:a";
        let rows: [(&[(&str, &str)], Caller); 8] = [
            (&[], administrator.clone()),
            (&[(USER, "jane")], known("jane", &[AUTHENTICATED])),
            (&[(USER, "jane"), (GROUP, "a"), (GROUP, "b")], known("jane", &["a", "b", AUTHENTICATED])),
            (&[(USER, "jane"), (GROUP, AUTHENTICATED)], known("jane", &[AUTHENTICATED])),
            (
                &[(USER, account)],
                known(account, &["system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED]),
            ),
            (&[(USER, account), (GROUP, "a")], known(account, &["a", AUTHENTICATED])),
            (&[(USER, "system:serviceaccount:a:b:c")], known("system:serviceaccount:a:b:c", &[AUTHENTICATED])),
            (&[(USER, ANONYMOUS)], Caller::anonymous()),
        ];
        for (headers, expected) in rows {
            assert_eq!(acting(&administrator, headers), Ok(expected), "{headers:?}");
        }
    }

    /// Goal: who has no right to impersonate is refused in the words of Kubernetes, and nothing that a header asks for
    /// is passed over.
    #[test]
    fn what_is_not_allowed_or_not_known_is_refused() {
        let (jane, administrator) = (known("jane", &[AUTHENTICATED]), known("admin", &[MASTERS]));
        let cannot = |what: &str, resource: &str, scope: &str| {
            let rule = format!("cannot impersonate resource \"{resource}\" in API group \"\" {scope}");
            (403, format!("{resource} \"{what}\" is forbidden: User \"jane\" {rule}"))
        };
        let refused =
            |caller: &Caller, headers: &[(&'static str, &'static str)]| acting(caller, headers).expect_err("refused");
        assert_eq!(refused(&jane, &[(USER, "admin")]), cannot("admin", "users", "at the cluster scope"));
        assert_eq!(
            refused(&jane, &[(USER, "system:serviceaccount:shop:a")]),
            cannot("a", "serviceaccounts", "in the namespace \"shop\"")
        );
        let rows = [&[(GROUP, MASTERS)][..], &[(USER, "a"), ("impersonate-uid", "1")], &[("impersonate-extra-a", "b")]];
        for headers in rows {
            assert_eq!(refused(&administrator, headers).0, 400, "{headers:?}");
        }
    }
}
