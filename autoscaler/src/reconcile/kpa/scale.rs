//! The replicas patch, and who hears of it.

use super::super::context::Context;
use super::super::error::Error;
use super::super::world::facts::Target;
use super::super::world::targets::TargetKey;
use crate::scale::ScaleEvent;
use common::RevisionKey as Key;
use common::write_rate::WriteClass;
use common_api::PodAutoscaler;
use common_controller::{Severity, WriteError};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation};
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, Request};
use std::sync::Arc;
use tokio::time::Instant;

/// Who speaks in Kubernetes Events.
pub(crate) const COMPONENT: &str = "podautoscaler-controller";

/// Asks for `to` replicas of the target, and tells everybody once the API server has agreed.
///
/// # Errors
/// The lease may end too soon, or the API server's.
pub(crate) async fn patch(
    cx: &Context,
    key: &Key,
    object: &PodAutoscaler,
    target_key: &TargetKey,
    target: &Arc<Target>,
    to: i32,
    why: &str,
) -> Result<(), Error> {
    let from = target.current();
    let class = if from == 0 { WriteClass::Wake } else { WriteClass::Scale };
    let name = target_key.object.name();
    let doing = format!("failed to apply scale {to} to scale target {name}");
    let path = DynamicObject::url_path(&target_key.resource(), Some(key.namespace()));
    let sent = cx
        .writer_of(class)
        .write(key, &doing, async |api| {
            if to == 0 {
                cx.takes_last_pod(key, api.within);
            }
            let patch = Request::new(path).patch_subresource("scale", name, &PatchParams::default(), &replicas(to));
            api.send(patch).await.map_err(WriteError::api(doing.as_str()))
        })
        .await;
    if to == 0 {
        cx.took_last_pod(key, !matches!(sent, Err(WriteError::NoAnswer { .. })));
    }
    let scaled: DynamicObject = sent?;
    let at = Instant::now();
    let version = scaled.metadata.resource_version.unwrap_or_default();
    cx.world.targets.offer(target_key, &version, Target { replicas: Some(to), ..Target::clone(target) });
    tracing::info!(revision = %key, target = name, from, to, why, "scaled");
    if let Some(tell) = &cx.on_scale {
        tell(&ScaleEvent { key: key.clone(), from, to, reason: why.to_owned(), at });
    }
    let message = format!("Scaled {} {name} from {from} to {to}: {why}", target_key.kind);
    cx.recorder.say(COMPONENT, object, Severity::Normal, "Scaled", message);
    Ok(())
}

/// The patch that upstream sends: no precondition, so it needs no right to read.
fn replicas(to: i32) -> Patch<()> {
    let path = PointerBuf::from_tokens(["spec", "replicas"]);
    Patch::Json(JsonPatch(vec![PatchOperation::Add(AddOperation { path, value: to.into() })]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_is_upstreams_to_the_byte() {
        let Patch::Json::<()>(patch) = replicas(11) else { panic!("not a JSON patch") };
        let body = serde_json::to_string(&patch).expect("serialisable");
        assert_eq!(body, r#"[{"op":"add","path":"/spec/replicas","value":11}]"#);
    }
}
