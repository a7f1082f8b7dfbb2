//! `hpa_reconcile`: a series of complete reconciliations of one autoscaler.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::labels::Selector;
use hpa_core::options::{Gates, Options};
use hpa_core::pod::Pod;
use hpa_core::reconcile::{Autoscaler, Cluster, Scale, ScaleError, WriteResult, reconcile};
use hpa_core::request::{Reading, Request};
use hpa_core::selectors::Selectors;
use hpa_core::validate::validate;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use serde::Deserialize;
use serde_json::Value;

use super::hpa::{UsageCase, ValueCase, pods, reading};
use super::hpa_spec::HpaCase;
use super::hpa_status::{EventCase, StateCase, StatusCase, compare_events};
use crate::Mismatch;
use crate::compare::{Time, equal, parse};

#[derive(Deserialize)]
struct Case {
    controller: Controller,
    #[serde(with = "GatesCase")]
    gates: Gates,
    hpa: HpaCase,
    target_known: bool,
    api_valid: bool,
    other_hpas: Vec<OtherCase>,
    status: StatusCase,
    state: StateCase,
    steps: Vec<StepCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Controller {
    tolerance: f64,
    downscale_stabilization_seconds: u64,
    cpu_initialization_period_seconds: u64,
    initial_readiness_delay_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, remote = "Gates")]
struct GatesCase {
    #[serde(rename = "HPAScaleToZero")]
    scale_to_zero: bool,
    #[serde(rename = "HPAConfigurableTolerance")]
    configurable_tolerance: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherCase {
    name: String,
    selector: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepCase {
    at: Time,
    scale: ScaleCase,
    #[serde(deserialize_with = "pods")]
    pods: Vec<Pod>,
    resource_metrics: Option<Vec<UsageCase>>,
    pods_metrics: BTreeMap<String, Option<Vec<ValueCase>>>,
    object_metrics: Vec<ObjectMetricCase>,
    external_metrics: BTreeMap<String, Option<Vec<i64>>>,
    scale_update_results: Vec<UpdateResult>,
    status_update_fails: bool,
    want: Want,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum ScaleCase {
    Error { error: String },
    Scale { spec_replicas: i32, status_replicas: i32, selector: String },
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UpdateResult {
    Ok,
    Conflict,
    Error,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectMetricCase {
    metric: String,
    resource: String,
    name: String,
    value: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    error: bool,
    #[serde(rename = "note")]
    _note: Option<String>,
    scale_updates: Vec<i32>,
    scaled_to: Option<i32>,
    status: Option<StatusCase>,
    #[serde(default)]
    status_wording_only: bool,
    events: Vec<EventCase>,
    action: String,
    error_label: String,
    state: StateCase,
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let options = Options {
        tolerance: case.controller.tolerance,
        downscale_stabilization: Duration::from_secs(case.controller.downscale_stabilization_seconds),
        cpu_initialization_period: Duration::from_secs(case.controller.cpu_initialization_period_seconds),
        initial_readiness_delay: Duration::from_secs(case.controller.initial_readiness_delay_seconds),
    };
    let gates = case.gates;
    let (namespace, name) = (case.hpa.namespace.clone(), case.hpa.name.clone());
    let mut selectors = Selectors::default();
    selectors.register(&namespace, &name);
    for other in &case.other_hpas {
        selectors.register(&namespace, &other.name);
        let selector = Selector::parse(&other.selector).map_err(Mismatch::Broken)?;
        selectors.put(&namespace, &other.name, Some(selector));
    }
    let spec = case.hpa.spec()?;
    equal("api_valid", &case.api_valid, &validate(&spec, gates).is_empty())?;

    let mut status = case.status.status()?;
    let mut memory = case.state.memory();
    for (i, mut step) in case.steps.into_iter().enumerate() {
        let at = |field: &str| format!("steps[{i}].want.{field}");
        let mut responses = RecordedResponses {
            target_known: case.target_known,
            namespace: &namespace,
            pods: std::mem::take(&mut step.pods),
            selectors: &mut selectors,
            step,
            writes: Vec::new(),
            scaled_to: None,
        };
        let autoscaler = Autoscaler { namespace: &namespace, name: &name, spec: &spec, status: &status };
        let now = responses.step.at.0;
        let pass = reconcile(autoscaler, &options, gates, &mut memory, now, &mut responses);
        let Poll::Ready(finish) = pin!(pass).poll(&mut Context::from_waker(Waker::noop())) else {
            return Err(Mismatch::Broken("a recorded response is pending".to_owned()));
        };
        let fails = responses.step.status_update_fails;
        let written = finish.status.clone().filter(|_| !fails);
        let conclusion = finish.conclude(if fails { Err("Internal error occurred: boom".into()) } else { Ok(()) });

        let want = responses.step.want;
        equal(&at("error"), &want.error, &conclusion.error.is_some())?;
        equal(&at("scale_updates"), &want.scale_updates, &responses.writes)?;
        equal(&at("scaled_to"), &want.scaled_to, &responses.scaled_to)?;
        match (&want.status, &written) {
            (Some(wanted), Some(got)) => wanted.compare(&at("status"), got)?,
            (None, None) => {}
            _ if want.status_wording_only => {}
            (wanted, got) => equal(&at("status: whether it is written"), &wanted.is_some(), &got.is_some())?,
        }
        compare_events(&at("events"), &want.events, &conclusion.events)?;
        equal(&at("action"), want.action.as_str(), conclusion.action.as_str())?;
        equal(&at("error_label"), want.error_label.as_str(), conclusion.error_label.as_str())?;
        want.state.compare(&at("state"), &memory)?;
        status = written.unwrap_or(status);
    }
    Ok(())
}

/// Responses for a reconciliation, from one step of a case.
struct RecordedResponses<'a> {
    target_known: bool,
    namespace: &'a str,
    pods: Vec<Pod>,
    selectors: &'a mut Selectors,
    step: StepCase,
    writes: Vec<i32>,
    scaled_to: Option<i32>,
}

impl Cluster for RecordedResponses<'_> {
    async fn read_scale(&mut self, _: &CrossVersionObjectReference) -> Result<Scale, ScaleError> {
        if !self.target_known {
            return Err(ScaleError::Kind("no matches for the kind".to_owned()));
        }
        match self.step.scale.clone() {
            ScaleCase::Error { error } => Err(ScaleError::Read(error)),
            ScaleCase::Scale { spec_replicas, status_replicas, selector } => {
                Ok(Scale { spec_replicas, status_replicas, selector })
            }
        }
    }

    fn pods(&mut self, _: &Selector) -> Vec<Pod> {
        std::mem::take(&mut self.pods)
    }

    fn selectors<T>(&mut self, with: impl FnOnce(&mut Selectors) -> T) -> T {
        with(self.selectors)
    }

    async fn measure(&mut self, requests: &[Option<Request>]) -> Vec<Reading> {
        requests.iter().map(|request| self.read(request.clone())).collect()
    }

    async fn write_scale(&mut self, replicas: i32, _: u32) -> WriteResult {
        let result = self.step.scale_update_results.get(self.writes.len()).copied().unwrap_or(UpdateResult::Ok);
        self.writes.push(replicas);
        match result {
            UpdateResult::Ok => {
                self.scaled_to = Some(replicas);
                WriteResult::Written
            }
            UpdateResult::Conflict => WriteResult::Conflict("object was modified".into()),
            UpdateResult::Error => WriteResult::Failed("Internal error occurred: boom".into()),
        }
    }
}

impl RecordedResponses<'_> {
    fn read(&self, request: Option<Request>) -> Reading {
        match request {
            None => Reading::None,
            Some(Request::Usage { .. }) => reading(self.step.resource_metrics.clone(), Reading::Usage),
            Some(Request::Pods { metric, .. }) => {
                reading(self.step.pods_metrics.get(&metric).cloned().flatten(), Reading::Pods)
            }
            Some(Request::External { metric, .. }) => {
                reading(self.step.external_metrics.get(&metric).cloned().flatten(), Reading::External)
            }
            Some(Request::Object { object, metric, .. }) => {
                let (resource, name) = match &object {
                    None => ("namespaces", self.namespace),
                    Some(object) if object.kind == "Ingress" => ("ingresses.networking.k8s.io", object.name.as_str()),
                    Some(object) => ("services", object.name.as_str()),
                };
                let is_it = |m: &&ObjectMetricCase| m.metric == metric && m.resource == resource && m.name == name;
                let value = self.step.object_metrics.iter().find(is_it).and_then(|m| m.value);
                reading(value.map(|value| vec![value]), Reading::Object)
            }
        }
    }
}
