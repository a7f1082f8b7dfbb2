//! Giving a target back: when its PodAutoscaler is deleted, or may not keep its Service any more.
//!
//! 1. No more decisions. Replicas become max(1, min-scale, replicas at adoption).
//! 2. Until a pod is ready the activators stay in the path: requests of that moment are held as ever. Bounded by
//!    [`READY_WAIT_MAX`], since pods that never become ready must not keep an object from being deleted.
//! 3. The path leads to the pods, and an adopted Service gets its selector back: done by the ServerlessService
//!    reconciler, waited for here, bounded by [`RETURN_WAIT_MAX`].
//! 4. ServerlessService and Metric are deleted, and all that hangs on them with them.
//! 5. The mark that kept the PodAutoscaler is taken off.
//!
//! Each step is seen in the cluster's state, so a process that dies in between is followed by one that goes on.

use super::admission::{adopted_replicas, let_go};
use super::serverless::adopt::ADOPTED_BY;
use crate::reconcile::context::Context;
use crate::reconcile::error::Error;
use crate::reconcile::kpa::objects;
use crate::reconcile::kpa::scale;
use crate::reconcile::world::facts::{Selector, Target};
use crate::reconcile::world::public_service;
use crate::reconcile::world::targets::{TargetError, TargetKey};
use crate::scale::PodSet;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common_api::condition_set::HasConditions;
use common_api::serverlessservice_status::ACTIVATOR_ENDPOINTS_POPULATED;
use common_api::{Mode, PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a first ready pod is waited for.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long everything is waited for.
const RETURN_WAIT_MAX: Duration = Duration::from_secs(90);

/// One pass; each change that it waits for leads to another.
///
/// # Errors
/// The API server's.
pub(crate) async fn run(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<(), Error> {
    cx.forget(key);
    let restored = restore(cx, key, object).await?;
    let since = *cx.retiring.entry(key.clone()).or_insert_with(Instant::now);
    let serverless = cx.world.serverless.get(key).filter(|sks| is_own(sks, object));
    if let Some(serverless) = serverless.as_ref().filter(|sks| sks.metadata.deletion_timestamp.is_none()) {
        if restored && cx.ports.pods.counts(key).ready == 0 && !is_over(cx, key, since, READY_WAIT_MAX) {
            return Ok(());
        }
        if serverless.spec.mode != Some(Mode::Serve) {
            let mut next = ServerlessService::clone(serverless);
            next.spec = objects::serverless_spec(object, Mode::Serve, serverless.spec.num_activators);
            cx.replace(key, &cx.world.serverless, &next, "error updating SKS").await?;
        }
        if !is_returned(cx, key, object, serverless) && !is_over(cx, key, since, RETURN_WAIT_MAX) {
            return Ok(());
        }
    }
    leave(cx, key, object).await
}

/// Steps 4 and 5: nothing of ours stays. All that is done where the Service turned out to be somebody else's; and the
/// end of an opt-out, where the Service is somebody else's as soon as it is given back.
///
/// # Errors
/// The API server's.
pub(crate) async fn leave(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<(), Error> {
    cx.forget(key);
    let serverless = cx.world.serverless.get(key).filter(|sks| is_own(sks, object));
    if serverless.is_some_and(|sks| sks.metadata.deletion_timestamp.is_none()) {
        cx.delete(key, &cx.world.serverless, key, "error deleting SKS").await?;
    }
    if cx.world.metrics.get(key).is_some_and(|metric| controlled_by(controller(&metric.metadata), object)) {
        cx.delete(key, &cx.world.metrics, key, "error deleting Metric").await?;
    }
    let_go(cx, key, object).await?;
    cx.ports.pods.untrack(key);
    if cx.retiring.remove(key).is_some() {
        tracing::info!(revision = %key, "given back");
    }
    Ok(())
}

/// Whether the wait is over; if not, the key comes back when it is.
fn is_over(cx: &Context, key: &Key, since: Instant, bound: Duration) -> bool {
    let left = bound.saturating_sub(since.elapsed());
    if !left.is_zero() {
        cx.queues.autoscalers.add_after(key.clone(), left);
    }
    left.is_zero()
}

/// Step 1. False if there is nothing to restore: the target is gone, or cannot be looked at.
async fn restore(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<bool, Error> {
    let Ok(target_key) = TargetKey::of(key.namespace(), &object.spec.scale_target_ref) else { return Ok(false) };
    let target = match cx.world.targets.get(&target_key) {
        Ok(target) => target,
        Err(TargetError::NotListed { kind, api_version }) => {
            return Err(TargetError::NotListed { kind, api_version }.into());
        }
        Err(_) => return Ok(false),
    };
    if let Selector::Labels(labels) = &target.selector {
        cx.ports.pods.track(key, PodSet::Selector(labels.clone()));
    }
    let config = cx.autoscaler_config.borrow().clone();
    let replicas = restored_replicas(object, &target, annotations::bounds(object.annotations(), &config, true).min);
    if target.current() != replicas {
        let why = "the target is given back";
        scale::patch(cx, key, object, &target_key, &target, replicas, why).await?;
    }
    Ok(true)
}

fn restored_replicas(object: &PodAutoscaler, target: &Target, min_scale: i32) -> i32 {
    adopted_replicas(object, target).max(min_scale).max(1)
}

/// Step 3: the pods have the traffic, and nobody's Service is borrowed.
fn is_returned(cx: &Context, key: &Key, object: &PodAutoscaler, serverless: &ServerlessService) -> bool {
    let written = serverless.status.as_ref().map(|status| status.service_name.as_str()).unwrap_or_default();
    let settings = Settings::read(object.annotations()).unwrap_or_default();
    let name = if written.is_empty() { public_service(key, &settings) } else { written };
    let service = cx.world.services.get(&Key::new(key.namespace(), name));
    let borrowed = service.is_some_and(|service| service.annotations().get(ADOPTED_BY) == object.metadata.uid.as_ref());
    let to_pods = serverless.status.as_ref().is_some_and(|status| {
        let activators = status.condition(ACTIVATOR_ENDPOINTS_POPULATED).is_some_and(|condition| condition.is_true());
        status.observed_generation() == serverless.metadata.generation && !activators
    });
    serverless.spec.mode == Some(Mode::Serve) && to_pods && !borrowed
}

fn is_own(serverless: &ServerlessService, object: &PodAutoscaler) -> bool {
    controlled_by(controller(&serverless.metadata), object)
}

fn controlled_by(
    owner: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference>,
    object: &PodAutoscaler,
) -> bool {
    owner.is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::admission::ADOPTED_REPLICAS;
    use super::*;

    #[test]
    fn a_target_gets_back_what_it_had_and_at_least_one_pod() {
        let target = Target { uid: "d".into(), replicas: Some(0), selector: Selector::Missing, containers: vec![] };
        for (found, min_scale, expected) in [(Some("0"), 0, 1), (Some("4"), 0, 4), (Some("1"), 3, 3), (None, 0, 1)] {
            let mut object = PodAutoscaler::new("hello", Default::default());
            object.metadata.annotations = found.map(|n| [(ADOPTED_REPLICAS.to_owned(), n.to_owned())].into());
            assert_eq!(restored_replicas(&object, &target, min_scale), expected, "{found:?}, {min_scale}");
        }
    }
}
