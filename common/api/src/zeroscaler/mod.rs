//! ZeroScaler: one object beside an ordinary workload, which says how it sleeps and wakes.
//!
//! What stands here is what a user writes and what the owner answers. A field that is absent has one of two defaults:
//! the schema's own, which the API server fills in, or the cluster's (`config-autoscaler`), which [`scale`] resolves.
//! What is wrong with an object is said once, in [`checks`] and [`rules`], for the API server (schema and CEL) and for
//! the owner ([`validation`]) alike.
//!
//! Texts, as durations and hosts are, stay texts here and are read by whoever uses them: an object that an API server
//! has let through must never keep a whole list from being read.

pub mod answers;
pub mod backend;
pub mod checks;
pub mod columns;
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

pub use answers::{AnswerMode, Answers, FixedResponse, HeaderMatch, Page, Placeholder, RequestMatch, StaticAnswer};
pub use backend::{BackendStatus, ProbeHeader, ProbeKind, ProbeStatus};
pub use conditions::ConditionStatus;
pub use duration::DurationText;
pub use fallback::{Fallback, FallbackStatus, PortChoice};
pub use fault::Fault;
pub use ports::{Port, PortProtocol};
pub use request::{Request, RequestResult, RequestStatus};
pub use scale::{LoadTarget, Panic, Rates, Scale};
pub use schedule::Schedule;
pub use status::{
    Adopted, AdoptedService, InForce, NextChange, PodCounts, PortStatus, ServicePath, ServiceStatus, State,
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

/// How one workload sleeps and wakes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "zeroscale.dev",
    version = "v1alpha1",
    kind = "ZeroScaler",
    plural = "zeroscalers",
    singular = "zeroscaler",
    shortname = "zs",
    category = "all",
    namespaced,
    status = "ZeroScalerStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ZeroScalerSpec {
    /// The workload that sleeps while nobody calls it: anything of this namespace with a scale subresource and a label
    /// selector. It is taken as it is found, asleep or awake, and given back when this object goes.
    pub target: Target,
    /// The Services that clients call, the one that counts first first. Default: the Service with the target's name, otherwise
    /// the oldest that selects the target's pods; and every other Service with a cluster IP that selects them and leads to a
    /// port that the first one leads to, or is of type LoadBalancer or NodePort. Other Services go on leading to the pods
    /// directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceChoice>,
    /// Hard limit of requests that one pod runs at once; of connections where a port's protocol is tcp. 0: none.
    #[serde(default)]
    pub concurrency: i32,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale: Scale,
    /// What else asks for pods while the workload is awake, as `metrics` of an autoscaling/v2 HorizontalPodAutoscaler. The
    /// largest answer wins, that of the load of requests included.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "quantities::deserialize")]
    pub metrics: Vec<MetricSpec>,
    /// Stabilization and rate limits, as `behavior` of an autoscaling/v2 HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantities::deserialize")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
    /// Protocols of the Services' ports. Each port that is not listed is served with protocol auto.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Names on the activators' shared ports that lead here: a host name, or `*.` and a domain for every name below it.
    /// The Services' own names need not be listed. A host belongs to the oldest object that names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What happens to a request while it waits, and how a pod is proven ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wake: Wake,
    /// Bounds of the exchange between a client and a pod. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
    /// Fewest and most pods by the clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// Whether everything stays as it is: the replicas, and whom the Service leads to. What schedules, metrics and requests
    /// ask for counts again when it ends. Requests of a workload that has no pods meanwhile are refused at once.
    #[serde(default)]
    pub paused: bool,
    /// One wake or one sleep, carried out once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
}

/// Names the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Group and version of the workload.
    #[serde(default = "Target::default_api_version")]
    pub api_version: String,
    /// Kind of the workload: Deployment, StatefulSet, or any other with a scale subresource. One that is neither needs a
    /// role that allows the autoscaler to watch and scale it.
    #[serde(default = "Target::default_kind")]
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

impl Target {
    /// The Deployment of this name.
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

/// A Service that clients call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceChoice {
    /// Name of the Service.
    pub name: String,
    /// Whether to make the Service if there is none. One that exists is taken over: its selector is kept in the status and
    /// cleared, the activators stand in its endpoints, and everything is given back when this object goes.
    #[serde(default)]
    pub create: bool,
}

impl ZeroScaler {
    /// Namespace and name.
    pub fn key(&self) -> RevisionKey {
        RevisionKey::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    /// The condition of a type, if the status has it.
    pub fn condition(&self, type_: &str) -> Option<&conditions::Condition> {
        conditions::find(&self.status.as_ref()?.conditions, type_)
    }

    /// Whether the status says that this generation is configured and served.
    pub fn is_ready(&self) -> bool {
        let observed = self.status.as_ref().and_then(|status| status.observed_generation);
        observed == self.metadata.generation
            && self.condition(conditions::READY).is_some_and(|condition| condition.status == "True")
    }
}

impl ZeroScalerSpec {
    /// One for a Deployment, with defaults: what the label `zeroscale.dev/enabled` stands for.
    pub fn deployment(name: impl Into<String>) -> Self {
        Self { target: Target::deployment(name), ..Self::default() }
    }

    /// Name of the first Service that clients call, as far as the spec tells: the first that is named, else the target's name.
    pub fn service_name(&self) -> &str {
        self.services.first().map_or(&self.target.name, |service| &service.name)
    }

    /// Returns whether the spec names a Service: as one of its Services, or by the target's name.
    pub fn names_service(&self, name: &str) -> bool {
        match &self.services[..] {
            [] => self.target.name == name,
            named => named.iter().any(|service| service.name == name),
        }
    }

    /// The hosts that can be read, without repeats, in the order given.
    pub fn host_patterns(&self) -> Vec<HostPattern> {
        let mut patterns = Vec::new();
        for pattern in self.hosts.iter().filter_map(|host| HostPattern::parse(host)) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        patterns
    }

    /// What is said of the Service's port with this name and number: the entry of its name, else that of its number, else
    /// protocol auto.
    pub fn port(&self, name: &str, number: u16) -> Port {
        let entry = |wanted: &str| self.ports.iter().find(|port| port.name == wanted).cloned();
        entry(name).or_else(|| entry(&number.to_string())).unwrap_or_else(|| Port::auto(name))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
