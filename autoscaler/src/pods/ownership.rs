//! Decides whether a pod belongs to a workload, by following its chain of controllers.
//!
//! A label selector also matches other workloads' pods with the same labels. Of the selected pods, a workload owns
//! these:
//!
//! | target | the pod's controller |
//! |---|---|
//! | StatefulSet, ReplicaSet, ReplicationController | is the target |
//! | Deployment | is a ReplicaSet that the Deployment made or controls |
//! | another kind | leads to the target, or to an object that cannot be followed further |
//!
//! A Deployment names its ReplicaSets after itself and the hash of their template, which is a label of the pods.
//! Argo's Rollouts do the same with a label of their own. Most pods therefore need no query. A Deployment may also
//! adopt a ReplicaSet of another name, made by hand or by an earlier Deployment. The API server is queried for the
//! owner of such a ReplicaSet ([`super::watch`]). Before its response, the pods of a Deployment's selector
//! count as foreign, so that no request goes to another workload; those of a custom kind's selector count as its own.
//!
//! A pod without a controller is foreign, and so is a pod of a ReplicaSet without a controller. For a custom kind both
//! count as its own, because its controller may create pods and ReplicaSets without an owner reference.
//!
//! If a controller cannot be followed (its kind is not one of Kubernetes' own, or a right is missing), the pod counts
//! as the workload's own: a workload with too many pods serves, a workload without pods does not.

use crate::scale::{Chain, PodOwner};
use common_controller::objects::controller;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::HashMap;
use std::sync::Arc;

/// Pod labels whose value is the suffix of a ReplicaSet's name, and the kind that creates such ReplicaSets.
const TEMPLATE_HASHES: [(&str, &str); 2] =
    [("pod-template-hash", DEPLOYMENT), ("rollouts-pod-template-hash", "Rollout")];
const DEPLOYMENT: &str = "Deployment";
/// Maximum length of a followed chain of controllers.
const DEPTH: usize = 4;

/// Controller of a pod, or of another controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    api_version: String,
    kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Kind of its maker, and the length of the maker's name, which is the prefix of its own; none: its name does not
    /// reveal the maker.
    maker: Option<(&'static str, usize)>,
}

impl Controller {
    /// Returns the controller of an object, if it has one.
    pub(super) fn from_metadata(meta: &ObjectMeta) -> Option<Self> {
        let OwnerReference { api_version, kind, name, uid, .. } = controller(meta)?.clone();
        let maker = |(label, kind): &(&str, &'static str)| {
            let hash = meta.labels.as_ref()?.get(*label)?;
            Some((*kind, name.strip_suffix(hash.as_str())?.strip_suffix('-')?.len()))
        };
        let maker = TEMPLATE_HASHES.iter().filter(|_| kind == "ReplicaSet").find_map(maker);
        Some(Self { api_version, kind, name, uid, maker })
    }

    /// Returns the resource by which its owner can be queried; none: it is not queried.
    pub(super) fn resource(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            _ if !self.api_version.starts_with("apps/") => None,
            "ReplicaSet" => Some("replicasets"),
            DEPLOYMENT => Some("deployments"),
            "StatefulSet" => Some("statefulsets"),
            _ => None,
        }
    }

    /// Returns the user-facing kind and name: those of its maker, if its name reveals it.
    fn describe(&self) -> String {
        match self.maker {
            Some((kind, length)) => format!("{kind} {}", &self.name[..length]),
            None => format!("{} {}", self.kind, self.name),
        }
    }

    fn is_made_by(&self, owner: &PodOwner) -> bool {
        let may_be = |kind| match owner.chain {
            Chain::Direct => false,
            Chain::ReplicaSets => kind == DEPLOYMENT,
            Chain::Unknown => kind != DEPLOYMENT,
        };
        self.maker.is_some_and(|(kind, length)| may_be(kind) && self.name[..length] == *owner.name)
    }
}

/// Knowledge of a controller's own controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownOwner {
    /// Query in progress.
    Pending,
    /// Has this controller.
    Controller(Arc<Controller>),
    /// Has no controller, or no longer exists.
    None,
    /// Reading it is forbidden.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodRelation {
    /// Owned by the workload.
    Own,
    /// Foreign: owned by another workload, or by none.
    Foreign,
    /// Unknown until the owner of this controller is queried.
    Unknown(Arc<Controller>),
}

/// Knowledge of the queried controllers' own controllers, by uid.
#[derive(Debug, Default)]
pub(super) struct Controllers(HashMap<String, KnownOwner>);

impl Controllers {
    /// Returns the relation of a pod with this controller to the workload.
    pub(super) fn relation(&self, owner: &PodOwner, controller: Option<&Arc<Controller>>) -> PodRelation {
        let is_known = owner.chain != Chain::Unknown;
        let otherwise = if is_known { PodRelation::Foreign } else { PodRelation::Own };
        let mut at = controller;
        for _ in 0..DEPTH {
            let Some(controller) = at else { return otherwise };
            if controller.uid == owner.uid || controller.is_made_by(owner) {
                return PodRelation::Own;
            }
            let may_lead_there = match owner.chain {
                Chain::Direct => false,
                Chain::ReplicaSets => controller.kind == "ReplicaSet",
                Chain::Unknown => true,
            };
            if !may_lead_there || controller.resource().is_none() {
                return otherwise;
            }
            at = match self.0.get(&controller.uid) {
                None | Some(KnownOwner::Pending) => return PodRelation::Unknown(controller.clone()),
                Some(KnownOwner::Controller(next)) => Some(next),
                Some(KnownOwner::None) if !is_known && controller.kind == "ReplicaSet" => return otherwise,
                Some(KnownOwner::None) => return PodRelation::Foreign,
                Some(KnownOwner::Unreadable) => return PodRelation::Own,
            };
        }
        otherwise
    }

    /// Records that the owner of this controller is being queried. Returns whether the caller must query it; otherwise
    /// this has been done.
    pub(super) fn begin_query(&mut self, controller: &Controller) -> bool {
        let is_new = !self.0.contains_key(&controller.uid);
        if is_new {
            self.0.insert(controller.uid.clone(), KnownOwner::Pending);
        }
        is_new
    }

    /// Records the owner of a controller. Returns whether it changed.
    pub(super) fn record_owner(&mut self, uid: &str, owner: KnownOwner) -> bool {
        self.0.get_mut(uid).is_some_and(|known| std::mem::replace(known, owner.clone()) != owner)
    }

    /// Returns whether another controller leads to this one.
    pub(super) fn lead_to(&self, uid: &str) -> bool {
        self.0.values().any(|owner| matches!(owner, KnownOwner::Controller(next) if next.uid == uid))
    }

    /// Forgets a controller that is no longer used.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Returns kind and name of the last known controller of a chain.
    pub(super) fn describe(&self, controller: &Arc<Controller>) -> String {
        let mut last = controller;
        for _ in 0..DEPTH {
            match self.0.get(&last.uid) {
                Some(KnownOwner::Controller(next)) => last = next,
                Some(KnownOwner::None) => return format!("{} {}", last.kind, last.name),
                _ => break,
            }
        }
        last.describe()
    }
}

#[cfg(test)]
pub(super) mod tests;
