//! What shows that an object is one of those by which the autoscaler publishes a revision.
//!
//! A revision `NAME` of a namespace is published by one Service there, `NAME-private`, which its ServerlessService `NAME`
//! controls; its pods are in slices that this Service controls, its activators in slices that the ServerlessService
//! controls. Who may edit all these kinds in a namespace can make them up: nothing in an object shows who wrote it. But he
//! speaks by them for that namespace alone: an owner and what it owns are in one namespace, the revision and the Service
//! that the annotation names are ones of it, and hosts are not read here at all. And a second Service, or what is left of a
//! former one, never stands in a revision's place.
//!
//! Where Endpoints stand for slices, they have the name of the Service whose they are.

use crate::discovery::slices::{ObjectOwner, Side};
use common::backend::Backend;
use common::host;
use common::names;
use common_controller::objects::controller;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

/// Group and kind that control a private Service.
const SERVERLESS_SERVICE: (&str, &str) = ("networking.internal.knative.dev/", "ServerlessService");

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
        let is_owned = owner.api_version.starts_with(SERVERLESS_SERVICE.0)
            && owner.kind == SERVERLESS_SERVICE.1
            && owner.name == backend.revision
            && !owner.uid.is_empty();
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
}
