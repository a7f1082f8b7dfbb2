//! Reconciles one PodAutoscaler of class HPA.

use super::{Context, objects};
use common::RevisionKey as Key;
use common::annotations;
use common::time::Timestamp;
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{ACTIVE, FAILED_CREATE, SCALE_TARGET_INITIALIZED, SKS_READY};
use common_api::{PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::objects::{controller, corrected};
use common_controller::{BoundedApi, Passed, Passes, WriteError, Written};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::sync::Arc;

/// Component name in events.
const COMPONENT: &str = "podautoscaler-controller";
/// Message while the ServerlessService is not ready, whatever its own message.
const SKS_NOT_READY: &str = "SKS Services are not ready yet";

/// Runs one reconcile. The status is written even after a failure. Fails with the error that ended the reconcile.
pub(super) async fn reconcile(cx: &Context, key: &Key) -> Result<(), WriteError> {
    let Some(object) = cx.autoscalers.get(key).filter(|object| is_ours(object)) else { return Ok(()) };
    if !cx.wiring.leadership.owns(key) {
        return Ok(());
    }
    let mut defaulted = PodAutoscaler::clone(&object);
    defaulted.set_defaults(&cx.wiring.config.borrow().pod_autoscaler_class);
    let run = async |status, now| {
        let mut pass = Pass { cx, key, now, object: &defaulted, status };
        let outcome = pass.run().await;
        Passed { outcome, object: object.clone(), status: pass.status }
    };
    let (writer, recorder) = (cx.writer(), &cx.recorder);
    let statuses = Written { writer, store: &cx.autoscalers, recorder, component: COMPONENT };
    Passes { statuses: &statuses, clock: &cx.wiring.clock }.over(&object, run).await
}

/// Reports whether the object has this class and is not being deleted.
fn is_ours(object: &PodAutoscaler) -> bool {
    annotations::CLASS.text(object.annotations()) == Some(annotations::CLASS_HPA)
        && object.metadata.deletion_timestamp.is_none()
}

struct Pass<'a> {
    cx: &'a Context,
    key: &'a Key,
    now: Timestamp,
    /// PodAutoscaler with defaults.
    object: &'a PodAutoscaler,
    status: PodAutoscalerStatus,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), WriteError> {
        let horizontal = self.ensure_horizontal().await?;
        let serverless = self.ensure_serverless().await.map_err(WriteError::during("error reconciling SKS"))?;
        let scaled = horizontal.status.as_ref();
        let current = scaled.and_then(|status| status.current_replicas).unwrap_or(0);
        let desired = scaled.map_or(0, |status| status.desired_replicas);
        let services = serverless.status.clone().unwrap_or_default();
        self.status.metrics_service_name.clone_from(&services.private_service_name);
        self.status.service_name.clone_from(&services.service_name);
        if services.is_ready(serverless.metadata.generation.unwrap_or(0)) {
            self.status.manage(self.now).mark_true(SKS_READY);
            if !self.status.is_scale_target_initialized() && current >= self.first_scale() {
                self.status.manage(self.now).mark_true(SCALE_TARGET_INITIALIZED);
            }
        } else {
            self.status.mark_sks_not_ready(SKS_NOT_READY, self.now);
        }
        self.status.manage(self.now).mark_true(ACTIVE);
        self.status.set_scales(Some(desired), current);
        Ok(())
    }

    /// Returns the number of replicas with which the target counts as initialized.
    fn first_scale(&self) -> i32 {
        let (config, annotations) = (self.cx.wiring.config.borrow(), self.object.annotations());
        let bounds = annotations::bounds(annotations, &config, self.object.is_reachable());
        bounds.min.max(annotations::initial_scale(annotations, &config))
    }

    async fn ensure_horizontal(&mut self) -> Result<Arc<HorizontalPodAutoscaler>, WriteError> {
        let (cx, key) = (self.cx, self.key);
        let desired = objects::horizontal(self.object, &cx.wiring.config.borrow());
        let Some(current) = cx.horizontals.get(key) else {
            let doing = "failed to create HPA";
            let create = async |api: BoundedApi| api.create(&desired).await.map_err(WriteError::api(doing));
            let created = cx.writer().write(key, doing, create).await;
            if matches!(created, Err(WriteError::Api { .. })) {
                let message = format!("Failed to create HorizontalPodAutoscaler {:?}.", key.name());
                self.status.mark_failed(FAILED_CREATE, &message, self.now);
            }
            return created.map(|created| self.offer(created));
        };
        if !self.owns(&current.metadata) {
            self.status.mark_not_owned("HorizontalPodAutoscaler", key.name(), self.now);
            let (owner, name) = (format!("PodAutoscaler: {:?}", key.name()), format!("{:?}", key.name()));
            return Err(WriteError::NotOwned { owner, kind: "HPA", name });
        }
        if !objects::is_up_to_date(&current, &desired) {
            let doing = "failed to update HPA";
            // Without a resource version, the write replaces any present version, metadata included.
            let replace = async |api: BoundedApi| api.replace(&desired).await.map_err(WriteError::api(doing));
            self.offer(cx.writer().write(key, doing, replace).await?);
        }
        Ok(current)
    }

    fn offer(&self, object: HorizontalPodAutoscaler) -> Arc<HorizontalPodAutoscaler> {
        self.cx.horizontals.offer_object(&object);
        Arc::new(object)
    }

    async fn ensure_serverless(&mut self) -> Result<Arc<ServerlessService>, WriteError> {
        let (cx, key) = (self.cx, self.key);
        let desired = objects::serverless(self.object);
        let Some(current) = cx.serverless.get(key) else {
            let created = cx.writer().create(key, &cx.serverless, &desired, "error creating SKS", || true).await;
            return created.map(Arc::new);
        };
        if !self.owns(&current.metadata) {
            self.status.mark_not_owned("ServerlessService", key.name(), self.now);
            let owner = format!("PA: {}", key.name());
            return Err(WriteError::NotOwned { owner, kind: "SKS", name: key.name().to_owned() });
        }
        let Some(next) = corrected(&*current, &desired) else { return Ok(current) };
        cx.writer().replace(key, &cx.serverless, &next, "error updating SKS", || true).await.map(Arc::new)
    }

    fn owns(&self, meta: &ObjectMeta) -> bool {
        controller(meta).is_some_and(|owner| Some(&owner.uid) == self.object.metadata.uid.as_ref())
    }
}
