//! Status of a ZeroScaler.

use super::FallbackStatus;
use super::Fault;
use super::PortProtocol;
use super::RequestStatus;
use super::ZeroScaler;
use super::conditions::Condition;
use crate::numbers;
use common::backend::{Backend, Protocol};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Observed state. Only the autoscaler writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZeroScalerStatus {
    /// Generation of the object that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: configured and served, also True while asleep. Active: True awake, False asleep, Unknown in transition.
    /// Adopted: target and Service are taken over. HostsOwned: each host leads here. MetricsMeasured: each metric can
    /// be read. PortsAllocated: each port has its own number on the activators. AnswersResolved: the Service of
    /// `wake.fallback` was found and can respond. ProtocolsDetected: False while the workload sleeps and clients of a
    /// port send nothing. ScaledBy: False while another writer keeps changing the replicas. PodsOwned: False while the
    /// selector matches pods of other owners.
    /// Guarded: NetworkPolicies select the pods, and the activators follow them; False: they cannot, and admit no client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Asleep, Waking, Awake or FallingAsleep; Unknown: not determined yet.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub state: SleepState,
    /// Desired number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Current number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodCounts>,
    /// Current minimum number of pods, from schedules and the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// Current maximum number of pods, from schedules and the cluster's default; absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// Next change of min and max by the schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_change: Option<NextChange>,
    /// Name of the first served Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Services that lead to the workload's pods, served or direct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,
    /// Hosts of the spec that lead here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The hosts as one text, for columns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_names: String,
    /// Ports of the Services, and the activators' ports for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
    /// Settings by which activators reach the workload, from its last valid configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    /// Resolved fallback of `spec.wake`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
    /// Original state, which is restored when this object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// Spec in force. While a later spec is rejected, this is the previous one, so that it survives a restart of the
    /// autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
    /// Time of the last wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Time>,
    /// Result of `spec.request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestStatus>,
    /// Fault that prevents the pods from serving; kept until a wake succeeds, or this object or its target changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Future minimum and maximum number of pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextChange {
    /// Time of the change.
    pub at: Time,
    /// Minimum number of pods from then on.
    pub min: i32,
    /// Maximum number of pods from then on; absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
}

/// State of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SleepState {
    /// No pods exist and none are desired.
    Asleep,
    /// Pods are desired and none is ready.
    Waking,
    /// Pods are ready.
    Awake,
    /// No pods are desired, and the last ones are terminating.
    FallingAsleep,
    /// Not determined yet, or an unknown value of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Current number of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Number of ready pods.
    #[serde(default)]
    pub ready: i32,
    /// Number of existing pods, ready or not.
    #[serde(default)]
    pub actual: i32,
}

/// Service that leads to the workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Name of the Service.
    pub name: String,
    /// Served: leads to the activators, which wake the workload. Direct: leads to the pods and does not wake the
    /// workload.
    #[serde(default)]
    pub path: ServicePath,
    /// Set if the ports that all workloads share accept the Service's names: it is served and leads to the first of the
    /// ports.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub on_shared_ports: bool,
    /// Reason why the Service is direct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Destination of a Service's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServicePath {
    /// The activators.
    Served,
    /// The pods. Unknown values of newer versions are read as this.
    #[default]
    #[serde(other)]
    Direct,
}

/// One port of the Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    /// Name of the Service's port, or its number as text if it has no name.
    pub name: String,
    /// Port number of the Service. Ports of further Services that lead to the same port of the pods are the same port.
    pub port: u16,
    /// Port number on which every activator accepts connections for this port only; absent: none is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Protocol of clients.
    #[serde(default)]
    pub protocol: PortProtocol,
    /// For protocol tcp: time for which a silent connection must stay open before it wakes the workload, in
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_after_ms: Option<u64>,
    /// Port of the pods behind it; absent: not every pod has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_port: Option<u16>,
    /// For protocol auto: HTTP version of the pods, http1 or h2c, by `appProtocol`, the names of the port and a gRPC
    /// readiness probe; absent: none of these defines it. If an activator observes another version, it uses that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub spoken: Option<Protocol>,
    /// Set if protocol tcp was detected: an activator observed that the pods speak first.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub learned: bool,
}

/// One version of the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// Generation of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The spec as written.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

impl InForce {
    /// Returns the current version of an object, with numbers in the form in which an API server returns them. In any
    /// other form they would differ from the stored numbers, and every pass would write them again.
    pub fn from_object(object: &ZeroScaler) -> Self {
        let mut spec = serde_json::to_value(&object.spec).unwrap_or_default();
        numbers::as_stored(&mut spec);
        Self { generation: object.metadata.generation, spec }
    }

    /// Returns `object` with this spec, or `None` if the spec cannot be read.
    pub fn version_of(&self, object: &ZeroScaler) -> Option<ZeroScaler> {
        let spec = serde_json::from_value(self.spec.clone()).ok()?;
        let mut version = ZeroScaler { spec, ..object.clone() };
        version.metadata.generation = self.generation;
        Some(version)
    }
}

/// Accepts any object: an unreadable spec must not make a whole list unreadable.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Original state of target and Services, which is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// Original replicas of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Services that existed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<AdoptedService>,
}

/// Service that existed before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedService {
    /// Name of the Service.
    pub name: String,
    /// Uid of the Service; another Service of the same name is not restored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Original selector of the Service.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: Kubernetes stores 10.0 as 10, which makes no difference.
    #[test]
    fn a_spec_read_back_equals_the_written_one() {
        let spec = json!({
            "target": {"name": "web"},
            "scale": {"load": {"concurrency": 10, "utilization": 70.5}, "rates": {"up": 1000}},
        });
        let object = json!({"metadata": {"name": "web", "generation": 3}, "spec": &spec});
        let object: ZeroScaler = serde_json::from_value(object).expect("a ZeroScaler");
        let written = InForce::from_object(&object);
        assert_eq!(written.spec["scale"], spec["scale"]);
        assert_eq!(written.version_of(&object).expect("a version").spec, object.spec);
    }
}
