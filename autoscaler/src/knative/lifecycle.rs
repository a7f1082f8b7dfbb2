//! A revision's PodAutoscaler: Knative's webhook has validated it, Knative's controllers make and delete what belongs to
//! it. It is read, scaled, and left alone.

use crate::reconcile::error::Error;
use crate::reconcile::kpa::lifecycle::Lifecycle;
use crate::reconcile::kpa::objects::Inherited;
use crate::reconcile::kpa::parameters::{self, Parameters};
use crate::reconcile::kpa::probe::ProbeTarget;
use crate::reconcile::kpa::workload::{Probed, Reading, Unserved, Workload};
use crate::reconcile::parts::{Parts, ReconcilerConfigs};
use crate::reconcile::stores::Stores;
use crate::reconcile::stores::target_key::{TargetError, TargetKey};
use crate::scale::{Deciders, Initial, PodSet, SubjectLabels};
use autoscaler_core::history::{Action, Obstacle};
use common::RevisionKey as Key;
use common::annotations;
use common::backend::Protocol;
use common::names;
use common_api::{PodAutoscaler, PodAutoscalerStatus};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use kube::ResourceExt;
use std::sync::Arc;

/// Reads what Knative's controller made.
pub(crate) struct Revisions {
    stores: Arc<Stores>,
    deciders: Arc<dyn Deciders>,
    configs: ReconcilerConfigs,
    cluster_domain: String,
}

impl Revisions {
    /// All revisions of the cluster.
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            stores: parts.stores.clone(),
            deciders: parts.ports.deciders.clone(),
            configs: parts.configs.clone(),
            cluster_domain: parts.cluster_domain.clone(),
        }
    }

    fn parameters(&self, object: &PodAutoscaler, status: &PodAutoscalerStatus) -> Parameters {
        let (config, deployment) = (self.configs.autoscaler.borrow(), self.configs.deployment.borrow());
        let decider = parameters::decider(object, &config);
        Parameters::new(object, &config, &deployment, status.is_scale_target_initialized(), decider)
    }

    /// HTTP/2 has a port of its own on the public Service.
    fn probe(&self, key: &Key, object: &PodAutoscaler, status: &PodAutoscalerStatus) -> Option<ProbeTarget> {
        let service = Some(&status.service_name).filter(|name| !name.is_empty())?;
        let host = format!("{service}.{}.svc.{}", key.namespace(), self.cluster_domain);
        Some(ProbeTarget { host, port: if object.spec.protocol_type == Protocol::H2c { 81 } else { 80 } })
    }
}

impl Lifecycle for Revisions {
    /// Those of class KPA. Of other classes each has a controller of its own.
    fn is_ours(&self, object: &PodAutoscaler) -> bool {
        annotations::CLASS.text(object.annotations()).is_some() && annotations::is_kpa(object.annotations())
    }

    fn decline<'a>(&'a self, key: &'a Key, _: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        self.deciders.forget(key);
        ready(Ok(())).boxed()
    }

    fn read(&self, key: &Key, object: &Arc<PodAutoscaler>, status: &PodAutoscalerStatus) -> Result<Reading, Error> {
        let mut object = PodAutoscaler::clone(object);
        object.set_defaults(&self.configs.autoscaler.borrow().pod_autoscaler_class);
        let object = Arc::new(object);
        let parameters = self.parameters(&object, status);
        let serverless = self.stores.serverless.get(key);
        let named = serverless.as_ref().and_then(|sks| sks.status.as_ref()).map(|status| &status.private_service_name);
        let Some(private_service) = named.filter(|name| !name.is_empty()).cloned() else {
            return Ok(Reading::AwaitServices(Box::new(Unserved { object, parameters, serverless })));
        };
        let target_key = TargetKey::of(key.namespace(), &object.spec.scale_target_ref)?;
        let target = self.stores.targets.get(&target_key).inspect_err(|error| {
            if !matches!(error, TargetError::NotListed(_)) {
                self.deciders.acted(key, Action::refused(Obstacle::TargetNotFound));
            }
        })?;
        let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
        Ok(Reading::Go(Box::new(Workload {
            pods: PodSet::Revision(label(names::REVISION)),
            labels: SubjectLabels { service: label(names::SERVICE), configuration: label(names::CONFIGURATION) },
            initial: Initial::Unknown,
            probe: self.probe(key, &object, status).map(Probed::Service),
            may_scale: true,
            waits_for_decision: false,
            metrics: None,
            broken: None,
            lost_hosts: vec![],
            paused: false,
            request: None,
            private_service,
            parameters,
            serverless,
            object,
            target_key,
            target,
        })))
    }

    fn is_taken_up(&self, _: &PodAutoscaler) -> bool {
        true
    }

    fn take_up<'a>(
        &'a self,
        _: &'a Key,
        object: &'a Arc<PodAutoscaler>,
        _: &'a Workload,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, Error>> {
        ready(Ok(object.clone())).boxed()
    }

    fn must_give_back(&self, _: &PodAutoscaler) -> bool {
        false
    }

    fn give_back<'a>(&'a self, _: &'a Key, _: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(())).boxed()
    }

    fn let_go<'a>(&'a self, _: &'a Key, _: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(())).boxed()
    }

    fn tells_refusals(&self) -> bool {
        false
    }

    fn keeps_timed_out(&self) -> bool {
        false
    }

    fn forget(&self, _: &Key) {}

    /// All, as upstream.
    fn inherited(&self, object: &PodAutoscaler) -> Inherited {
        Inherited { labels: object.labels().clone(), annotations: object.annotations().clone() }
    }
}
