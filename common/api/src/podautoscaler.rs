//! PodAutoscaler: Knative's object for the scaling of one revision.

use crate::zeroscaler::is_default;
use crate::{Condition, ObjectReference};
use common::backend::Protocol;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Scaling that a user requests.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.internal.knative.dev",
    version = "v1alpha1",
    kind = "PodAutoscaler",
    plural = "podautoscalers",
    singular = "podautoscaler",
    shortname = "kpa",
    shortname = "pa",
    category = "knative-internal",
    category = "autoscaling",
    label("knative.dev/crd-install", "true"),
    printcolumn(name = "DesiredScale", type_ = "integer", json_path = ".status.desiredScale"),
    printcolumn(name = "ActualScale", type_ = "integer", json_path = ".status.actualScale"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    namespaced,
    status = "PodAutoscalerStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PodAutoscalerSpec {
    /// Maximum number of concurrent requests per pod; 0: no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub container_concurrency: i64,
    /// Reference to the scaled object.
    pub scale_target_ref: ObjectReference,
    /// Reachability of the revision by routes.
    #[schemars(with = "String", extend("enum" = ["", "Reachable", "Unreachable"]))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub reachability: Reachability,
    /// Protocol of the pods: http1 or h2c.
    #[schemars(with = "String", extend("enum" = ["http1", "h2c"]))]
    #[serde(deserialize_with = "read_protocol")]
    pub protocol_type: Protocol,
}

/// Result that the autoscaler reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["metricsServiceName", "serviceName"]))]
#[serde(rename_all = "camelCase")]
pub struct PodAutoscalerStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions `Active`, `Ready`, `SKSReady` and `ScaleTargetInitialized`, sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Annotations; never written by Zeroscale.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Name of the public Service; always present, may be empty.
    #[serde(default)]
    pub service_name: String,
    /// Name of the private Service; always present, may be empty.
    #[serde(default)]
    pub metrics_service_name: String,
    /// Desired number of pods; -1: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_scale: Option<i32>,
    /// Number of ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_scale: Option<i32>,
}

/// Reachability of a revision by routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reachability {
    /// A route can send traffic to the revision.
    Reachable,
    /// No route can send traffic to the revision.
    Unreachable,
    /// Not known; treated as reachable. Any other text is read as this value, because Knative's definition admits every
    /// text, and one object must never make a list unreadable.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

/// Reads a protocol like Knative, whose definitions admit every text: anything but `h2c` is HTTP/1.1.
pub(crate) fn read_protocol<'de, D: Deserializer<'de>>(word: D) -> Result<Protocol, D::Error> {
    let is_h2c = String::deserialize(word)? == "h2c";
    Ok(if is_h2c { Protocol::H2c } else { Protocol::Http1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: a text that Knative's definition admits makes no list unreadable and counts as unknown, or as http1.
    #[test]
    fn every_reachability_and_protocol_can_be_read() {
        let rows = [
            ("", Reachability::Unknown, "http1", Protocol::Http1),
            ("Reachable", Reachability::Reachable, "h2c", Protocol::H2c),
            ("Unreachable", Reachability::Unreachable, "h3", Protocol::Http1),
            ("Sometimes", Reachability::Unknown, "http1", Protocol::Http1),
        ];
        for (reachability, reachable, protocol, expected) in rows {
            let spec = json!({"scaleTargetRef": {}, "protocolType": protocol, "reachability": reachability});
            let read: PodAutoscalerSpec = serde_json::from_value(spec).expect("read");
            assert_eq!((read.reachability, read.protocol_type), (reachable, expected), "{reachability:?} {protocol}");
        }
    }
}
