//! ServerlessService: the two Services of a revision, and the traffic path through activators or straight to the pods.

use crate::podautoscaler::read_protocol;
use crate::zeroscaler::is_default;
use crate::{Condition, ObjectReference};
use common::backend::Protocol;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traffic path that the PodAutoscaler reconciler requests.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.internal.knative.dev",
    version = "v1alpha1",
    kind = "ServerlessService",
    plural = "serverlessservices",
    singular = "serverlessservice",
    shortname = "sks",
    category = "knative-internal",
    category = "networking",
    label("knative.dev/crd-install", "true"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Activators", type_ = "integer", json_path = ".spec.numActivators"),
    printcolumn(name = "ServiceName", type_ = "string", json_path = ".status.serviceName"),
    printcolumn(name = "PrivateServiceName", type_ = "string", json_path = ".status.privateServiceName"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    namespaced,
    status = "ServerlessServiceStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ServerlessServiceSpec {
    /// Path of traffic.
    #[schemars(with = "Option<String>", extend("enum" = ["Proxy", "Serve"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Copy of the PodAutoscaler's `scaleTargetRef`.
    pub object_ref: ObjectReference,
    /// Copy of the PodAutoscaler's `protocolType`.
    #[schemars(with = "String", extend("enum" = ["http1", "h2c"]))]
    #[serde(deserialize_with = "read_protocol")]
    pub protocol_type: Protocol,
    /// Number of activators that carry the traffic in Proxy mode; 0: all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub num_activators: i32,
}

/// Path of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Through the activators.
    Proxy,
    /// Straight to the pods. Any other text is read as this value, as by Knative: its definition admits every text, and
    /// one object must never make a list unreadable.
    #[serde(other)]
    Serve,
}

/// Result that the ServerlessService reconciler reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerlessServiceStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions `ActivatorEndpointsPopulated`, `EndpointsPopulated` and `Ready`, sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Name of the public Service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// Name of the private Service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub private_service_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: texts that Knative's definition admits make no list unreadable and keep their meaning in Knative.
    #[test]
    fn every_mode_can_be_read() {
        for (word, expected) in [("Serve", Mode::Serve), ("Proxy", Mode::Proxy), ("Auto", Mode::Serve)] {
            let spec = json!({"mode": word, "objectRef": {}, "protocolType": "http1"});
            let read: ServerlessServiceSpec = serde_json::from_value(spec).expect("read");
            assert_eq!(read.mode, Some(expected), "{word:?}");
        }
    }
}
