//! The two objects that a reconcile creates and maintains: Metric and ServerlessService. An existing object is
//! corrected ([`corrected`]). An object with another controller is left unchanged and reported in the status.

use super::revisions::{Revisions, Subject};
use crate::cluster::error::Error;
use crate::engine::workload::Path;
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::annotations;
use common::config::AutoscalerConfig;
use common_api::{Metric, MetricSpec, Mode, PodAutoscaler, ServerlessService, ServerlessServiceSpec};
use common_controller::WriteError;
use common_controller::objects::{controller, controller_reference, corrected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::sync::Arc;

impl Revisions {
    /// Ensures the Metric of a PodAutoscaler. It scrapes the Service `target`, or nothing if that is empty.
    pub(super) async fn ensure_metric(&self, key: &Key, subject: &mut Subject, target: &str) -> Result<(), Error> {
        let Subject { now, object, status, .. } = subject;
        let want = wanted_metric(object, &self.parts.configs.autoscaler.borrow().clone(), target);
        let (store, writes) = (&self.objects.metrics, &self.parts.writes);
        let Some(have) = store.get(key) else {
            writes.create(key, store, &want, "error creating metric").await?;
            return Ok(());
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("Metric", key.name(), *now);
            return Err(not_owned(key, "Metric"));
        }
        if let Some(next) = corrected(&*have, &want) {
            writes.replace(key, store, &next, "error updating metric").await?;
        }
        Ok(())
    }

    /// Ensures the ServerlessService of a PodAutoscaler, with this path.
    pub(super) async fn ensure_serverless(
        &self,
        key: &Key,
        Subject { now, object, status, serverless, .. }: &mut Subject,
        path: Path,
    ) -> Result<Arc<ServerlessService>, Error> {
        let during = Error::during("error reconciling SKS");
        let (want, store, writes) = (wanted_serverless(object, path), &self.objects.serverless, &self.parts.writes);
        let Some(have) = serverless.clone() else {
            return writes.create(key, store, &want, "error creating SKS").await.map(Arc::new).map_err(during);
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("ServerlessService", key.name(), *now);
            return Err(during(not_owned(key, "SKS")));
        }
        let Some(next) = corrected(&*have, &want) else { return Ok(have) };
        if next.spec != have.spec {
            tracing::info!(revision = %key, ?path, "path");
        }
        writes.replace(key, store, &next, "error updating SKS").await.map(Arc::new).map_err(during)
    }
}

fn owns(object: &PodAutoscaler, meta: &ObjectMeta) -> bool {
    controller(meta).is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

fn not_owned(key: &Key, kind: &'static str) -> Error {
    WriteError::NotOwned { owner: format!("PA: {}", key.name()), kind, name: key.name().to_owned() }.into()
}

/// Returns metadata with the labels and annotations of the PodAutoscaler, as upstream.
fn metadata(autoscaler: &PodAutoscaler) -> ObjectMeta {
    let (labels, annotations) = (autoscaler.labels().clone(), autoscaler.annotations().clone());
    let (name, namespace) = (autoscaler.metadata.name.clone(), autoscaler.metadata.namespace.clone());
    let labels = Some(labels).filter(|labels| !labels.is_empty());
    let annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    let owner_references = Some(vec![controller_reference(autoscaler)]);
    ObjectMeta { name, namespace, labels, annotations, owner_references, ..ObjectMeta::default() }
}

/// Returns the desired ServerlessService. `autoscaler` has its defaults filled in.
pub(crate) fn wanted_serverless(autoscaler: &PodAutoscaler, path: Path) -> ServerlessService {
    let mut metadata = metadata(autoscaler);
    metadata.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(annotations::METRIC.name)));
    metadata.annotations.take_if(|annotations| annotations.is_empty());
    let mode = Some(if path.mode == PathMode::Serve { Mode::Serve } else { Mode::Proxy });
    let (object_ref, protocol_type) = (autoscaler.spec.scale_target_ref.clone(), autoscaler.spec.protocol_type);
    let spec = ServerlessServiceSpec { mode, object_ref, protocol_type, num_activators: path.activators };
    ServerlessService { metadata, spec, status: None }
}

/// Returns the desired Metric. It scrapes `scrape_target`, or nothing if that is empty. `autoscaler` has its defaults
/// filled in.
pub(crate) fn wanted_metric(autoscaler: &PodAutoscaler, config: &AutoscalerConfig, scrape_target: &str) -> Metric {
    let annotations = autoscaler.annotations();
    let stable_window = annotations::stable_window(annotations, config).as_nanos();
    let panic_window = annotations::panic_window(annotations, config).as_nanos();
    let spec = MetricSpec { stable_window, panic_window, scrape_target: scrape_target.to_owned() };
    Metric { metadata: metadata(autoscaler), spec, status: None }
}
