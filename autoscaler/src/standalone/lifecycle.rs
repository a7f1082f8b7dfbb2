//! ZeroScalers that users write: validated, given a finalizer as they take up targets, and given back at the end.

use super::admission::Admission;
use super::cluster::Cluster;
use super::finalizer::{Finalizers, has_finalizer};
use super::hpa::Hpa;
use super::retire::Retirement;
use super::validation::Validation;
use crate::reconcile::error::Error;
use crate::reconcile::kpa::lifecycle::Lifecycle;
use crate::reconcile::kpa::objects::Inherited;
use crate::reconcile::kpa::workload::{Reading, Workload};
use crate::reconcile::parts::Parts;
use crate::reconcile::records::Records;
use common::RevisionKey as Key;
use common::annotations::Annotations;
use common::names;
use common_api::{PodAutoscaler, PodAutoscalerStatus};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What standalone does about ZeroScalers.
pub(crate) struct Autoscalers {
    validation: Arc<Validation>,
    admission: Admission,
    finalizers: Finalizers,
    retirement: Retirement,
    records: Records,
}

impl Autoscalers {
    pub(crate) fn new(parts: &Parts, hpa: Hpa, validation: Arc<Validation>, cluster: Arc<Cluster>) -> Self {
        let records = parts.records.clone();
        let finalizers = Finalizers { records: records.clone() };
        Self {
            admission: Admission {
                hpa,
                validation: validation.clone(),
                stores: parts.stores.clone(),
                cluster: cluster.clone(),
                configs: parts.configs.clone(),
                decisions: parts.writes.decisions.clone(),
                clock: parts.writes.clock.clone(),
            },
            retirement: Retirement::new(parts, cluster, finalizers.clone()),
            validation,
            finalizers,
            records,
        }
    }
}

/// Its labels, with revision, its uid and configuration, which nobody else sets here.
fn labels(object: &PodAutoscaler) -> BTreeMap<String, String> {
    let mut labels = object.labels().clone();
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    for (label, value) in [(names::REVISION, &name), (names::CONFIGURATION, &name), (names::REVISION_UID, &uid)] {
        labels.entry(label.to_owned()).or_insert_with(|| value.clone());
    }
    labels
}

/// Knative's annotations; what else a PodAutoscaler carries (`kubectl`'s record of it for one) stays there.
fn shared_annotations(object: &PodAutoscaler) -> Annotations {
    let shared = object.annotations().iter().filter(|(name, _)| name.contains(".knative.dev/"));
    shared.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Lifecycle for Autoscalers {
    /// Nobody else scales a ZeroScaler's target.
    fn is_ours(&self, _: &PodAutoscaler) -> bool {
        true
    }

    fn decline<'a>(&'a self, _: &'a Key, _: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(())).boxed()
    }

    fn read(&self, key: &Key, object: &Arc<PodAutoscaler>, status: &PodAutoscalerStatus) -> Result<Reading, Error> {
        self.admission.read(key, object, status)
    }

    fn is_taken_up(&self, object: &PodAutoscaler) -> bool {
        has_finalizer(object)
    }

    fn take_up<'a>(
        &'a self,
        key: &'a Key,
        object: &'a Arc<PodAutoscaler>,
        workload: &'a Workload,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, Error>> {
        self.retirement.call_off(key);
        self.finalizers.set(object, &workload.object, &workload.target).boxed()
    }

    fn must_give_back(&self, object: &PodAutoscaler) -> bool {
        has_finalizer(object)
    }

    fn give_back<'a>(&'a self, key: &'a Key, object: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        self.retirement.give_back(key, object).boxed()
    }

    fn let_go<'a>(&'a self, key: &'a Key, object: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        self.retirement.let_go(key, object).boxed()
    }

    fn tells_refusals(&self) -> bool {
        true
    }

    fn keeps_timed_out(&self) -> bool {
        true
    }

    fn forget(&self, key: &Key) {
        self.validation.forget(key);
        self.retirement.forget(key);
        self.records.serverless.forget(key);
        self.records.metrics.forget(key);
    }

    fn inherited(&self, object: &PodAutoscaler) -> Inherited {
        Inherited { labels: labels(object), annotations: shared_annotations(object) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_that_nobody_else_sets_are_filled_in_and_our_own_annotations_stay() {
        let object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {
                "name": "hello", "namespace": "ns", "uid": "u", "labels": {"app": "hello"},
                "annotations": {"autoscaling.knative.dev/window": "10s", "zeroscale.dev/hosts": "x.example.com"},
            },
            "spec": {"scaleTargetRef": {}, "protocolType": "h2c"},
        }))
        .expect("a PodAutoscaler");
        let labels = labels(&object);
        let filled = [(names::REVISION, "hello"), (names::CONFIGURATION, "hello"), (names::REVISION_UID, "u")];
        for (label, value) in filled.into_iter().chain([("app", "hello")]) {
            assert_eq!(labels.get(label).map(String::as_str), Some(value));
        }
        let shared: Vec<_> = shared_annotations(&object).into_keys().collect();
        assert_eq!(shared, ["autoscaling.knative.dev/window"], "ours mean something on a PodAutoscaler only");
    }
}
