//! The two objects that a reconcile creates and maintains: Metric and ServerlessService. An existing object is
//! corrected ([`corrected`]). An object with another controller is left unchanged and reported in the status.

use super::store::Objects;
use super::wanted;
use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use crate::engine::workload::Path;
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common::time::Timestamp;
use common_api::{PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::WriteError;
use common_controller::objects::{controller, corrected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;
use tokio::sync::watch;

/// Writer of the objects that PodAutoscalers own.
pub(super) struct Children {
    pub(super) objects: Arc<Objects>,
    pub(super) writes: Writes,
    pub(super) config: watch::Receiver<Arc<AutoscalerConfig>>,
}

impl Children {
    /// Ensures the Metric of `object`. It scrapes `scrape_target`, or nothing if that is empty.
    pub(super) async fn metric(
        &self,
        key: &Key,
        object: &PodAutoscaler,
        scrape_target: &str,
        status: &mut PodAutoscalerStatus,
        now: Timestamp,
    ) -> Result<(), Error> {
        let want = wanted::metric(object, &self.config.borrow().clone(), scrape_target);
        let store = &self.objects.metrics;
        let Some(have) = store.get(key) else {
            self.writes.create(key, store, &want, "error creating metric").await?;
            return Ok(());
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("Metric", key.name(), now);
            return Err(not_owned(key, "Metric"));
        }
        if let Some(next) = corrected(&*have, &want) {
            self.writes.replace(key, store, &next, "error updating metric").await?;
        }
        Ok(())
    }

    /// Ensures the ServerlessService of `object`; `have` is the existing one.
    pub(super) async fn serverless(
        &self,
        key: &Key,
        object: &PodAutoscaler,
        have: Option<Arc<ServerlessService>>,
        path: Path,
        status: &mut PodAutoscalerStatus,
        now: Timestamp,
    ) -> Result<Arc<ServerlessService>, Error> {
        let during = Error::during("error reconciling SKS");
        let (want, store) = (wanted::serverless(object, path), &self.objects.serverless);
        let Some(have) = have else {
            return self.writes.create(key, store, &want, "error creating SKS").await.map(Arc::new).map_err(during);
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("ServerlessService", key.name(), now);
            return Err(during(not_owned(key, "SKS")));
        }
        let Some(next) = corrected(&*have, &want) else { return Ok(have) };
        if next.spec != have.spec {
            tracing::info!(revision = %key, ?path, "path");
        }
        self.writes.replace(key, store, &next, "error updating SKS").await.map(Arc::new).map_err(during)
    }
}

fn owns(object: &PodAutoscaler, meta: &ObjectMeta) -> bool {
    controller(meta).is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

fn not_owned(key: &Key, kind: &'static str) -> Error {
    WriteError::NotOwned { owner: format!("PA: {}", key.name()), kind, name: key.name().to_owned() }.into()
}
