//! ZeroScaler: the object next to an ordinary workload that configures scaling to zero and back.
//!
//! These types are the spec that a user writes and the status that the autoscaler writes. An absent field has one of
//! two defaults: the schema's, which the API server fills in, or the cluster's (`config-autoscaler`), which [`scale`]
//! resolves. The rules for valid objects are written once, in [`checks`] and [`rules`], for the API server (schema and
//! CEL) and for the autoscaler ([`validation`]).
//!
//! Texts such as durations and hosts stay texts here and are parsed where they are used: an object that an API server
//! has accepted must never make a whole list unreadable.

pub mod answers;
pub mod checks;
pub mod conditions;
pub mod crd;
pub mod duration;
pub mod fallback;
pub mod fault;
pub mod manual;
pub mod ports;
mod quantities;
pub mod request;
pub mod rules;
pub mod scale;
pub mod schedule;
pub mod status;
pub mod timeouts;
pub mod validation;
pub mod wake;

pub use answers::{AnswerMode, Answers, FixedResponse, HeaderMatch, Page, Placeholder, RequestMatch, StaticResponse};
pub use conditions::ConditionStatus;
pub use duration::DurationText;
pub use fallback::{Fallback, FallbackStatus, PortChoice};
pub use fault::Fault;
pub use ports::{Port, PortProtocol};
pub use request::{Request, RequestResult, RequestStatus};
pub use scale::{LoadTarget, Panic, Rates, Scale};
pub use schedule::Schedule;
pub use status::{
    Adopted, AdoptedService, InForce, NextChange, PodCounts, PortStatus, ServicePath, ServiceStatus, SleepState,
    ZeroScalerStatus,
};
pub use timeouts::Timeouts;
pub use wake::{ProbeChoice, Wake};

use common::RevisionKey;
use common::host::HostPattern;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scaling to zero and back of one workload.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "zeroscale.dev",
    version = "v1alpha1",
    kind = "ZeroScaler",
    plural = "zeroscalers",
    singular = "zeroscaler",
    shortname = "zs",
    category = "all",
    label("app.kubernetes.io/name", "zeroscale"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target.name"),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".status.hostNames"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".status.min"),
    printcolumn(name = "Max", type_ = "integer", json_path = ".status.max"),
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.pods.ready"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.target.kind", priority = 1),
    printcolumn(name = "Service", type_ = "string", json_path = ".status.service", priority = 1),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    namespaced,
    status = "ZeroScalerStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ZeroScalerSpec {
    /// Workload that is scaled to zero while it has no traffic: any object of this namespace with a scale subresource
    /// and a label selector. Its replicas stay as they are at first, and are restored when this object is deleted.
    pub target: Target,
    /// Services that clients call, the main one first. Default: the Service with the target's name, else the oldest one
    /// that selects the target's pods; and every other Service with a cluster IP that selects the pods, if it leads to
    /// a port of the pods that the first one also leads to, or is of type LoadBalancer or NodePort. Other Services keep
    /// leading to the pods directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceChoice>,
    /// Hard limit of concurrent requests per pod, or of connections for protocol tcp. 0: no limit.
    #[serde(default)]
    pub concurrency: i32,
    /// Number of pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale: Scale,
    /// Other metrics that may require pods while the workload is awake, as `metrics` of an autoscaling/v2
    /// HorizontalPodAutoscaler. The largest result counts, including that of the request load.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "quantities::deserialize")]
    pub metrics: Vec<MetricSpec>,
    /// Stabilization and rate limits, as `behavior` of an autoscaling/v2 HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantities::deserialize")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
    /// Protocols of the Services' ports. Ports that are not listed have protocol auto.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Host names on the activators' shared ports that lead to this workload: a name, or `*.` and a domain for every
    /// name below it. The Services' own names need not be listed. A host belongs to the oldest object that claims it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Handling of requests while they wait, and readiness of pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wake: Wake,
    /// Time limits of the exchange between a client and a pod. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
    /// Minimum and maximum number of pods by time of day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// Suspends scaling and routing changes. Schedules, metrics and load take effect again afterwards. Requests are
    /// refused at once while a paused workload has no pods.
    #[serde(default)]
    pub paused: bool,
    /// Request to wake or to sleep once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
}

/// Reference to the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Group and version of the workload.
    #[serde(default = "Target::default_api_version")]
    pub api_version: String,
    /// Kind of the workload: Deployment, StatefulSet, or any other kind with a scale subresource. Other kinds need a
    /// role that allows the autoscaler to watch and scale them.
    #[serde(default = "Target::default_kind")]
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

impl Target {
    /// Returns a reference to the Deployment of this name.
    pub fn deployment(name: impl Into<String>) -> Self {
        Self { api_version: Self::default_api_version(), kind: Self::default_kind(), name: name.into() }
    }

    fn default_api_version() -> String {
        "apps/v1".to_owned()
    }

    fn default_kind() -> String {
        "Deployment".to_owned()
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::deployment("")
    }
}

/// Service that clients call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceChoice {
    /// Name of the Service.
    pub name: String,
    /// Creates the Service if it does not exist. An existing Service is taken over: its selector is stored in the
    /// status and cleared, its endpoints become the activators, and all of it is restored when this object is deleted.
    #[serde(default)]
    pub create: bool,
}

impl ZeroScaler {
    /// Returns namespace and name.
    pub fn key(&self) -> RevisionKey {
        RevisionKey::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Returns the condition of a type, if the status has it.
    pub fn condition(&self, type_: &str) -> Option<&conditions::Condition> {
        conditions::find(&self.status.as_ref()?.conditions, type_)
    }

    /// Reports whether this generation is configured and served, according to the status.
    pub fn is_ready(&self) -> bool {
        let observed = self.status.as_ref().and_then(|status| status.observed_generation);
        observed == self.metadata.generation
            && self.condition(conditions::READY).is_some_and(|condition| condition.status == "True")
    }
}

impl ZeroScalerSpec {
    /// Returns the spec of a Deployment with defaults, as the label `zeroscale.dev/enabled` implies.
    pub fn deployment(name: impl Into<String>) -> Self {
        Self { target: Target::deployment(name), ..Self::default() }
    }

    /// Returns the name of the first Service that clients call, as far as the spec defines it: the first listed one,
    /// else the target's name.
    pub fn service_name(&self) -> &str {
        self.services.first().map_or(&self.target.name, |service| &service.name)
    }

    /// Reports whether the spec names a Service: as one of its Services, or by the target's name.
    pub fn names_service(&self, name: &str) -> bool {
        match &self.services[..] {
            [] => self.target.name == name,
            named => named.iter().any(|service| service.name == name),
        }
    }

    /// Returns the valid hosts without repeats, in the order given.
    pub fn host_patterns(&self) -> Vec<HostPattern> {
        let mut patterns = Vec::new();
        for pattern in self.hosts.iter().filter_map(|host| HostPattern::parse(host)) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        patterns
    }

    /// Returns the entry of the Service's port with this name, else the entry of its number, else protocol auto.
    pub fn port(&self, name: &str, number: u16) -> Port {
        let entry = |wanted: &str| self.ports.iter().find(|port| port.name == wanted).cloned();
        entry(name).or_else(|| entry(&number.to_string())).unwrap_or_else(|| Port::auto(name))
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
