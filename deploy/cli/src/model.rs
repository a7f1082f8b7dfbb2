//! Workloads as the dashboard reports them, or as ZeroScalers describe them if the dashboard cannot be reached.

use common::RevisionKey;
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::{ACTIVE, READY};
use common_api::zeroscaler::{NextChange, SleepState};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All workloads and the replicas that reported them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listing {
    /// Replicas of the autoscaler. Empty if only ZeroScalers were read.
    pub replicas: Vec<Replica>,
    /// The workloads.
    pub workloads: Vec<Summary>,
}

/// A replica of the autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replica {
    /// Name.
    pub name: String,
    /// True if the replica responded.
    pub answered: bool,
    /// Reason why it did not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One workload. Unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// Namespace of the ZeroScaler.
    pub namespace: String,
    /// Name of the ZeroScaler.
    pub name: String,
    /// Kind and name of the scale target.
    pub target: String,
    /// Asleep, Waking, Awake, FallingAsleep or Unknown.
    pub state: String,
    /// Scaling and routing changes are suspended.
    pub paused: bool,
    /// Pod counts.
    pub pods: Pods,
    /// Minimum number of pods now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,
    /// Maximum number of pods now; absent or 0: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Requests waiting for a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// Reason for the current decision, as a sentence.
    pub why: String,
    /// Condition Ready.
    pub ready: Ready,
    /// Last wake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Wake>,
    /// Autoscaler replica that owns the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Savings from sleeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// Next scheduled change of min and max.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_change: Option<Value>,
    /// Creation time of the ZeroScaler; the dashboard does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

/// Pod counts of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pods {
    /// Ready pods.
    pub ready: i64,
    /// All pods.
    pub actual: i64,
    /// Desired pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i64>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ready {
    /// True, False or Unknown.
    pub status: String,
    /// Reason, as one word.
    pub reason: String,
    /// Message, as a sentence.
    pub message: String,
}

/// One wake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wake {
    /// Start time.
    pub at: Option<Timestamp>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Phases in order.
    pub phases: Vec<Phase>,
    /// `answered` or `failed`.
    pub outcome: String,
    /// Reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One phase of a wake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    /// signal, scale, pod, probe or forward.
    pub name: String,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Savings from sleeping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// Pod-seconds that did not run.
    pub pod_seconds: f64,
    /// Cost of those pod-seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
}

/// An amount of money.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Money {
    /// Amount.
    pub amount: f64,
    /// Cost of one pod per hour.
    pub per_hour: f64,
    /// Currency.
    pub currency: String,
}

/// Full description of one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detail {
    /// Summary, as in a list.
    #[serde(flatten)]
    pub summary: Summary,
    /// Latest decision and its inputs.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub decision: Value,
    /// Earlier decisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Value>,
    /// Recent wakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<Wake>,
}

impl Summary {
    /// Returns namespace and name.
    pub fn key(&self) -> RevisionKey {
        RevisionKey::new(&self.namespace, &self.name)
    }

    /// Builds the summary from a ZeroScaler alone.
    pub fn from_object(object: &ZeroScaler) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let target = &object.spec.target;
        let condition = |type_: &str| object.condition(type_).cloned();
        let ready = condition(READY).map(|c| Ready { status: c.status, reason: c.reason, message: c.message });
        let pods = status.pods.unwrap_or_default();
        let mut summary = Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            target: format!("{}/{}", target.kind, target.name),
            state: format!("{:?}", status.state),
            paused: object.spec.paused,
            pods: Pods { ready: pods.ready.into(), actual: pods.actual.into(), desired: status.desired.map(i64::from) },
            min: status.min.map(i64::from),
            max: status.max.map(i64::from),
            ready: ready.unwrap_or_default(),
            next_change: status.next_change.as_ref().and_then(|next| serde_json::to_value(next).ok()),
            created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            ..Self::default()
        };
        summary.why = match object.metadata.deletion_timestamp {
            Some(_) => "deleted: its replicas and its Service are being restored".to_owned(),
            None => summary.reason(condition(ACTIVE).map(|active| active.message).unwrap_or_default(), status.state),
        };
        summary
    }

    /// Returns the reason for the workload's state, taken from its conditions.
    fn reason(&self, active: String, state: SleepState) -> String {
        if self.ready.status == "False" {
            return self.ready.message.clone();
        }
        if self.paused || !active.is_empty() {
            return if active.is_empty() { "paused".to_owned() } else { active };
        }
        let words = match state {
            SleepState::Asleep => "no traffic",
            SleepState::Waking => "waiting for the first ready pods",
            SleepState::Awake => "traffic arrived within the window",
            SleepState::FallingAsleep => "no traffic; the last pods are terminating",
            SleepState::Unknown => "no autoscaler has processed this object yet",
        };
        words.to_owned()
    }

    /// Reports whether the condition Ready is False.
    pub fn is_wrong(&self) -> bool {
        self.ready.status == "False"
    }

    /// Returns the next scheduled change of min and max.
    pub fn next(&self) -> Option<NextChange> {
        serde_json::from_value(self.next_change.clone()?).ok()
    }
}
