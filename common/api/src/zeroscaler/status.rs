//! What the owner answers.

use super::BackendStatus;
use super::FallbackStatus;
use super::Fault;
use super::PortProtocol;
use super::RequestStatus;
use super::ZeroScaler;
use super::conditions::Condition;
use crate::numbers;
use common::backend::Protocol;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the owner answers. Nobody else writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZeroScalerStatus {
    /// The generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: configured and served, True while asleep. Active: True awake, False asleep, Unknown on the way. Adopted:
    /// target and Service are taken over. HostsOwned: each host leads here. MetricsMeasured: each metric can be read.
    /// PortsAllocated: each port has a number of its own on the activators. AnswersResolved: the Service of `wake.fallback`
    /// was found, and can answer. ProtocolsDetected: False while it sleeps and clients of a port say nothing. ScaledBy: False
    /// while another writer keeps changing the replicas. PodsOwned: False while the selector finds pods of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Asleep, Waking, Awake or FallingAsleep; Unknown: nobody has said yet.
    #[serde(default, skip_serializing_if = "State::is_unknown")]
    pub state: State,
    /// How many pods are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodCounts>,
    /// Fewest pods now, by the schedules and the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// Most pods now, by the schedules and the cluster's default; absent: as many as the load asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// When min and max change next, by the schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_change: Option<NextChange>,
    /// Name of the first Service that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The Services that lead to the workload's pods, served or direct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,
    /// The hosts of the spec that lead here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The hosts as one text, for columns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_names: String,
    /// The Services' ports, and where the activators take their connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
    /// How activators reach the workload, as it was last configured without a mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendStatus>,
    /// The fallback of `spec.wake`, as it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
    /// What was found, and is given back when this object goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// The spec that is in force. While a later one is refused, it is the one before; so it is known to whoever comes
    /// next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
    /// When it last woke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Time>,
    /// What became of `spec.request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestStatus>,
    /// Why its pods cannot serve: until a wake succeeds, or this object or its target changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Fewest and most pods from some time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextChange {
    /// When.
    pub at: Time,
    /// Fewest pods from then on.
    pub min: i32,
    /// Most pods from then on; absent: as many as the load asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
}

/// What a workload is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// No pods, and none wanted.
    Asleep,
    /// Pods are wanted, and none is ready.
    Waking,
    /// Pods are ready.
    Awake,
    /// No pods are wanted, and the last ones are leaving.
    FallingAsleep,
    /// Nobody has said, or a newer version has.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Whether it is not known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// How many pods there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Pods that are ready.
    #[serde(default)]
    pub ready: i32,
    /// Pods that exist, ready or not.
    #[serde(default)]
    pub actual: i32,
}

/// A Service that leads to the workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Served: its clients are led to the activators, which wake the workload. Direct: it leads to the pods, and wakes nobody.
    #[serde(default)]
    pub path: ServicePath,
    /// Set if the ports that all workloads share answer to its names: it is served, and leads to the first of the ports.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub on_shared_ports: bool,
    /// Why it is direct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Way of a Service's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServicePath {
    /// To the activators.
    Served,
    /// To the pods. What a newer version may have written is read as this.
    #[default]
    #[serde(other)]
    Direct,
}

/// One port of the Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    /// Name of the Service's port; its number, as a text, where it has no name.
    pub name: String,
    /// The Service's port. Ports of further Services that lead to the same port of the pods are the same port.
    pub port: u16,
    /// The port on which every activator takes connections for it, and for nothing else; absent: none is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// What clients speak there.
    #[serde(default)]
    pub protocol: PortProtocol,
    /// For protocol tcp: how long a silent connection stands before it wakes the workload, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_after_ms: Option<u64>,
    /// The pods' port that it leads to; absent: not every pod has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_port: Option<u16>,
    /// For protocol auto: the HTTP that the pods speak there, http1 or h2c, by `appProtocol`, the names of the port and a
    /// gRPC readiness probe; absent: none of these says. An activator that finds a pod to speak another goes by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub spoken: Option<Protocol>,
    /// Set if protocol tcp was learned: an activator found that the pods speak first there.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub learned: bool,
}

/// A version of the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// Its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// It, as `spec` is written.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

impl InForce {
    /// That of an object, with numbers as an API server gives them back: one that differed from what was stored in them
    /// alone would be written again with every look.
    pub fn of(object: &ZeroScaler) -> Self {
        let mut spec = serde_json::to_value(&object.spec).unwrap_or_default();
        numbers::as_stored(&mut spec);
        Self { generation: object.metadata.generation, spec }
    }

    /// `object` as it was then; none: that cannot be read.
    pub fn version_of(&self, object: &ZeroScaler) -> Option<ZeroScaler> {
        let spec = serde_json::from_value(self.spec.clone()).ok()?;
        let mut version = ZeroScaler { spec, ..object.clone() };
        version.metadata.generation = self.generation;
        Some(version)
    }
}

/// Whatever stands there: one that cannot be read must not keep a whole list from being read.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// What was found, and is given back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// Replicas that the target was found with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The Services that were there before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<AdoptedService>,
}

/// A Service that was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedService {
    /// Its name.
    pub name: String,
    /// Its uid: another Service of that name gets nothing back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The selector that it had.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: a status that is read back is the one that was written, though Kubernetes writes 10.0 as 10.
    #[test]
    fn a_version_that_was_stored_is_the_one_that_would_be_written() {
        let spec = json!({
            "target": {"name": "web"},
            "scale": {"load": {"concurrency": 10, "utilization": 70.5}, "rates": {"up": 1000}},
        });
        let object = json!({"metadata": {"name": "web", "generation": 3}, "spec": &spec});
        let object: ZeroScaler = serde_json::from_value(object).expect("a ZeroScaler");
        let written = InForce::of(&object);
        assert_eq!(written.spec["scale"], spec["scale"]);
        assert_eq!(written.version_of(&object).expect("a version").spec, object.spec);
    }
}
