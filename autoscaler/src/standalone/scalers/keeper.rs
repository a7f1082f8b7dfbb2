//! Where the passes over ZeroScalers write: statuses into memory, finalizers and events to the API server.

use super::Scalers;
use super::memory::Memory;
use crate::reconcile::records::{Records, Scaled, Subjects};
use crate::reconcile::stores::Stores;
use crate::reconcile::writes::Writes;
use common::RevisionKey as Key;
use common::names;
use common_api::{PodAutoscaler, PodAutoscalerStatus, ServerlessService, ServerlessServiceStatus, ZeroScaler};
use common_controller::{BoundedApi, Priority, Severity, Statuses, Store, WriteError, key_of};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::Value;
use std::sync::Arc;

/// Who speaks in Kubernetes Events.
pub(super) const COMPONENT: &str = "zeroscaler-controller";

/// The records of ZeroScalers.
pub(crate) fn records(scalers: &Arc<Scalers>, stores: &Stores, writes: &Writes) -> Records {
    let own =
        Arc::new(Own { scalers: scalers.clone(), autoscalers: stores.autoscalers.clone(), writes: writes.clone() });
    let known = scalers.clone();
    let born = move |key: &Key, serverless: &mut ServerlessService| {
        let service = known.get(key).and_then(|object| object.status.as_ref()?.service.clone());
        if let Some(service_name) = service {
            // The Service that was served: one of another name is given up.
            let private_service_name = names::private_service(key.name());
            let known = ServerlessServiceStatus { service_name, private_service_name, ..Default::default() };
            serverless.status = Some(known);
        }
    };
    Records {
        autoscalers: own,
        serverless: Arc::new(Memory::new(stores.serverless.clone(), born)),
        metrics: Arc::new(Memory::new(stores.metrics.clone(), |_, _| {})),
    }
}

/// PodAutoscalers that stand for ZeroScalers.
struct Own {
    scalers: Arc<Scalers>,
    autoscalers: Arc<Store<PodAutoscaler>>,
    writes: Writes,
}

impl Statuses<PodAutoscaler> for Own {
    fn write<'a>(
        &'a self,
        read: &'a Arc<PodAutoscaler>,
        status: PodAutoscalerStatus,
    ) -> BoxFuture<'a, Result<(), WriteError>> {
        self.scalers.tell(&self.autoscalers, read, status);
        self.scalers.queue().add(key_of(&**read), Priority::Normal);
        ready(Ok(())).boxed()
    }

    fn complain(&self, object: &PodAutoscaler, reason: &str, message: String) {
        if let Some(original) = self.scalers.behind(object) {
            self.writes.recorder.complain(COMPONENT, &*original, reason, message);
        }
    }
}

impl Subjects for Own {
    fn say(&self, object: &PodAutoscaler, severity: Severity, reason: &str, message: String) {
        if let Some(original) = self.scalers.behind(object) {
            self.writes.recorder.say(COMPONENT, &*original, severity, reason, message);
        }
    }

    /// Is said with the status, unless there will be none any more.
    fn scaled(&self, object: &PodAutoscaler, scaled: Scaled) {
        match object.metadata.deletion_timestamp {
            None => self.scalers.scaled(&key_of(object), scaled),
            Some(_) => self.say(object, Severity::Normal, Scaled::REASON, scaled.to_string()),
        }
    }

    fn forget(&self, revision: &Key) {
        self.scalers.forget_findings(revision);
    }

    fn merge<'a>(
        &'a self,
        object: &'a Arc<PodAutoscaler>,
        patch: Value,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, WriteError>> {
        async move {
            let key = key_of(&**object);
            let write = async |api: BoundedApi| {
                let patched = api.merge::<ZeroScaler>(&key, &patch).await;
                patched.map_err(WriteError::api(format!("{doing} of {}", key.name())))
            };
            let patched = self.writes.writer().write(&key, doing, write).await?;
            self.scalers.answered(&self.autoscalers, patched);
            // It may have gone meanwhile; then whoever reads it next notices.
            Ok(self.autoscalers.get(&key).unwrap_or_else(|| object.clone()))
        }
        .boxed()
    }
}
