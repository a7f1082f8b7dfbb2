//! Cluster with one autoscaler, for tests of whole reconciles.

use common::time::Timestamp;

use crate::defaults;
use crate::memory::{Memory, Recommendation};
use crate::options::{Gates, Options};
use crate::pod::{Container, Phase, Pod, Readiness};
use crate::quantity::{self, Format};
use crate::reconcile::{Autoscaler, Cluster, Finish, Scale, ScaleError, WriteResult, reconcile};
use crate::request::{Reading, Request};
use crate::selectors::Selectors;
use crate::status::{SCALED_TO_ZERO, time};
use crate::usage::{PodUsage, PodValue};
use common::labels::Selector;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, MetricSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::serde_json::{Value, from_value, json};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn quantity(milli: i64) -> Option<Quantity> {
    Some(quantity::to_api(milli, Format::Decimal))
}

/// Parses a metric in the form of the API.
pub(crate) fn metric(value: Value) -> MetricSpec {
    from_value(value).expect("a metric")
}

pub(crate) fn cpu(percent: i32) -> MetricSpec {
    metric(json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": percent}}}))
}

pub(crate) fn pods_metric(milli: i64) -> MetricSpec {
    metric(json!({"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"averageValue": quantity(milli)}}}))
}

pub(crate) fn object(kind: &str, milli: i64) -> MetricSpec {
    metric(json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"}, "metric": {"name": "hits"},
        "target": {"type": kind, "value": quantity(milli), "averageValue": quantity(milli)},
    }}))
}

/// Returns an external metric with these targets, if they are positive.
pub(crate) fn external(value: i64, average: i64) -> MetricSpec {
    let positive = |milli| quantity(milli).filter(|_| milli > 0);
    let target = json!({"value": positive(value), "averageValue": positive(average)});
    metric(json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}))
}

pub(crate) fn bogus() -> MetricSpec {
    metric(json!({"type": "Bogus"}))
}

pub(crate) fn pod_values(values: &[i64]) -> Vec<PodValue> {
    let value = |(i, value): (usize, &i64)| PodValue { pod: format!("p{i}"), value: *value, ..PodValue::default() };
    values.iter().enumerate().map(value).collect()
}

/// Autoscaler with its cluster.
pub(crate) struct Scenario {
    pub(crate) spec: HorizontalPodAutoscalerSpec,
    pub(crate) status: HorizontalPodAutoscalerStatus,
    pub(crate) gates: Gates,
    pub(crate) memory: Memory,
    pub(crate) now: Timestamp,
    pub(crate) scale: Result<Scale, ScaleError>,
    /// State letter (ready or unready), usage and request of each pod.
    pub(crate) pods: Vec<(char, i64, i64)>,
    pub(crate) values: Result<Vec<i64>, String>,
    pub(crate) total: Result<i64, String>,
    pub(crate) rival: Option<&'static str>,
    pub(crate) writes: Vec<WriteResult>,
}

/// Results of a reconcile, for assertions.
#[derive(Debug, PartialEq)]
pub(crate) struct PassResult {
    pub(crate) desired: i32,
    /// Sign and reason of each condition; `+` is True.
    pub(crate) conditions: Vec<String>,
    pub(crate) events: Vec<String>,
    pub(crate) written: bool,
}

/// Returns an autoscaler whose only recommendation is too old to count.
pub(crate) fn scenario((min, max): (i32, i32), current: i32, metrics: Vec<MetricSpec>) -> Scenario {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": min, "maxReplicas": max, "metrics": metrics});
    let old = Recommendation { replicas: 0, at: NOW - std::time::Duration::from_secs(9_000) };
    Scenario {
        spec: from_value(spec).expect("a spec"),
        status: from_value(json!({"currentReplicas": current, "desiredReplicas": current})).expect("a status"),
        gates: Gates::default(),
        memory: Memory { recommendations: vec![old], ..Memory::default() },
        now: NOW,
        scale: Ok(Scale { spec_replicas: current, status_replicas: current, selector: "app=web".into() }),
        pods: vec![('r', 0, 1000); usize::try_from(current).unwrap_or(0)],
        values: Ok(Vec::new()),
        total: Ok(0),
        rival: None,
        writes: Vec::new(),
    }
}

impl Scenario {
    pub(crate) fn using(mut self, usage: &[i64]) -> Self {
        self.pods = usage.iter().map(|usage| ('r', *usage, 1000)).collect();
        self
    }

    pub(crate) fn total(mut self, total: i64) -> Self {
        self.total = Ok(total);
        self
    }

    pub(crate) fn behaving(mut self) -> Self {
        defaults::fill_behavior(self.spec.behavior.get_or_insert_default());
        self
    }

    pub(crate) fn with_gate(mut self) -> Self {
        self.gates.scale_to_zero = true;
        self
    }

    /// Sets the stored condition of a target that this controller has scaled to zero.
    pub(crate) fn marked(mut self) -> Self {
        let condition = json!({"type": SCALED_TO_ZERO, "status": "True", "lastTransitionTime": time(NOW)});
        self.status.conditions = Some(vec![from_value(condition).expect("a condition")]);
        self
    }

    pub(crate) fn objects(&self) -> Vec<Pod> {
        let since = NOW - std::time::Duration::from_secs(3600);
        let pod = |(i, (state, _, request)): (usize, &(char, i64, i64))| Pod {
            name: format!("p{i}"),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            phase: Phase::Running,
            start_time: Some(since),
            ready: Some(Readiness { status: Some(*state != 'u'), last_transition: since }),
            containers: vec![Container {
                name: "app".into(),
                requests: (*request > 0).then(|| ("cpu".to_owned(), *request)).into_iter().collect(),
                ..Container::default()
            }],
            ..Pod::default()
        };
        self.pods.iter().enumerate().map(pod).collect()
    }

    pub(crate) fn usages(&self) -> Vec<PodUsage> {
        let usage = |(i, (_, usage, _)): (usize, &(char, i64, i64))| PodUsage {
            pod: format!("p{i}"),
            timestamp: NOW,
            window: std::time::Duration::from_secs(60),
            containers: vec![("app".to_owned(), [("cpu".to_owned(), *usage)].into())],
        };
        self.pods.iter().enumerate().filter(|(_, pod)| pod.1 >= 0).map(usage).collect()
    }

    pub(crate) fn read(&self, request: Option<Request>) -> Reading {
        let total = |of: fn(Vec<i64>) -> Reading| self.total.clone().map(|total| of(vec![total]));
        let reading = match request {
            None => Ok(Reading::None),
            Some(Request::Usage { .. }) => self.values.clone().map(|_| Reading::Usage(self.usages())),
            Some(Request::Pods { .. }) => self.values.clone().map(|values| Reading::Pods(pod_values(&values))),
            Some(Request::Object { .. }) => total(Reading::Object),
            Some(Request::External { .. }) => total(Reading::External),
        };
        reading.unwrap_or_else(Reading::Failed)
    }

    /// Runs one reconcile. Returns its result and the cluster afterwards.
    pub(crate) fn finish(&self, memory: &mut Memory) -> (Finish, FakeCluster<'_>) {
        let mut selectors = Selectors::default();
        selectors.register("shop", "web");
        if let Some(rival) = self.rival {
            selectors.register("shop", "rival");
            selectors.put("shop", "rival", Selector::parse(rival).ok());
        }
        let autoscaler = Autoscaler { namespace: "shop", name: "web", spec: &self.spec, status: &self.status };
        let mut cluster = FakeCluster { scenario: self, selectors, selected: None, written: Vec::new() };
        let options = Options::default();
        let pass = reconcile(autoscaler, &options, self.gates, memory, self.now, &mut cluster);
        let Poll::Ready(finish) = pin!(pass).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a scenario never waits")
        };
        (finish, cluster)
    }

    /// Runs one reconcile and stores its status.
    pub(crate) fn pass(&mut self) -> PassResult {
        let (status, mut memory) = (self.status.clone(), std::mem::take(&mut self.memory));
        let (finish, _) = self.finish(&mut memory);
        let written = finish.status.clone();
        let conclusion = finish.conclude(Ok(()));
        self.memory = memory;
        let is_written = written.is_some();
        self.status = written.unwrap_or(status);
        let summary = |c: &HorizontalPodAutoscalerCondition| {
            let status = if c.status == "True" { '+' } else { '-' };
            format!("{status}{}", c.reason.as_deref().unwrap_or_default())
        };
        PassResult {
            desired: self.status.desired_replicas,
            conditions: self.status.conditions.iter().flatten().map(summary).collect(),
            events: conclusion.events.into_iter().map(|e| format!("{}: {}", e.reason, e.message)).collect(),
            written: is_written,
        }
    }
}

/// Cluster of a scenario, with the calls of one reconcile.
pub(crate) struct FakeCluster<'a> {
    scenario: &'a Scenario,
    selectors: Selectors,
    /// Selector whose pods were listed.
    pub(crate) selected: Option<Selector>,
    /// Replicas of each attempt to write the scale.
    pub(crate) written: Vec<i32>,
}

impl Cluster for FakeCluster<'_> {
    async fn read_scale(&mut self, target: &CrossVersionObjectReference) -> Result<Scale, ScaleError> {
        assert_eq!(target, &self.scenario.spec.scale_target_ref);
        self.scenario.scale.clone()
    }

    fn pods(&mut self, selector: &Selector) -> Vec<Pod> {
        self.selected = Some(selector.clone());
        self.scenario.objects()
    }

    fn selectors<T>(&mut self, with: impl FnOnce(&mut Selectors) -> T) -> T {
        with(&mut self.selectors)
    }

    async fn measure(&mut self, requests: &[Option<Request>]) -> Vec<Reading> {
        requests.iter().map(|request| self.scenario.read(request.clone())).collect()
    }

    async fn write_scale(&mut self, replicas: i32, attempt: u32) -> WriteResult {
        self.written.push(replicas);
        assert_eq!(attempt as usize, self.written.len());
        self.scenario.writes.get(self.written.len() - 1).cloned().unwrap_or(WriteResult::Written)
    }
}
