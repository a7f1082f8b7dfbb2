//! Ownership of a public Service, and how a foreign Service is borrowed and given back.
//!
//! A Service that we did not create is borrowed if no other object controls or borrows it. Borrowing removes its
//! selector, which makes Kubernetes' controllers leave its endpoints to us, and records the selector and the borrower
//! in two annotations. Giving it back undoes exactly these three edits, so the Service then differs from its original
//! only in `resourceVersion` and `managedFields`.
//!
//! # Edge cases
//!
//! - The user applies the original manifest again: the selector is back, and the annotations are still there. The
//!   Service is borrowed again, with that selector as the one to restore.
//! - Two ZeroScalers name the same Service: the annotation holds the borrower's uid; for the other ZeroScaler the
//!   Service is foreign.
//! - A Service without a selector, without a cluster IP (headless) or of type ExternalName cannot carry traffic to
//!   activators on another port, and is refused. A borrowed Service that becomes headless or an ExternalName is given
//!   back together with its workload, which nothing could wake any more.

use crate::cluster::facts::Labels;
use common::names;
use common_controller::objects::controller;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Annotation on an adopted Service: uid of the ZeroScaler that borrowed it.
pub(crate) const ADOPTED_BY: &str = "zeroscale.dev/adopted-by";

/// Kinds that create Services for a revision, under its name.
pub(crate) const OWNER_KINDS: [&str; 2] = ["ServerlessService", "ZeroScaler"];

/// Relation of a public Service to one ZeroScaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceOwnership {
    /// The Service does not exist, and we may create it.
    Absent,
    /// We created the Service.
    Ours,
    /// We have borrowed the Service.
    Adopted,
    /// A former ZeroScaler of this name created the Service, and Kubernetes is about to delete it.
    Outgoing,
    /// The Service has another owner, and we may borrow it.
    Adoptable,
    /// The Service has another owner, and we may not borrow it, for this reason.
    Foreign(String),
}

/// ZeroScaler that claims a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    /// Name of the ZeroScaler.
    pub(crate) name: &'a str,
    /// Uid of the ZeroScaler.
    pub(crate) uid: &'a str,
}

/// Returns the relation of `service` to the claimant.
pub(crate) fn ownership(service: Option<&Service>, claimant: Claimant<'_>) -> ServiceOwnership {
    let Some(service) = service else { return ServiceOwnership::Absent };
    let name = service.metadata.name.as_deref().unwrap_or_default();
    if let Some(owner) = controller(&service.metadata) {
        return if owner.uid == claimant.uid {
            ServiceOwnership::Ours
        } else if OWNER_KINDS.contains(&owner.kind.as_str()) && owner.name == claimant.name {
            ServiceOwnership::Outgoing
        } else {
            ServiceOwnership::Foreign(format!("Service {name:?} is controlled by {} {:?}", owner.kind, owner.name))
        };
    }
    match annotation(service, ADOPTED_BY) {
        Some(uid) if uid == claimant.uid => return ServiceOwnership::Adopted,
        Some(_) => return ServiceOwnership::Foreign(format!("Service {name:?} is adopted by another ZeroScaler")),
        None => {}
    }
    if let Some(why) = unfit(service) {
        return ServiceOwnership::Foreign(format!("Service {name:?} cannot be adopted: {why}"));
    }
    if !needs_adoption(service) {
        let why = "it has no selector, so another writer manages its endpoints";
        return ServiceOwnership::Foreign(format!("Service {name:?} cannot be adopted: {why}"));
    }
    ServiceOwnership::Adoptable
}

/// Reports whether the object with this uid controls the one with this metadata.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller(meta).is_some_and(|owner| owner.uid == uid)
}

/// Reports whether the ZeroScaler with this uid has borrowed a Service and must give it back.
pub(crate) fn is_borrowed_by(service: &Service, autoscaler_uid: &str) -> bool {
    annotation(service, ADOPTED_BY) == Some(autoscaler_uid)
}

/// Returns the reason why a Service of any owner cannot carry traffic to activators, or `None` if it can.
pub(crate) fn unfit(service: &Service) -> Option<&'static str> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some("a Service of type ExternalName has no endpoints");
    }
    (spec.cluster_ip.as_deref() == Some("None"))
        .then_some("clients of a headless Service connect to the ports of the pods, not to activators")
}

/// Returns the Service as borrowed: the selector is recorded and removed. Also handles a borrowed Service whose
/// selector came back.
pub(crate) fn adopt(service: &Service, autoscaler_uid: &str) -> Service {
    let mut adopted = service.clone();
    let selector = adopted.spec.as_mut().and_then(|spec| spec.selector.take()).unwrap_or_default();
    let annotations = adopted.metadata.annotations.get_or_insert_default();
    if !selector.is_empty() {
        let json = serde_json::to_string(&selector).unwrap_or_default(); // A map of strings always serialises.
        annotations.insert(names::ADOPTED_SELECTOR.to_owned(), json);
    }
    annotations.insert(ADOPTED_BY.to_owned(), autoscaler_uid.to_owned());
    adopted
}

/// Reports whether a Service has a selector. A borrowed Service with one must be borrowed again.
pub(crate) fn needs_adoption(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// Returns the original selector of a borrowed Service, or `None` if the annotation is missing or unreadable.
pub(crate) fn noted_selector(service: &Service) -> Option<Labels> {
    annotation(service, names::ADOPTED_SELECTOR).and_then(|json| serde_json::from_str(json).ok())
}

/// Returns the Service as it was before it was borrowed. If its annotation is unreadable, it stays without a selector.
pub(crate) fn release(service: &Service) -> Service {
    let mut released = service.clone();
    let noted = noted_selector(service);
    if let Some(annotations) = &mut released.metadata.annotations {
        annotations.remove(names::ADOPTED_SELECTOR);
        annotations.remove(ADOPTED_BY);
        if annotations.is_empty() {
            released.metadata.annotations = None;
        }
    }
    let spec = released.spec.get_or_insert_default();
    if spec.selector.as_ref().is_none_or(|selector| selector.is_empty()) {
        spec.selector = noted;
    }
    released
}

fn annotation<'a>(service: &'a Service, name: &str) -> Option<&'a str> {
    service.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ME: Claimant<'_> = Claimant { name: "hello", uid: "zs" };

    fn service(value: Value) -> Service {
        serde_json::from_value(value).expect("a Service")
    }

    fn plain() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "7", "labels": {"team": "a"}},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "web", "port": 80, "targetPort": "http"}],
                     "selector": {"app": "hello", "tier": "web"}, "type": "ClusterIP"},
        })
    }

    #[test]
    fn a_service_is_given_back_as_it_was() {
        let mut with_annotations = plain();
        with_annotations["metadata"]["annotations"] = json!({"keep": "me"});
        for value in [plain(), with_annotations] {
            let original = service(value);
            let adopted = adopt(&original, "zs");
            assert_eq!(adopted.spec.as_ref().and_then(|s| s.selector.clone()), None);
            assert_eq!(ownership(Some(&adopted), ME), ServiceOwnership::Adopted);
            assert!(!needs_adoption(&adopted));
            assert_eq!(adopt(&adopted, "zs"), adopted, "borrowing twice changes nothing");
            let bytes = |s: &Service| serde_json::to_string(s).expect("serialisable");
            assert_eq!(bytes(&release(&adopted)), bytes(&original));
        }
    }

    #[test]
    fn a_reapplied_selector_is_the_one_to_restore() {
        let mut adopted = adopt(&service(plain()), "zs");
        let new: Labels = [("app".to_owned(), "v2".to_owned())].into();
        adopted.spec.as_mut().expect("spec").selector = Some(new.clone());
        assert!(needs_adoption(&adopted));
        let again = adopt(&adopted, "zs");
        assert!(!needs_adoption(&again));
        assert_eq!(release(&again).spec.and_then(|spec| spec.selector), Some(new));
    }

    #[test]
    fn a_service_is_ours_adoptable_or_foreign() {
        let edit = |spec: Value| {
            let mut value = plain();
            json_patch::merge(&mut value["spec"], &spec);
            service(value)
        };
        let owned = |name: &str, uid: &str| {
            let mut value = plain();
            value["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
                "name": name, "uid": uid, "controller": true,
            }]);
            service(value)
        };
        let foreign = |service: &Service, claimant: Claimant<'_>, word: &str| match ownership(Some(service), claimant) {
            ServiceOwnership::Foreign(why) => assert!(why.contains(word), "{why}"),
            other => panic!("{word}: {other:?}"),
        };
        assert_eq!(ownership(None, ME), ServiceOwnership::Absent);
        assert_eq!(ownership(Some(&service(plain())), ME), ServiceOwnership::Adoptable);
        assert_eq!(ownership(Some(&owned("hello", "zs")), ME), ServiceOwnership::Ours);
        assert_eq!(ownership(Some(&owned("hello", "zs-of-old")), ME), ServiceOwnership::Outgoing);
        foreign(&owned("other", "zs-of-other"), ME, "controlled by ZeroScaler \"other\"");
        foreign(&adopt(&service(plain()), "someone"), ME, "adopted by another ZeroScaler");
        foreign(&edit(json!({"clusterIP": "None"})), ME, "headless");
        foreign(&edit(json!({"type": "ExternalName"})), ME, "ExternalName");
        foreign(&edit(json!({"selector": null})), ME, "no selector");
    }
}
