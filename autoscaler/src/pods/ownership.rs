//! Decides whether a pod belongs to a workload: its controller, the controller of that one and so on lead there or elsewhere.
//!
//! A label selector finds the pods of others, too, if they have the same labels. Of what a workload's selector finds, its
//! own are those
//!
//! | target | whose controller |
//! |---|---|
//! | StatefulSet, ReplicaSet, ReplicationController | is the target |
//! | Deployment | is a ReplicaSet that was made by the Deployment, or is controlled by it |
//! | of another kind | leads to the target, or to an object that cannot be followed further |
//!
//! A Deployment names its ReplicaSets after itself and the hash of their template, which is a label of the pods, and Argo's
//! Rollouts do the same with a label of their own. So nothing has to be asked about most pods. A Deployment may also adopt a
//! ReplicaSet of another name, made by nobody or by a Deployment before it. The API server is asked who controls such a
//! ReplicaSet ([`super::asking`]). Until it has answered, the pods of a Deployment's selector are strangers, so that no
//! request goes to another workload, and those of another kind's selector are its own.
//! A pod without a controller is a stranger, and so is one of a ReplicaSet without a controller. Both are a custom kind's own:
//! its controller may make pods and ReplicaSets without naming their owner.
//!
//! If a controller cannot be followed (a kind that is not Kubernetes' own, or a missing right), the pod counts as the
//! workload's own: a workload with too many pods serves, a workload without pods does not.

use crate::scale::{Chain, PodOwner};
use common_controller::objects::controller;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::HashMap;
use std::sync::Arc;

/// Labels of pods whose value ends the names of their ReplicaSets, and the kind that made these.
const TEMPLATE_HASHES: [(&str, &str); 2] =
    [("pod-template-hash", DEPLOYMENT), ("rollouts-pod-template-hash", "Rollout")];
const DEPLOYMENT: &str = "Deployment";
/// Controllers above each other that are followed at most.
const DEPTH: usize = 4;

/// A controller of pods, or of such a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    /// Kind of its maker, and the length of that one's name, with which its own begins; none: its name does not say who made
    /// it.
    maker: Option<(&'static str, usize)>,
}

impl Controller {
    /// The controller of an object; none: it has none.
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        let OwnerReference { api_version, kind, name, uid, .. } = controller(meta)?.clone();
        let maker = |(label, kind): &(&str, &'static str)| {
            let hash = meta.labels.as_ref()?.get(*label)?;
            Some((*kind, name.strip_suffix(hash.as_str())?.strip_suffix('-')?.len()))
        };
        let maker = TEMPLATE_HASHES.iter().filter(|_| kind == "ReplicaSet").find_map(maker);
        Some(Self { api_version, kind, name, uid, maker })
    }

    /// Returns the resource by which it can be asked who controls it; none: that is not asked.
    pub(super) fn resource(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            _ if !self.api_version.starts_with("apps/") => None,
            "ReplicaSet" => Some("replicasets"),
            DEPLOYMENT => Some("deployments"),
            "StatefulSet" => Some("statefulsets"),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns kind and name for people: those of its maker, if its name says who that is.
    fn told(&self) -> String {
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

/// A controller of this namespace, about which is to be asked who controls it.
pub(super) type Question = (String, Arc<Controller>);

/// Knowledge of a controller's own controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Leads {
    /// Nobody has asked yet.
    #[default]
    Unasked,
    /// It is being asked.
    Asked,
    /// To this controller of its own.
    To(Arc<Controller>),
    /// It has no controller, or is no more.
    Nowhere,
    /// That may not be read.
    Unreadable,
}

/// Relation of a pod to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The workload's own.
    Own,
    /// Another's, or nobody's.
    Stranger,
    /// Not known before it is asked who controls this.
    Unknown(Arc<Controller>),
}

/// All controllers of pods that are known, by their uid, and where they lead.
#[derive(Debug, Default)]
pub(super) struct Controllers(HashMap<String, (Arc<Controller>, Leads)>);

impl Controllers {
    /// One value for all pods of a controller.
    pub(super) fn share(&mut self, controller: Controller) -> Arc<Controller> {
        match self.0.get_mut(&controller.uid) {
            Some((known, _)) if **known == controller => known.clone(),
            Some((known, _)) => {
                *known = Arc::new(controller);
                known.clone()
            }
            None => {
                let (uid, shared) = (controller.uid.clone(), Arc::new(controller));
                self.0.insert(uid, (shared.clone(), Leads::Unasked));
                shared
            }
        }
    }

    /// A pod of it is gone, or another's now.
    pub(super) fn release(&mut self, controller: Arc<Controller>) {
        let uid = controller.uid.clone();
        drop(controller);
        if self.0.get(&uid).is_some_and(|(known, leads)| *leads == Leads::Unasked && Arc::strong_count(known) == 1) {
            self.0.remove(&uid);
        }
    }

    /// Returns whose a pod with this controller is.
    pub(super) fn standing(&self, owner: &PodOwner, controller: Option<&Arc<Controller>>) -> Standing {
        let is_known = owner.chain != Chain::Unknown;
        let otherwise = if is_known { Standing::Stranger } else { Standing::Own };
        let mut at = controller;
        for _ in 0..DEPTH {
            let Some(controller) = at else { return otherwise };
            if controller.uid == owner.uid || controller.is_made_by(owner) {
                return Standing::Own;
            }
            let may_lead_there = match owner.chain {
                Chain::Direct => false,
                Chain::ReplicaSets => controller.kind == "ReplicaSet",
                Chain::Unknown => true,
            };
            if !may_lead_there || controller.resource().is_none() {
                return otherwise;
            }
            at = match self.0.get(&controller.uid).map(|(_, leads)| leads) {
                None | Some(Leads::Unasked | Leads::Asked) => return Standing::Unknown(controller.clone()),
                Some(Leads::To(next)) => Some(next),
                Some(Leads::Nowhere) if !is_known && controller.kind == "ReplicaSet" => return otherwise,
                Some(Leads::Nowhere) => return Standing::Stranger,
                Some(Leads::Unreadable) => return Standing::Own,
            };
        }
        otherwise
    }

    /// Returns whether it has yet to be asked who controls this one, which the caller does from now on.
    pub(super) fn ask(&mut self, controller: &Controller) -> bool {
        let leads = self.0.get_mut(&controller.uid).map(|(_, leads)| leads);
        leads.filter(|leads| **leads == Leads::Unasked).map(|leads| *leads = Leads::Asked).is_some()
    }

    /// Takes in where one leads. Returns whether that is news.
    pub(super) fn answered(&mut self, uid: &str, leads: Result<Option<Controller>, ()>) -> bool {
        let leads = match leads {
            Ok(Some(next)) => Leads::To(self.share(next)),
            Ok(None) => Leads::Nowhere,
            Err(()) => Leads::Unreadable,
        };
        let Some((_, known)) = self.0.get_mut(uid) else { return false };
        match std::mem::replace(known, leads.clone()) {
            before if before == leads => false,
            Leads::To(before) => {
                self.release(before);
                true
            }
            _ => true,
        }
    }

    /// Returns whether a pod is controlled by it, at the end of whatever way; else it is forgotten.
    pub(super) fn is_used(&mut self, uid: &str) -> bool {
        let Some((known, _)) = self.0.get(uid) else { return false };
        let is_used = Arc::strong_count(known) > 1;
        if !is_used && let Some((_, Leads::To(next))) = self.0.remove(uid) {
            self.release(next);
        }
        is_used
    }

    /// Returns the last known controller on the way from one, as kind and name.
    pub(super) fn told(&self, controller: &Arc<Controller>) -> String {
        let mut last = controller;
        for _ in 0..DEPTH {
            match self.0.get(&last.uid) {
                Some((_, Leads::To(next))) => last = next,
                Some((_, Leads::Nowhere)) => return format!("{} {}", last.kind, last.name),
                _ => break,
            }
        }
        last.told()
    }
}

#[cfg(test)]
pub(super) mod tests;
