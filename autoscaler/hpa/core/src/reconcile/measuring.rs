//! Middle steps of a reconcile: select the pods, evaluate the metrics, and apply stabilization and limits.

use super::writing::Plan;
use super::{Action, Cluster, ErrorLabel, MetricRun, Pass, Scale};
use crate::behavior;
use crate::combine::{Combined, CombinedOutcome, combine};
use crate::decision::Demand;
use crate::measure::MetricInputs;
use crate::pod::Pod;
use crate::request::{self, Reading};
use crate::spec;
use crate::status::{ABLE_TO_SCALE, Event, SCALING_ACTIVE, SCALING_LIMITED};
use crate::tolerance::Tolerances;
use common::labels::{Labels, Selector};
use k8s_openapi::api::autoscaling::v2::{MetricSpec, MetricStatus};
use std::collections::BTreeSet;

impl Pass<'_> {
    /// Returns the change that the metrics require, after stabilization and limits.
    pub(super) async fn measure(&mut self, scale: &Scale, cluster: &mut impl Cluster) -> Result<Plan, String> {
        let pods = self.select(scale, cluster)?;
        let spec = self.autoscaler.spec;
        let metrics = spec::metrics(spec).iter();
        let requests: Vec<_> = metrics.map(|metric| request::request(metric, &scale.selector)).collect();
        let readings = cluster.measure(&requests).await;
        let combined = self.combine_metrics(scale, &pods, &readings);
        self.conclusion.metrics = self.metric_runs(&combined);
        let events = combined.failures.iter().map(|f| Event::warning(f.reason, f.inner.clone()));
        self.conclusion.events.extend(events);
        let error = combined.error();
        let (proposed, metric) = match combined.outcome {
            CombinedOutcome::Proposed { replicas, metric } => {
                let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
                self.set(SCALING_ACTIVE, true, "ValidMetricFound", message);
                (replicas.max(0), metric)
            }
            CombinedOutcome::NoMetrics => (0, String::new()),
            CombinedOutcome::Failed => {
                if let Some(first) = combined.failures.first() {
                    let message = format!("the HPA was unable to compute the replica count: {}", first.inner);
                    self.set(SCALING_ACTIVE, false, first.reason, message);
                }
                return Err(self.fail_without_proposal(scale, &error.unwrap_or_default(), combined.statuses));
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
        let mut desired = self.normalize(current, proposed);
        let min = spec::min_replicas(spec);
        if current == 0 && desired < min {
            desired = min;
            if reason.is_empty() {
                reason = "Current number of replicas below Spec.MinReplicas".into();
            }
        }
        Ok(Plan { current, desired, reason, metrics: combined.statuses, partial_error: error })
    }

    /// Returns the pods that the scale's selector matches, if no other autoscaler selects one of them.
    fn select(&mut self, scale: &Scale, cluster: &mut impl Cluster) -> Result<Vec<Pod>, String> {
        if scale.selector.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            let reasons = ("SelectorRequired", "InvalidSelector");
            return Err(self.fail_without_selector(scale, reasons, "selector is required", message));
        }
        let selector = Selector::parse(&scale.selector).map_err(|e| {
            let e = format!("couldn't convert selector into a corresponding internal selector object: {e}");
            self.fail_without_selector(scale, ("InvalidSelector", "InvalidSelector"), &e, &e)
        })?;
        let (namespace, name) = (self.autoscaler.namespace, self.autoscaler.name);
        let mut pods = cluster.pods(&selector);
        pods.retain(|pod| selector.matches(&pod.labels));
        let label_sets: BTreeSet<&Labels> = pods.iter().map(|pod| &pod.labels).collect();
        let rivals: Vec<String> = cluster.selectors(|selectors| {
            selectors.put(namespace, name, Some(selector));
            let rivals = selectors.selecting(namespace, &label_sets).into_iter();
            rivals.map(|name| format!("{namespace}/{name}")).collect()
        });
        if rivals.len() > 1 {
            let (selector, rivals) = (&scale.selector, rivals.join(" "));
            let e = format!("pods by selector {selector} are controlled by multiple HPAs: [{rivals}]");
            return Err(self.fail_without_selector(scale, ("AmbiguousSelector", "AmbiguousSelector"), &e, &e));
        }
        Ok(pods)
    }

    /// Ends the reconcile with a condition about an unusable selector. Returns the error.
    fn fail_without_selector(
        &mut self,
        scale: &Scale,
        (event, reason): (&'static str, &str),
        error: &str,
        message: &str,
    ) -> String {
        self.conclusion.events.push(Event::warning(event, error.to_owned()));
        self.set(SCALING_ACTIVE, false, reason, message);
        self.fail_without_proposal(scale, error, Vec::new())
    }

    /// Ends the reconcile without a proposal: the known numbers go into the status, the scale stays. Returns the error.
    fn fail_without_proposal(&mut self, scale: &Scale, error: &str, metrics: Vec<MetricStatus>) -> String {
        self.set_numbers(scale.spec_replicas, self.status.desired_replicas, metrics);
        let reference = self.reference();
        self.last_event = Some(Event::warning("FailedComputeMetricsReplicas", error.to_owned()));
        format!("failed to compute desired number of replicas based on listed metrics for {reference}: {error}")
    }

    fn combine_metrics(&self, scale: &Scale, pods: &[Pod], readings: &[Reading]) -> Combined {
        let spec = self.autoscaler.spec;
        let pods: Vec<&Pod> = pods.iter().collect();
        let inputs = MetricInputs {
            now: self.now,
            options: self.options,
            tolerances: Tolerances::from_behavior(spec.behavior.as_ref(), self.options, self.gates),
            namespace: self.autoscaler.namespace,
            spec_replicas: scale.spec_replicas,
            status_replicas: scale.status_replicas,
            pods: &pods,
        };
        combine(&inputs, spec::metrics(spec), readings)
    }

    /// Applies stabilization and limits, and sets the conditions about them.
    fn normalize(&mut self, current: i32, proposed: i32) -> i32 {
        let spec = self.autoscaler.spec;
        let demand = Demand { current, proposed, min: spec::min_replicas(spec), max: spec.max_replicas };
        let decision = match self.rules() {
            Some(rules) => rules.decide(self.memory, &demand, self.now),
            None => {
                let window = self.options.downscale_stabilization;
                behavior::decide_without_behavior(self.memory, &demand, window, self.now)
            }
        };
        let (reason, message) = decision.stabilization.reason_and_message();
        self.set(ABLE_TO_SCALE, true, reason, message);
        let (reason, message) = decision.limit.reason_and_message();
        self.set(SCALING_LIMITED, decision.is_limited(), reason, message);
        decision.replicas
    }

    /// Returns the counts for the controller's own metrics. The direction of a proposal is relative to the replicas in
    /// the stored status.
    fn metric_runs(&self, combined: &Combined) -> Vec<MetricRun> {
        let before = self.autoscaler.status.current_replicas.unwrap_or(0);
        let mut failures = combined.failures.iter();
        let metrics = spec::metrics(self.autoscaler.spec).iter().zip(&combined.proposals);
        let run = |(metric, proposal): (&MetricSpec, &Option<i32>)| {
            let (action, error) = match proposal {
                Some(replicas) => (Action::between(before, *replicas), ErrorLabel::None),
                None if failures.next().is_some_and(|f| f.reason == "InvalidMetricSourceType") => {
                    (Action::None, ErrorLabel::Spec)
                }
                None => (Action::None, ErrorLabel::Internal),
            };
            MetricRun { kind: metric.type_.clone(), proposed: *proposal, action, error }
        };
        metrics.map(run).collect()
    }
}
