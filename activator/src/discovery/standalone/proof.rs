//! Proof that a slice lists the pods or activators of a ZeroScaler.
//!
//! A slice lists activators only if the ZeroScaler controls it. A slice lists pods only if the ZeroScaler controls it,
//! or if the Service `NAME-private` controls it and the ZeroScaler controls that Service. A user who may edit Services
//! and slices in a namespace can forge these references, but only for that namespace: an owner and its objects share
//! one namespace, and neither hosts nor port numbers are read from them.

use crate::discovery::slices::ServiceRole;
use common::names;
use common_controller::objects::controller;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

/// Group and kind of the object that controls a private Service.
const ZERO_SCALER: (&str, &str) = ("zeroscale.dev/", "ZeroScaler");

/// Private Service that a ZeroScaler controls: the ZeroScaler's name, its uid, and the Service's uid, in one
/// allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrivateService(Box<str>);

impl PrivateService {
    /// Reads a Service; returns `None` if no ZeroScaler controls it or its name does not match.
    pub(super) fn from_service(service: &Service) -> Option<Self> {
        let owner = controller(&service.metadata)?;
        let is_owned = owner.api_version.starts_with(ZERO_SCALER.0) && owner.kind == ZERO_SCALER.1;
        let is_named = service.name_any() == names::private_service(&owner.name);
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        (is_owned && is_named).then(|| Self([&owner.name, "/", &owner.uid, "/", uid].concat().into()))
    }

    pub(super) fn scaler(&self) -> &str {
        self.words().0
    }

    /// Returns the ZeroScaler's name, its uid, and the Service's uid. No name contains a `/`.
    fn words(&self) -> (&str, &str, &str) {
        let (scaler, uids) = self.0.split_once('/').unwrap_or_default();
        let (owner, uid) = uids.split_once('/').unwrap_or_default();
        (scaler, owner, uid)
    }
}

/// Reports whether a slice lists the pods or activators of the ZeroScaler with this uid. `owner`: uid of the slice's
/// controller. `private`: the private Service with the expected name.
pub(super) fn covers(uid: &str, owner: Option<&str>, role: ServiceRole, private: Option<&PrivateService>) -> bool {
    let Some(owner) = owner.filter(|owner| !owner.is_empty()) else { return false };
    let is_controller = |private: &PrivateService| {
        let (_, scaler, service) = private.words();
        scaler == uid && service == owner
    };
    owner == uid || role == ServiceRole::Private && private.is_some_and(is_controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(change: impl FnOnce(&mut Value)) -> Service {
        let mut value = json!({"metadata": {"name": "hello-private", "namespace": "ns", "uid": "service", "ownerReferences": [{
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "name": "hello", "uid": "zs", "controller": true,
        }]}});
        change(&mut value);
        serde_json::from_value(value).expect("a Service")
    }

    #[test]
    fn a_slice_must_be_controlled_by_the_scaler_or_its_private_service() {
        let private = PrivateService::from_service(&service(|_| {})).expect("one");
        let owner = |field: &'static str, to: Value| {
            move |service: &mut Value| service["metadata"]["ownerReferences"][0][field] = to
        };
        for (case, service) in [
            ("another name", service(|service| service["metadata"]["name"] = json!("hello"))),
            ("no owner", service(|service| service["metadata"]["ownerReferences"] = json!([]))),
            ("another kind", service(owner("kind", json!("ServerlessService")))),
            ("another group", service(owner("apiVersion", json!("apps/v1")))),
            ("another ZeroScaler's name", service(owner("name", json!("other")))),
            ("no controller", service(owner("controller", json!(false)))),
        ] {
            assert_eq!(PrivateService::from_service(&service), None, "{case}");
        }
        let rows = [
            (Some("zs"), true, true),
            (Some("service"), true, false),
            (Some("former"), false, false),
            (None, false, false),
        ];
        for (owner, pods, activators) in rows {
            let roles = [ServiceRole::Private, ServiceRole::Public];
            let covered = |private| roles.map(|role| covers("zs", owner, role, private));
            assert_eq!(covered(Some(&private)), [pods, activators], "{owner:?}");
            assert_eq!(covered(None)[0], owner == Some("zs"), "{owner:?}, without the Service");
            let another = covers("another", owner, ServiceRole::Private, Some(&private));
            assert!(!another, "{owner:?}, another uid");
        }
        assert!(!covers("", Some(""), ServiceRole::Private, None), "no uid proves nothing");
    }
}
