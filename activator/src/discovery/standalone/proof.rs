//! What shows that an object is one of those by which the autoscaler publishes a revision.
//!
//! A revision `NAME` of a namespace is published by one Service there, `NAME-private`, which its ZeroScaler or
//! ServerlessService `NAME` controls; its pods are in slices that this Service controls, its activators in slices that the
//! same owner controls. Who may edit all these kinds in a namespace can make them up: nothing in an object shows who wrote
//! it. But he
//! speaks by them for that namespace alone: an owner and what it owns are in one namespace, the revision and the Service
//! that the annotation names are ones of it, and hosts are not read here at all. And a second Service, or what is left of a
//! former one, never stands in a revision's place.
//!
//! A ZeroScaler speaks for itself: no Service stands for it. Its pods are in slices that it controls, or that a Service
//! `NAME-private` controls which it controls; its activators in slices that it controls.
//!
//! Where Endpoints stand for slices, they have the name of the Service whose they are.

use crate::discovery::slices::{ObjectOwner, Side};
use common::backend::Backend;
use common::host;
use common::names;
use common_controller::objects::controller;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

/// Groups and kinds that control a private Service.
const OWNERS: [(&str, &str); 2] =
    [("zeroscale.dev/", "ZeroScaler"), ("networking.internal.knative.dev/", "ServerlessService")];

/// The same of those that a ZeroScaler has.
const ZERO_SCALER: (&str, &str) = ("zeroscale.dev/", "ZeroScaler");

/// Of one ZeroScaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalerProof {
    /// Its own uid.
    pub(super) uid: String,
    /// Name of the public Service.
    pub(super) public: String,
}

/// A private Service that a ZeroScaler controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrivateService {
    /// Its uid.
    uid: String,
    /// The ZeroScaler's name.
    pub(super) scaler: String,
    /// The ZeroScaler's uid.
    owner: String,
}

impl PrivateService {
    /// This Service, if it is one.
    pub(super) fn of(service: &Service) -> Option<Self> {
        let owner = controller(&service.metadata)?;
        let is_owned = owner.api_version.starts_with(ZERO_SCALER.0) && owner.kind == ZERO_SCALER.1;
        let is_named = service.name_any() == names::private_service(&owner.name);
        (is_owned && is_named).then(|| Self {
            uid: service.uid().unwrap_or_default(),
            scaler: owner.name.clone(),
            owner: owner.uid.clone(),
        })
    }
}

impl ScalerProof {
    /// Whether what belongs to `owner` is about this one's pods, or activators. `private`: the Service of that name.
    pub(super) fn covers(&self, owner: Option<&ObjectOwner>, side: Side, private: Option<&PrivateService>) -> bool {
        let private = private.filter(|private| private.owner == self.uid && !private.uid.is_empty());
        match (owner, side) {
            (Some(ObjectOwner::Uid(owner)), _) if *owner == self.uid => !owner.is_empty(),
            (Some(ObjectOwner::Uid(owner)), Side::Private) => private.is_some_and(|private| private.uid == *owner),
            (Some(ObjectOwner::Service(name)), Side::Private) => {
                private.is_some_and(|private| names::private_service(&private.scaler) == *name)
            }
            (Some(ObjectOwner::Service(name)), Side::Public) => *name == self.public,
            _ => false,
        }
    }
}

/// Of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// Uid of the private Service.
    service: String,
    /// Uid of the ServerlessService.
    serverless: String,
    /// Name of the private Service.
    private: String,
    /// Name of the public Service.
    public: String,
}

impl Proof {
    /// That of a private Service with this annotation, if it is one.
    pub(super) fn of(service: &Service, backend: &Backend) -> Option<Self> {
        let name = service.name_any();
        let owner = controller(&service.metadata)?;
        let is_owner = |(group, kind): &(&str, &str)| owner.api_version.starts_with(group) && owner.kind == *kind;
        let is_owned = OWNERS.iter().any(is_owner) && owner.name == backend.revision && !owner.uid.is_empty();
        let is_named = name == names::private_service(&backend.revision)
            && host::is_label(&backend.revision)
            && host::is_label(&backend.service);
        (is_owned && is_named).then(|| Self {
            service: service.uid().unwrap_or_default(),
            serverless: owner.uid.clone(),
            private: name,
            public: backend.service.clone(),
        })
    }

    /// Whether what belongs to `owner` is about this revision's pods, or activators.
    pub(super) fn covers(&self, owner: Option<&ObjectOwner>, side: Side) -> bool {
        let (uid, name) = match side {
            Side::Private => (&self.service, &self.private),
            Side::Public => (&self.serverless, &self.public),
        };
        match owner {
            Some(ObjectOwner::Uid(owner)) => owner == uid,
            Some(ObjectOwner::Service(owner)) => owner == name,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(change: impl FnOnce(&mut Value)) -> Service {
        let mut value = json!({"metadata": {"name": "hello-private", "namespace": "ns", "uid": "service", "ownerReferences": [{
            "apiVersion": "networking.internal.knative.dev/v1alpha1", "kind": "ServerlessService",
            "name": "hello", "uid": "sks", "controller": true,
        }]}});
        change(&mut value);
        serde_json::from_value(value).expect("a Service")
    }

    #[test]
    fn only_the_one_service_that_the_autoscaler_makes_speaks_for_a_revision() {
        let backend = Backend::plain("hello");
        assert!(Proof::of(&service(|_| {}), &backend).is_some());
        let owner = |field: &'static str, to: Value| {
            move |service: &mut Value| service["metadata"]["ownerReferences"][0][field] = to
        };
        let forged = [
            ("another name", service(|service| service["metadata"]["name"] = json!("hello"))),
            ("no owner", service(|service| service["metadata"]["ownerReferences"] = json!([]))),
            ("not its controller", service(owner("controller", json!(false)))),
            ("another kind", service(owner("kind", json!("Deployment")))),
            ("another group", service(owner("apiVersion", json!("apps/v1")))),
            ("another's", service(owner("name", json!("other")))),
            ("no uid", service(owner("uid", json!("")))),
        ];
        for (what, service) in &forged {
            assert_eq!(Proof::of(service, &backend), None, "{what}");
        }
        for revision in ["other", "", "../hello", "hello.prod"] {
            let backend = Backend { revision: revision.into(), ..backend.clone() };
            assert_eq!(Proof::of(&service(|_| {}), &backend), None, "revision {revision:?}");
        }
        for revision in ["a/b", "hello.prod", &format!("a{}/b", "a".repeat(60))] {
            let backend = Backend { revision: revision.into(), ..backend.clone() };
            let named = service(|service| {
                service["metadata"]["name"] = json!(names::private_service(revision));
                service["metadata"]["ownerReferences"][0]["name"] = json!(revision);
            });
            assert_eq!(Proof::of(&named, &backend), None, "revision {revision:?}, consistently");
        }
        for public in ["hello.prod", "", "hello.prod.svc.cluster", "*", "a/b"] {
            let backend = Backend { service: public.into(), ..backend.clone() };
            assert_eq!(Proof::of(&service(|_| {}), &backend), None, "Service {public:?}");
        }
    }

    #[test]
    fn slices_are_believed_by_whom_they_belong_to() {
        let proof = Proof::of(&service(|_| {}), &Backend::plain("hello")).expect("one");
        let uid = |uid: &str| Some(ObjectOwner::Uid(uid.into()));
        let named = |name: &str| Some(ObjectOwner::Service(name.into()));
        let rows = [
            (uid("service"), true, false),
            (uid("sks"), false, true),
            (uid("former"), false, false),
            (named("hello-private"), true, false),
            (named("hello"), false, true),
            (None, false, false),
        ];
        for (owner, private, public) in rows {
            let believed = [Side::Private, Side::Public].map(|side| proof.covers(owner.as_ref(), side));
            assert_eq!(believed, [private, public], "{owner:?}");
        }
    }

    #[test]
    fn a_scalers_slices_are_its_own_or_its_private_services() {
        let owned = |change: &dyn Fn(&mut Value)| {
            service(|service| {
                service["metadata"]["ownerReferences"][0]["apiVersion"] = json!("zeroscale.dev/v1alpha1");
                service["metadata"]["ownerReferences"][0]["kind"] = json!("ZeroScaler");
                change(service);
            })
        };
        let private = PrivateService::of(&owned(&|_| {})).expect("one");
        for (what, service) in [
            ("another name", owned(&|service| service["metadata"]["name"] = json!("hello"))),
            ("another kind", service(|_| {})),
            ("no controller", owned(&|s| s["metadata"]["ownerReferences"][0]["controller"] = json!(false))),
        ] {
            assert_eq!(PrivateService::of(&service), None, "{what}");
        }
        let proof = |uid: &str| ScalerProof { uid: uid.into(), public: "hello".into() };
        let uid = |uid: &str| Some(ObjectOwner::Uid(uid.into()));
        let named = |name: &str| Some(ObjectOwner::Service(name.into()));
        let rows = [
            (uid("sks"), true, true),
            (uid("service"), true, false),
            (uid("former"), false, false),
            (named("hello-private"), true, false),
            (named("hello"), false, true),
            (None, false, false),
        ];
        for (owner, pods, activators) in rows {
            let of =
                |private| [Side::Private, Side::Public].map(|side| proof("sks").covers(owner.as_ref(), side, private));
            assert_eq!(of(Some(&private)), [pods, activators], "{owner:?}");
            assert_eq!(of(None)[0], owner == uid("sks"), "{owner:?}, without the Service");
            let another = proof("another").covers(owner.as_ref(), Side::Private, Some(&private));
            assert!(!another, "{owner:?}, of one of the same name");
        }
        assert!(!proof("").covers(uid("").as_ref(), Side::Private, None), "no uid proves nothing");
    }
}
