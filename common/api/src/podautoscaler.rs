//! PodAutoscaler: how one target is scaled. In standalone it is the revision.

use crate::{Condition, ObjectReference};
use common::backend::Protocol;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// What a user asks for.
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
    namespaced,
    status = "PodAutoscalerStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PodAutoscalerSpec {
    /// Requests that one pod may run at once; 0: no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub container_concurrency: i64,
    /// What is scaled.
    pub scale_target_ref: ObjectReference,
    /// Whether any route leads here.
    #[serde(default, skip_serializing_if = "Reachability::is_unknown")]
    pub reachability: Reachability,
    /// What the pods speak.
    #[schemars(with = "String")]
    #[serde(deserialize_with = "read_protocol")]
    pub protocol_type: Protocol,
}

/// What the autoscaler reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAutoscalerStatus {
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Active`, `Ready`, `SKSReady`, `ScaleTargetInitialized`, sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Never written by this project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Name of the public Service; always present, maybe empty.
    #[serde(default)]
    pub service_name: String,
    /// Name of the private Service; always present, maybe empty.
    #[serde(default)]
    pub metrics_service_name: String,
    /// Pods that are wanted; -1: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_scale: Option<i32>,
    /// Pods that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_scale: Option<i32>,
}

/// Whether any route leads to a revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reachability {
    /// Some route can send traffic here.
    Reachable,
    /// None can.
    Unreachable,
    /// Not known; treated as reachable. Any other word is read as this one: Knative's definition admits all, and one
    /// object must never keep a list from being read.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

impl Reachability {
    fn is_unknown(&self) -> bool {
        *self == Reachability::Unknown
    }
}

/// As Knative reads it, whose definitions admit all words: what is not `h2c` is HTTP/1.1.
pub(crate) fn read_protocol<'de, D: Deserializer<'de>>(word: D) -> Result<Protocol, D::Error> {
    let is_h2c = String::deserialize(word)? == "h2c";
    Ok(if is_h2c { Protocol::H2c } else { Protocol::Http1 })
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: a word that Knative's definition lets pass keeps no list from being read, and says nothing.
    #[test]
    fn every_reachability_can_be_read() {
        let rows = [
            ("", Reachability::Unknown),
            ("Reachable", Reachability::Reachable),
            ("Unreachable", Reachability::Unreachable),
            ("Sometimes", Reachability::Unknown),
        ];
        for (word, expected) in rows {
            let spec = json!({"scaleTargetRef": {}, "protocolType": "http1", "reachability": word});
            let read: PodAutoscalerSpec = serde_json::from_value(spec).expect("read");
            assert_eq!(read.reachability, expected, "{word:?}");
        }
    }

    #[test]
    fn every_protocol_can_be_read() {
        for (word, expected) in [("http1", Protocol::Http1), ("h2c", Protocol::H2c), ("h3", Protocol::Http1)] {
            let spec = json!({"scaleTargetRef": {}, "protocolType": word});
            let read: PodAutoscalerSpec = serde_json::from_value(spec).expect("read");
            assert_eq!(read.protocol_type, expected, "{word:?}");
        }
    }
}
