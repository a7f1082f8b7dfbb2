//! Identity of the object that a `scaleTargetRef` names, in one canonical spelling.
//!
//! A kind is mapped to the resource that upstream derives from its name: lower case with `s` or `es` appended. So
//! `Deployment` and `deployment` are one kind, watched once. Names that are not valid in an API path are rejected.

use super::facts::Target;
use crate::scale::{Chain, PodOwner};
use common::RevisionKey as Key;
use common_api::ObjectReference;
use common_api::validation::{is_api_version, is_kind, is_object_name};
use common_api::zeroscaler;
use kube::core::{ApiResource, GroupVersionKind};
use std::collections::HashSet;
use std::fmt;

/// Field in which PodAutoscalers name a target.
const ROOT: &str = "spec.scaleTargetRef";
/// Field in which ZeroScalers name a target.
pub(crate) const SCALER_ROOT: &str = "spec.target";

/// Group, version and plural of a kind. Spellings of the same resource are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TargetResource {
    /// Group and version, or the version alone for the core group.
    pub(super) api_version: String,
    plural: String,
}

/// Names of the resources that a version serves, with subresources as `NAME/scale`. Empty for a version that does not
/// exist.
pub(crate) type Served = HashSet<String>;

/// Resource, namespace and name of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TargetKey {
    pub(crate) resource: TargetResource,
    pub(crate) object: Key,
}

/// Reason why a reference does not lead to a usable target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// The reference itself is invalid.
    #[error("{root}.{field}: {value:?}: {rule}")]
    Reference {
        /// Path of the reference in the user's object.
        root: &'static str,
        field: &'static str,
        value: String,
        rule: &'static str,
    },
    /// The object does not exist.
    #[error("{resource} {name:?} does not exist in namespace {namespace:?}",
        resource = .0.resource, name = .0.object.name(), namespace = .0.object.namespace())]
    Missing(TargetKey),
    /// The kind cannot be watched, so nothing is known of the object.
    #[error("{resource} of {version} cannot be watched: {error}", version = .resource.api_version)]
    Unwatchable { resource: TargetResource, error: String },
    /// The first list of the kind is not complete yet. Its completion triggers another reconcile.
    #[error("{resource} of {version} are still being listed", resource = .0, version = .0.api_version)]
    NotListed(TargetResource),
}

impl TargetResource {
    /// Returns the resource of a kind, such as `Deployment` of `apps/v1`.
    pub(crate) fn for_kind(api_version: &str, kind: &str) -> Self {
        let kind = kind.to_lowercase();
        let ending = if kind.ends_with('s') { "es" } else { "s" };
        Self { api_version: api_version.to_owned(), plural: format!("{kind}{ending}") }
    }

    /// Returns whether the API server defaults `spec.replicas` for such objects.
    pub(crate) fn has_default_replicas(&self) -> bool {
        self.group_and_version().0 == "apps" && ["deployments", "statefulsets"].contains(&self.plural.as_str())
    }

    /// Returns whether its status reports why the API server rejects its pods.
    pub(crate) fn reports_rejected_pods(&self) -> bool {
        self.group_and_version().0 == "apps" && ["deployments", "replicasets"].contains(&self.plural.as_str())
    }

    /// Returns whether every API server serves it, with a scale subresource.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.api_version == "apps/v1" && self.has_default_replicas()
    }

    /// Returns why it cannot be scaled, given the resources of its version; none: it can.
    pub(crate) fn refusal(&self, served: &Served) -> Option<String> {
        if served.contains(&format!("{}/scale", self.plural)) {
            None
        } else if served.contains(&self.plural) {
            Some("it has no scale subresource".to_owned())
        } else {
            Some("the API server does not serve it".to_owned())
        }
    }

    /// Returns the kind of controllers between such an object and its pods.
    fn chain(&self) -> Chain {
        match (self.group_and_version().0, self.plural.as_str()) {
            ("apps", "deployments") => Chain::ReplicaSets,
            ("apps", "statefulsets" | "replicasets") | ("", "replicationcontrollers") => Chain::Direct,
            _ => Chain::Unknown,
        }
    }

    fn group_and_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }

    /// Returns the API resource. The kind is unknown, and no request needs it.
    pub(crate) fn resource(&self) -> ApiResource {
        let (group, version) = self.group_and_version();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, ""), &self.plural)
    }
}

/// `RESOURCE.GROUP`, or `RESOURCE` in the core group, as Kubernetes writes it.
impl fmt::Display for TargetResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group_and_version() {
            ("", _) => f.write_str(&self.plural),
            (group, _) => write!(f, "{}.{group}", self.plural),
        }
    }
}

impl TargetKey {
    /// Resolves a reference from an object in `namespace`. Fails if a value is missing, or not valid in Kubernetes.
    pub(crate) fn from_reference(namespace: &str, reference: &ObjectReference) -> Result<Self, TargetError> {
        let ObjectReference { api_version, kind, name } = reference;
        let [api_version, kind, name] = [api_version, kind, name].map(|text| text.as_deref().unwrap_or_default());
        Self::resolve(ROOT, namespace, (api_version, kind, name))
    }

    /// Resolves the target of a ZeroScaler in `namespace`, likewise.
    pub(crate) fn from_target(namespace: &str, target: &zeroscaler::Target) -> Result<Self, TargetError> {
        let zeroscaler::Target { api_version, kind, name } = target;
        Self::resolve(SCALER_ROOT, namespace, (api_version, kind, name))
    }

    fn resolve(
        root: &'static str,
        namespace: &str,
        (api_version, kind, name): (&str, &str, &str),
    ) -> Result<Self, TargetError> {
        let check = |field, value: &str, is_good: fn(&str) -> bool, rule| match value {
            "" => Err(TargetError::Reference { root, field, value: String::new(), rule: "must be set" }),
            value if !is_good(value) => Err(TargetError::Reference { root, field, value: value.to_owned(), rule }),
            _ => Ok(()),
        };
        check("apiVersion", api_version, is_api_version, "must be VERSION or GROUP/VERSION")?;
        check("kind", kind, is_kind, "must be a kind such as Deployment")?;
        check("name", name, is_object_name, "must be an object's name: a-z, 0-9, - and .")?;
        Ok(Self { resource: TargetResource::for_kind(api_version, kind), object: Key::new(namespace, name) })
    }

    pub(crate) fn owner(&self, target: &Target) -> PodOwner {
        PodOwner { chain: self.resource.chain(), name: self.object.name().to_owned(), uid: target.uid.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(api_version: &str, kind: &str, name: &str) -> ObjectReference {
        let [api_version, kind, name] = [api_version, kind, name].map(|text| Some(text.to_owned()));
        ObjectReference { api_version, kind, name }
    }

    #[test]
    fn a_kind_maps_to_upstreams_plural_however_it_is_spelled() {
        let rows = [
            ("apps/v1", "Deployment", "apps", "v1", "deployments", "deployments.apps"),
            ("v1", "ReplicationController", "", "v1", "replicationcontrollers", "replicationcontrollers"),
            ("example.com/v1beta1", "Canvas", "example.com", "v1beta1", "canvases", "canvases.example.com"),
            ("apps/v1", "DEPLOYMENT", "apps", "v1", "deployments", "deployments.apps"),
            ("apps/v1", "dePloyMent", "apps", "v1", "deployments", "deployments.apps"),
            ("apps/v1", "Deployments", "apps", "v1", "deploymentses", "deploymentses.apps"),
        ];
        for (api_version, kind, group, version, plural, text) in rows {
            let key = TargetKey::from_reference("ns", &reference(api_version, kind, "a")).expect("usable");
            let resource = key.resource.resource();
            assert_eq!((&*resource.group, &*resource.version, &*resource.plural), (group, version, plural));
            assert_eq!(key.resource.to_string(), text);
        }
    }

    #[test]
    fn only_resources_with_a_scale_subresource_can_be_scaled() {
        let nothing = Served::new();
        let served =
            Served::from(["configmaps", "replicationcontrollers", "replicationcontrollers/scale"].map(str::to_owned));
        let (unscaled, unserved) = (Some("it has no scale subresource"), Some("the API server does not serve it"));
        let rows = [
            ("ReplicationController", &served, None),
            ("ConfigMap", &served, unscaled),
            ("Widget", &served, unserved),
            ("ReplicationController", &nothing, unserved),
        ];
        for (kind, served, expected) in rows {
            assert_eq!(TargetResource::for_kind("v1", kind).refusal(served).as_deref(), expected, "{kind}");
        }
        for (version, kind, is_everywhere) in
            [("apps/v1", "StatefulSet", true), ("apps/v7", "StatefulSet", false), ("apps/v1", "ReplicaSet", false)]
        {
            assert_eq!(TargetResource::for_kind(version, kind).is_everywhere(), is_everywhere, "{kind} of {version}");
        }
    }

    /// Goal: no value that a user writes can escape its segment of an API path.
    #[test]
    fn an_invalid_reference_is_rejected_with_its_field() {
        let rows = [
            (reference("apps///v1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"apps///v1\""),
            (reference("apps%2Fv1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"apps%2Fv1\""),
            (reference("../v1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"../v1\""),
            (reference("apps/..", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"apps/..\""),
            (reference("Apps/v1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"Apps/v1\""),
            (reference("apps/v1?watch=1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: "),
            (reference("apps/v1", "", "a"), "spec.scaleTargetRef.kind: \"\": must be set"),
            (reference("apps/v1", "Deployment/x", "a"), "spec.scaleTargetRef.kind: \"Deployment/x\""),
            (reference("apps/v1", "Deployments%2f", "a"), "spec.scaleTargetRef.kind: "),
            (reference("apps/v1", "D\u{e9}ploiement", "a"), "spec.scaleTargetRef.kind: "),
            (reference("apps/v1", "Deployment", "../../x"), "spec.scaleTargetRef.name: \"../../x\""),
            (reference("apps/v1", "Deployment", "a?b"), "spec.scaleTargetRef.name: \"a?b\""),
            (ObjectReference { name: None, ..reference("apps/v1", "Deployment", "") }, "spec.scaleTargetRef.name"),
        ];
        for (reference, message) in rows {
            let error = TargetKey::from_reference("ns", &reference).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
            let text = |text: Option<String>| text.unwrap_or_default();
            let ObjectReference { api_version, kind, name } = reference;
            let target = zeroscaler::Target { api_version: text(api_version), kind: text(kind), name: text(name) };
            let of_scaler = TargetKey::from_target("ns", &target).expect_err(message).to_string();
            assert_eq!(of_scaler, error.replace(ROOT, SCALER_ROOT));
        }
    }
}
