//! Workloads as the dashboard tells of them, and as ZeroScalers do where it cannot be asked.

use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::{ACTIVE, READY};
use common_api::zeroscaler::{NextChange, State};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All workloads, and who was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listing {
    /// The replicas of the autoscaler; none: ZeroScalers alone were read.
    pub replicas: Vec<Replica>,
    /// The workloads.
    pub workloads: Vec<Summary>,
}

/// A replica of the autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// Whether it has answered.
    pub answered: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One workload. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// Namespace of its ZeroScaler.
    pub namespace: String,
    /// Name of its ZeroScaler.
    pub name: String,
    /// Kind and name of what is scaled.
    pub target: String,
    /// Asleep, Waking, Awake, FallingAsleep or Unknown.
    pub state: String,
    /// Whether everything stays as it is.
    pub paused: bool,
    /// Its pods.
    pub pods: Pods,
    /// Fewest pods now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,
    /// Most pods now; absent or 0: as many as the load asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Requests that wait for a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// The decision in a sentence.
    pub why: String,
    /// The condition Ready.
    pub ready: Ready,
    /// Its last wake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<Wake>,
    /// The replica that decides about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What sleeping has saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// When min and max change next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_change: Option<Value>,
    /// When its ZeroScaler was made; the dashboard does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

/// How many pods there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pods {
    /// Ready ones.
    pub ready: i64,
    /// All.
    pub actual: i64,
    /// Wanted ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i64>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ready {
    /// True, False or Unknown.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// One wake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wake {
    /// When it began.
    pub at: Option<Timestamp>,
    /// How long it took.
    pub seconds: f64,
    /// What it was made of, in order.
    pub phases: Vec<Phase>,
    /// `answered` or `failed`.
    pub outcome: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A part of a wake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    /// signal, scale, pod, probe or forward.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
}

/// What sleeping has saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// Seconds for which a pod did not run.
    pub pod_seconds: f64,
    /// What these cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
}

/// An amount of money.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Money {
    /// How much.
    pub amount: f64,
    /// What a pod costs in an hour.
    pub per_hour: f64,
    /// Of what.
    pub currency: String,
}

/// All about one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detail {
    /// What a list says of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its latest decision and what that was made from.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub decision: Value,
    /// The decisions before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Value>,
    /// Its last wakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<Wake>,
}

impl Summary {
    /// What a ZeroScaler says by itself.
    pub fn of(object: &ZeroScaler) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let target = &object.spec.target;
        let condition = |type_: &str| object.condition(type_).cloned();
        let ready = condition(READY).map(|is| Ready { status: is.status, reason: is.reason, message: is.message });
        let pods = status.pods.unwrap_or_default();
        let mut said = Self {
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
        said.why = match object.metadata.deletion_timestamp {
            Some(_) => "deleted: its replicas and its Service are being given back".to_owned(),
            None => said.reason(condition(ACTIVE).map(|is| is.message).unwrap_or_default(), status.state),
        };
        said
    }

    /// Why it is as it is, by its conditions.
    fn reason(&self, active: String, state: State) -> String {
        if self.ready.status == "False" {
            return self.ready.message.clone();
        }
        if self.paused || !active.is_empty() {
            return if active.is_empty() { "paused".to_owned() } else { active };
        }
        let words = match state {
            State::Asleep => "nobody calls it",
            State::Waking => "waiting for the first ready pods",
            State::Awake => "it is called, or was within its window",
            State::FallingAsleep => "nobody calls it; the last pods are leaving",
            State::Unknown => "no autoscaler has looked at it yet",
        };
        words.to_owned()
    }

    /// Whether something is wrong with it.
    pub fn is_wrong(&self) -> bool {
        self.ready.status == "False"
    }

    /// When min and max change next.
    pub fn next(&self) -> Option<NextChange> {
        serde_json::from_value(self.next_change.clone()?).ok()
    }
}
