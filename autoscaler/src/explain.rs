//! Explains why a workload has its scale: as JSON on the admin port, and as a table for people.
//!
//! `GET /explain/NAMESPACE/NAME` returns the latest decision, its inputs, and the earlier decisions as changes, oldest
//! first. Each stage has its own entries: the decider's recommendation, the blend of load and metrics, and the
//! reconciler's action (bounds, grace period, pending proof, refusals). `autoscaler why NAMESPACE/NAME` requests that
//! document and prints a table, latest first.
//!
//! `NAMESPACE/NAME` names the object that requests the scale: a ZeroScaler, or in a Knative install a PodAutoscaler.
//! The process that evaluates HorizontalPodAutoscalers explains them under the same path ([`hpa::explain`]).
//!
//! Only the instance that owns a revision decides about it. Other instances return 404 and name the owner.

#[cfg(test)]
mod tests;

use crate::scale::multiscaler::{Explanation, Multiscaler, Present};
use anyhow::bail;
use autoscaler_core::history::words;
use bytes::Bytes;
use common::RevisionKey;
use common_controller::shares::{Owner, Shares};
use common_runtime::admin::{self, EXPLAIN, Page, json};
use common_runtime::tls::Trust;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns the admin page that explains objects of this kind.
pub fn page(kind: &'static str, multiscaler: Arc<Multiscaler>, shares: Shares) -> Page {
    Arc::new(move |path| {
        let (namespace, name) = path.strip_prefix(EXPLAIN)?.split_once('/')?;
        Some(answer(kind, &multiscaler, &shares, &RevisionKey::new(namespace, name)))
    })
}

fn answer(kind: &str, multiscaler: &Multiscaler, shares: &Shares, key: &RevisionKey) -> Response<Full<Bytes>> {
    if let Some(explanation) = multiscaler.explain(key) {
        return json(StatusCode::OK, document(key, &explanation).to_string());
    }
    let reason = match shares.owner(key) {
        Owner::Us => format!("this autoscaler scales no {kind} of that name"),
        Owner::Other(instance) => format!("another autoscaler decides about it: {instance}"),
        Owner::Nobody => {
            "no autoscaler decides about it at the moment, because the lease has no holder: try again later".to_owned()
        }
    };
    json(StatusCode::NOT_FOUND, json!({"revision": key.to_string(), "error": reason}).to_string())
}

pub(crate) fn document(key: &RevisionKey, explanation: &Explanation) -> Value {
    let Explanation { present, history } = explanation;
    let Some(Present { status, subject, surroundings, panicking }) = present else {
        return json!({"revision": key.to_string(), "history": history});
    };
    let spec = &subject.spec;
    json!({
        "revision": key.to_string(),
        "desired": status.desired,
        "excessBurstCapacity": status.excess_burst_capacity,
        "warmInSeconds": status.warm_up_left.map(|left| left.as_secs_f64()),
        "activatorUnheard": status.unattested,
        "panicking": panicking,
        "activatorsInPath": surroundings.activators_in_path,
        "replicas": surroundings.replicas,
        "spec": {
            "metric": format!("{:?}", spec.metric).to_lowercase(),
            "target": spec.target_value,
            "total": spec.total_value,
            "targetBurstCapacity": spec.target_burst_capacity.to_number(),
            "stableWindowSeconds": spec.stable_window.as_secs(),
            "panicWindowSeconds": spec.panic_window.as_secs(),
            "panicThreshold": spec.panic_threshold,
            "maxScaleUpRate": spec.max_scale_up_rate,
            "maxScaleDownRate": spec.max_scale_down_rate,
            "scaleDownDelaySeconds": spec.scale_down_delay.as_secs(),
            "activationScale": spec.activation_scale,
            "reachable": spec.reachable,
        },
        "history": history,
    })
}

/// Requests the explanation of `revision` (`NAMESPACE/NAME`) from the admin port at `admin`, and returns it as a table.
/// If `trust` is given, the connection uses TLS, and the port's certificate must meet its requirements.
///
/// # Errors
/// The name has another form, nothing listens at the address, the certificate is rejected, or that process does not
/// decide about the revision.
pub async fn why(admin: SocketAddr, trust: Option<&Trust>, revision: &str) -> anyhow::Result<String> {
    if revision.split('/').filter(|part| !part.is_empty()).count() != 2 || revision.matches('/').count() != 1 {
        bail!("{revision:?} must have the form NAMESPACE/NAME");
    }
    let (status, document) = admin::get(admin, trust, &format!("{EXPLAIN}{revision}")).await?;
    if status != StatusCode::OK {
        bail!("{revision}: {}", document["error"].as_str().unwrap_or("the admin port returned no explanation"));
    }
    if document.get(hpa::explain::SUBJECT).is_some() {
        return Ok(hpa::explain::table(&document));
    }
    Ok(words::table(&document))
}
