//! The finalizer of a ZeroScaler that has taken up its target, and the replicas that the target was found with.
//!
//! Both are set before anything is made or changed for the target, and removed when everything is given back.

use crate::reconcile::error::Error;
use crate::reconcile::records::Records;
use crate::reconcile::stores::facts::Target;
use common::names;
use common_api::PodAutoscaler;
use common_controller::{WriteError, code};
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

/// Annotation on a ZeroScaler: replicas that its target was found with.
pub(crate) const ADOPTED_REPLICAS: &str = "zeroscale.dev/adopted-replicas";

/// Replicas that the target was found with: as noted, else as it is.
pub(crate) fn adopted_replicas(object: &PodAutoscaler, target: &Target) -> i32 {
    let noted = object.annotations().get(ADOPTED_REPLICAS).and_then(|text| text.parse().ok());
    noted.unwrap_or_else(|| target.current())
}

/// Whether the ZeroScaler has our finalizer.
pub(crate) fn has_finalizer(object: &PodAutoscaler) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// Sets finalizers and takes them off.
#[derive(Clone)]
pub(super) struct Finalizers {
    pub(super) records: Records,
}

impl Finalizers {
    /// Finalizers the ZeroScaler, unless it is. Returns the object as it is then.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    pub(super) async fn set(&self, object: &Arc<PodAutoscaler>, target: &Target) -> Result<Arc<PodAutoscaler>, Error> {
        if has_finalizer(object) {
            return Ok(object.clone());
        }
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(names::FINALIZER.to_owned());
        let replicas = adopted_replicas(object, target).to_string();
        let metadata = json!({"finalizers": finalizers, "annotations": {ADOPTED_REPLICAS: replicas}});
        Ok(self.patch(object, metadata, "error taking up the target").await?)
    }

    /// Removes it again. An object that is gone has none.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    pub(super) async fn remove(&self, object: &Arc<PodAutoscaler>) -> Result<(), Error> {
        if !has_finalizer(object) {
            return Ok(());
        }
        let finalizers: Vec<_> = object.finalizers().iter().filter(|f| *f != names::FINALIZER).collect();
        let metadata = json!({"finalizers": finalizers, "annotations": {ADOPTED_REPLICAS: null}});
        match self.patch(object, metadata, "error letting the target go").await {
            Err(WriteError::Api { source, .. }) if code(&source) == Some(404) => Ok(()),
            outcome => Ok(outcome.map(|_| ())?),
        }
    }

    async fn patch(
        &self,
        object: &Arc<PodAutoscaler>,
        mut metadata: serde_json::Value,
        doing: &str,
    ) -> Result<Arc<PodAutoscaler>, WriteError> {
        metadata["resourceVersion"] = json!(object.metadata.resource_version);
        self.records.autoscalers.merge(object, json!({"metadata": metadata}), doing).await
    }
}
