//! Middle steps: select the pods, evaluate the metrics, and apply stabilization and limits.

use super::writing::{self, Plan};
use super::{Action, ErrorLabel, Finish, MetricRun, Pass, Scale, Step};
use crate::behavior;
use crate::combine::{Combined, CombinedOutcome, combine};
use crate::decision::Demand;
use crate::measure::MetricInputs;
use crate::pod::Pod;
use crate::request::{self, Reading, Request};
use crate::selectors::Selectors;
use crate::spec;
use crate::status::{ABLE_TO_SCALE, Event, SCALING_ACTIVE, SCALING_LIMITED};
use crate::tolerance::Tolerances;
use common::labels::{Labels, Selector};
use k8s_openapi::api::autoscaling::v2::MetricStatus;
use std::collections::BTreeSet;

/// Step: list the pods that [`SelectPods::selector`] matches in the autoscaler's namespace.
#[derive(Debug)]
pub struct SelectPods<'a> {
    pass: Pass<'a>,
    scale: Scale,
    selector: Selector,
}

/// Step: send [`Measure::requests`].
#[derive(Debug)]
pub struct Measure<'a> {
    pass: Pass<'a>,
    scale: Scale,
    pods: Vec<Pod>,
}

/// Parses the scale's selector.
pub(super) fn select(pass: Pass<'_>, scale: Scale) -> Step<'_> {
    if scale.selector.is_empty() {
        let message = "the HPA target's scale is missing a selector";
        return unselected(pass, &scale, ("SelectorRequired", "InvalidSelector"), "selector is required", message);
    }
    match Selector::parse(&scale.selector) {
        Ok(selector) => Step::SelectPods(SelectPods { pass, scale, selector }),
        Err(e) => {
            let e = format!("couldn't convert selector into a corresponding internal selector object: {e}");
            unselected(pass, &scale, ("InvalidSelector", "InvalidSelector"), &e, &e)
        }
    }
}

/// Sets the condition about an unusable selector.
fn unselected<'a>(
    mut pass: Pass<'a>,
    scale: &Scale,
    (event, reason): (&'static str, &str),
    error: &str,
    message: &str,
) -> Step<'a> {
    pass.events.push(Event::warning(event, error.to_owned()));
    pass.set(SCALING_ACTIVE, false, reason, message);
    Step::Finish(unmeasured(pass, scale, error, Vec::new()))
}

/// Ends the reconcile without a proposal: known numbers are reported, and the scale stays.
fn unmeasured(mut pass: Pass<'_>, scale: &Scale, error: &str, metrics: Vec<MetricStatus>) -> Finish {
    let desired = pass.status.desired_replicas;
    pass.report(scale.spec_replicas, desired, metrics);
    let reference = pass.reference();
    let returned =
        format!("failed to compute desired number of replicas based on listed metrics for {reference}: {error}");
    Finish::failed(
        pass,
        returned,
        ErrorLabel::Internal,
        Some(Event::warning("FailedComputeMetricsReplicas", error.to_owned())),
    )
}

impl<'a> SelectPods<'a> {
    /// Returns the selector of the target's pods.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Continues with the pods of the namespace; pods that are not selected are ignored.
    pub fn resume(self, mut pods: Vec<Pod>, selectors: &mut Selectors) -> Step<'a> {
        let Self { pass, scale, selector } = self;
        let (namespace, name) = (pass.autoscaler.namespace, pass.autoscaler.name);
        pods.retain(|pod| selector.matches(&pod.labels));
        selectors.put(namespace, name, Some(selector));
        let label_sets: BTreeSet<&Labels> = pods.iter().map(|pod| &pod.labels).collect();
        let rivals = selectors.selecting(namespace, &label_sets).into_iter();
        let rivals: Vec<String> = rivals.map(|name| format!("{namespace}/{name}")).collect();
        if rivals.len() > 1 {
            let (selector, rivals) = (&scale.selector, rivals.join(" "));
            let e = format!("pods by selector {selector} are controlled by multiple HPAs: [{rivals}]");
            return unselected(pass, &scale, ("AmbiguousSelector", "AmbiguousSelector"), &e, &e);
        }
        Step::Measure(Measure { pass, scale, pods })
    }
}

impl<'a> Measure<'a> {
    /// Returns the request for each metric, in order; `None` if a request is useless.
    pub fn requests(&self) -> Vec<Option<Request>> {
        let metrics = spec::metrics(self.pass.autoscaler.spec);
        metrics.iter().map(|metric| request::request(metric, &self.scale.selector)).collect()
    }

    /// Continues with the responses, in the order of the requests.
    pub fn resume(self, readings: &[Reading]) -> Step<'a> {
        let Self { mut pass, scale, pods } = self;
        let combined = measured(&pass, &scale, &pods, readings);
        let spec = pass.autoscaler.spec;
        pass.runs = runs(&pass, &combined);
        let events = combined.failures.iter().map(|f| Event::warning(f.reason, f.inner.clone()));
        pass.events.extend(events);
        let error = combined.error();
        let (proposed, metric) = match combined.outcome {
            CombinedOutcome::Proposed { replicas, metric } => {
                let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
                pass.set(SCALING_ACTIVE, true, "ValidMetricFound", message);
                (replicas.max(0), metric)
            }
            CombinedOutcome::NoMetrics => (0, String::new()),
            CombinedOutcome::Failed => {
                if let Some(first) = combined.failures.first() {
                    let message = format!("the HPA was unable to compute the replica count: {}", first.inner);
                    pass.set(SCALING_ACTIVE, false, first.reason, message);
                }
                return Step::Finish(unmeasured(pass, &scale, &error.unwrap_or_default(), combined.statuses));
            }
        };
        let current = scale.spec_replicas;
        let mut reason = if proposed > current {
            format!("{metric} above target")
        } else if proposed < current {
            "All metrics below target".to_owned()
        } else {
            String::new()
        };
        let mut desired = normalize(&mut pass, current, proposed);
        let min = spec::min_replicas(spec);
        if current == 0 && desired < min {
            desired = min;
            if reason.is_empty() {
                reason = "Current number of replicas below Spec.MinReplicas".into();
            }
        }
        let plan = Plan { current, desired, reason, metrics: combined.statuses, partial_error: error };
        writing::carry_out(pass, plan)
    }
}

fn measured(pass: &Pass<'_>, scale: &Scale, pods: &[Pod], readings: &[Reading]) -> Combined {
    let spec = pass.autoscaler.spec;
    let pods: Vec<&Pod> = pods.iter().collect();
    let inputs = MetricInputs {
        now: pass.now,
        options: pass.options,
        tolerances: Tolerances::from_behavior(spec.behavior.as_ref(), pass.options, pass.gates),
        namespace: pass.autoscaler.namespace,
        spec_replicas: scale.spec_replicas,
        status_replicas: scale.status_replicas,
        pods: &pods,
    };
    combine(&inputs, spec::metrics(spec), readings)
}

/// Applies stabilization and limits, and sets the conditions about them.
fn normalize(pass: &mut Pass<'_>, current: i32, proposed: i32) -> i32 {
    let spec = pass.autoscaler.spec;
    let demand = Demand { current, proposed, min: spec::min_replicas(spec), max: spec.max_replicas };
    let decision = match pass.rules() {
        Some(rules) => rules.decide(pass.memory, &demand, pass.now),
        None => behavior::decide_without(pass.memory, &demand, pass.options.downscale_stabilization, pass.now),
    };
    let (reason, message) = decision.stabilization.texts();
    pass.set(ABLE_TO_SCALE, true, reason, message);
    let (reason, message) = decision.limit.texts();
    pass.set(SCALING_LIMITED, decision.is_limited(), reason, message);
    decision.replicas
}

/// Returns the counts for the controller's own metrics. The direction of a proposal is relative to the replicas in the
/// stored status.
fn runs(pass: &Pass<'_>, combined: &Combined) -> Vec<MetricRun> {
    let before = pass.autoscaler.status.current_replicas.unwrap_or(0);
    let mut failures = combined.failures.iter();
    let metrics = spec::metrics(pass.autoscaler.spec).iter().zip(&combined.proposals);
    metrics
        .map(|(metric, proposal)| {
            let (action, error) = match proposal {
                Some(replicas) => (Action::between(before, *replicas), ErrorLabel::None),
                None if failures.next().is_some_and(|f| f.reason == "InvalidMetricSourceType") => {
                    (Action::None, ErrorLabel::Spec)
                }
                None => (Action::None, ErrorLabel::Internal),
            };
            MetricRun { kind: metric.type_.clone(), proposed: *proposal, action, error }
        })
        .collect()
}
