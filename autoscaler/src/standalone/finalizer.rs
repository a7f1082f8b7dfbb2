//! Finalizer of a ZeroScaler that has adopted its target. Two annotations record that target and the replicas it was
//! found with.
//!
//! One write sets all three before anything is created or changed for the target. They are removed when everything is
//! given back. The object therefore always shows what must be given back, even if its spec now names another target. An
//! edit of the annotations cannot cause more than an edit of the spec could: the target is always in the same
//! namespace.

use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::engine::parts::Parts;
use crate::standalone::cluster::Cluster;
use common::names;
use common_api::ZeroScaler;
use common_api::zeroscaler;
use common_controller::{BoundedApi, WriteError, code};
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation on a ZeroScaler: number of replicas that its target was found with.
pub(crate) const ADOPTED_REPLICAS: &str = "zeroscale.dev/adopted-replicas";

/// Annotation on a ZeroScaler: the target it has adopted, as `APIVERSION/KIND/NAME`.
pub(crate) const ADOPTED_TARGET: &str = "zeroscale.dev/adopted-target";

/// Parses the adopted target from the annotations of a ZeroScaler. Returns `None` if they do not name one.
pub(crate) fn adopted_target(annotations: &BTreeMap<String, String>) -> Option<zeroscaler::Target> {
    let (rest, name) = annotations.get(ADOPTED_TARGET)?.rsplit_once('/')?;
    let (api_version, kind) = rest.rsplit_once('/')?;
    Some(zeroscaler::Target { api_version: api_version.into(), kind: kind.into(), name: name.into() })
}

/// Formats a target for the annotation that [`adopted_target`] parses.
fn annotation_value(target: &zeroscaler::Target) -> String {
    format!("{}/{}/{}", target.api_version, target.kind, target.name)
}

/// Returns the replicas that the target was found with: the recorded number, or else the current one.
pub(crate) fn adopted_replicas(object: &ZeroScaler, target: &Target) -> i32 {
    let recorded = object.annotations().get(ADOPTED_REPLICAS).and_then(|text| text.parse().ok());
    recorded.unwrap_or_else(|| target.current())
}

pub(crate) fn has_finalizer(object: &ZeroScaler) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// Adds the finalizer to a ZeroScaler that adopts `target`, referenced by `reference`, unless it is already set.
/// Returns the resulting object. Fails with a conflict if another client wrote first.
pub(super) async fn set(
    (parts, cluster): (&Parts, &Cluster),
    object: &Arc<ZeroScaler>,
    reference: &zeroscaler::Target,
    target: &Target,
) -> Result<Arc<ZeroScaler>, Error> {
    if has_finalizer(object) {
        return Ok(object.clone());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(names::FINALIZER.to_owned());
    let replicas = adopted_replicas(object, target).to_string();
    let annotations = json!({ADOPTED_REPLICAS: replicas, ADOPTED_TARGET: annotation_value(reference)});
    let metadata = json!({"finalizers": finalizers, "annotations": annotations});
    Ok(patch((parts, cluster), object, metadata, "failed to set the finalizer").await?)
}

/// Removes the finalizer, likewise. A deleted object counts as success.
pub(super) async fn remove(at: (&Parts, &Cluster), object: &Arc<ZeroScaler>) -> Result<(), Error> {
    if !has_finalizer(object) {
        return Ok(());
    }
    let finalizers: Vec<_> = object.finalizers().iter().filter(|f| *f != names::FINALIZER).collect();
    let metadata = json!({"finalizers": finalizers, "annotations": {ADOPTED_REPLICAS: null, ADOPTED_TARGET: null}});
    match patch(at, object, metadata, "failed to remove the finalizer").await {
        Err(WriteError::Api { source, .. }) if code(&source) == Some(404) => Ok(()),
        outcome => Ok(outcome.map(|_| ())?),
    }
}

async fn patch(
    (parts, cluster): (&Parts, &Cluster),
    object: &Arc<ZeroScaler>,
    mut metadata: serde_json::Value,
    doing: &str,
) -> Result<Arc<ZeroScaler>, WriteError> {
    metadata["resourceVersion"] = json!(object.metadata.resource_version);
    let (key, patch) = (object.key(), json!({"metadata": metadata}));
    let write = async |api: BoundedApi| {
        let patched = api.merge::<ZeroScaler>(&key, &patch).await;
        patched.map_err(WriteError::api(format!("{doing} of {}", key.name())))
    };
    let patched = parts.writes.writer().write(&key, doing, write).await?;
    cluster.apply_response(&parts.stores.index, patched);
    // If the object was deleted meanwhile, its next read notices that.
    Ok(cluster.scalers.objects.get(&key).unwrap_or_else(|| object.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adopted_target_is_parsed_as_it_was_written() {
        let reference = |api_version: &str| zeroscaler::Target {
            api_version: api_version.into(),
            kind: "Rollout".into(),
            name: "web.v2".into(),
        };
        for api_version in ["v1", "argoproj.io/v1alpha1"] {
            let annotations = BTreeMap::from([(ADOPTED_TARGET.to_owned(), annotation_value(&reference(api_version)))]);
            assert_eq!(adopted_target(&annotations), Some(reference(api_version)));
        }
        for text in ["", "web", "Deployment/web"] {
            assert_eq!(adopted_target(&BTreeMap::from([(ADOPTED_TARGET.to_owned(), text.to_owned())])), None, "{text}");
        }
    }
}
