//! ServerlessService: the two Services of a revision, and whether traffic takes the activators or the pods.

use crate::podautoscaler::read_protocol;
use crate::{Condition, ObjectReference};
use common::backend::Protocol;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the PodAutoscaler reconciler asks for.
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
    namespaced,
    status = "ServerlessServiceStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ServerlessServiceSpec {
    /// Which way traffic goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Copy of the PodAutoscaler's `scaleTargetRef`.
    pub object_ref: ObjectReference,
    /// Copy of the PodAutoscaler's `protocolType`.
    #[schemars(with = "String")]
    #[serde(deserialize_with = "read_protocol")]
    pub protocol_type: Protocol,
    /// How many activators carry the traffic in Proxy mode; 0: all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_activators: i32,
}

/// Which way traffic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Through the activators.
    Proxy,
    /// Straight to the pods. Any other word is read as this one, as Knative does: its definition admits all, and one object
    /// must never keep a list from being read.
    #[serde(other)]
    Serve,
}

/// What the ServerlessService reconciler reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerlessServiceStatus {
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `ActivatorEndpointsPopulated`, `EndpointsPopulated`, `Ready`, sorted by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Name of the public Service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// Name of the private Service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub private_service_name: String,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: words that Knative's definition lets pass keep no list from being read, and say what they say there.
    #[test]
    fn every_mode_can_be_read() {
        for (word, expected) in [("Serve", Mode::Serve), ("Proxy", Mode::Proxy), ("Auto", Mode::Serve)] {
            let spec = json!({"mode": word, "objectRef": {}, "protocolType": "http1"});
            let read: ServerlessServiceSpec = serde_json::from_value(spec).expect("read");
            assert_eq!(read.mode, Some(expected), "{word:?}");
        }
    }
}
