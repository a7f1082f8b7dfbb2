//! The two objects that a pass makes and keeps: Metric and ServerlessService. An existing one is put right
//! ([`corrected`]); one that somebody else controls is left alone and told in the status.

use super::lifecycle::Lifecycle;
use super::objects;
use crate::reconcile::error::Error;
use crate::reconcile::records::{Children as ChildRecords, Records};
use crate::reconcile::stores::Stores;
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common::time::Timestamp;
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::WriteError;
use common_controller::objects::{controller, corrected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::object::HasStatus;
use std::sync::Arc;
use tokio::sync::watch;

/// Makes and keeps what PodAutoscalers own.
pub(super) struct Children {
    pub(super) stores: Arc<Stores>,
    pub(super) records: Records,
    pub(super) lifecycle: Arc<dyn Lifecycle>,
    pub(super) config: watch::Receiver<Arc<AutoscalerConfig>>,
}

impl Children {
    /// The Metric of `object`, which scrapes `scrape_target`, or nothing where that is empty.
    pub(super) async fn metric(
        &self,
        key: &Key,
        object: &PodAutoscaler,
        scrape_target: &str,
        status: &mut PodAutoscalerStatus,
        now: Timestamp,
    ) -> Result<(), Error> {
        let config = self.config.borrow().clone();
        let want = objects::metric(object, self.lifecycle.inherited(object), &config, scrape_target);
        let Some(have) = present(key, object, self.stores.metrics.get(key), &*self.records.metrics) else {
            self.records.metrics.create(key, want, "error creating metric").await?;
            return Ok(());
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("Metric", key.name(), now);
            return Err(not_owned(key, "Metric"));
        }
        if let Some(next) = corrected(&*have, &want) {
            self.records.metrics.replace(key, next, "error updating metric").await?;
        }
        Ok(())
    }

    /// The ServerlessService of `object`, of which `have` is there.
    pub(super) async fn serverless(
        &self,
        key: &Key,
        object: &PodAutoscaler,
        have: Option<Arc<ServerlessService>>,
        (mode, number): (Mode, i32),
        status: &mut PodAutoscalerStatus,
        now: Timestamp,
    ) -> Result<Arc<ServerlessService>, Error> {
        let during = Error::during("error reconciling SKS");
        let want = objects::serverless(object, self.lifecycle.inherited(object), mode, number);
        let Some(have) = present(key, object, have, &*self.records.serverless) else {
            return self.records.serverless.create(key, want, "error creating SKS").await.map_err(during);
        };
        if !owns(object, &have.metadata) {
            status.mark_not_owned("ServerlessService", key.name(), now);
            return Err(during(not_owned(key, "SKS")));
        }
        let Some(next) = corrected(&*have, &want) else { return Ok(have) };
        if next.spec != have.spec {
            tracing::info!(revision = %key, ?mode, number, "path");
        }
        self.records.serverless.replace(key, next, "error updating SKS").await.map_err(during)
    }
}

fn owns(object: &PodAutoscaler, meta: &ObjectMeta) -> bool {
    controller(meta).is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

/// `have`, unless this process made it for an object of the same name that has gone since: then it is forgotten.
fn present<K: Resource<DynamicType = ()> + HasStatus + 'static>(
    key: &Key,
    object: &PodAutoscaler,
    have: Option<Arc<K>>,
    records: &dyn ChildRecords<K>,
) -> Option<Arc<K>> {
    let have = have?;
    if owns(object, have.meta()) || records.outlives_process(key) {
        return Some(have);
    }
    records.forget(key);
    None
}

fn not_owned(key: &Key, kind: &'static str) -> Error {
    WriteError::NotOwned { owner: format!("PA: {}", key.name()), kind, name: key.name().to_owned() }.into()
}
