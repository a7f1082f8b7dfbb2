//! Metrics of each decider, under upstream's names. A revision's handles are made once; a decision sets them.
//!
//! One is ours: `zeroscale_cold_start_phase_seconds` with the phase `scale`, from the stat that woke a revision to the answer
//! to the patch that it led to. The other phases are the activator's to tell, under the same name.

use super::scrapes::{Scrapes, Series};
use super::{PodCounts, SubjectLabels};
use autoscaler_core::decider::Recommendation;
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::Metrics;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::time::Instant;

type Float = Gauge<f64, AtomicU64>;

/// Labels of a revision's metrics, as upstream renders its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    k8s_namespace_name: String,
    kn_service_name: String,
    kn_configuration_name: String,
    kn_revision_name: String,
}

/// Labels of a phase of cold starts, as the activator's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    k8s_namespace_name: String,
    kn_revision_name: String,
    phase: &'static str,
}

/// The activator's bounds, seconds.
const COLD_START_BOUNDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// What a stat has asked for and nobody has done for so long was given up.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The families; one for each plane.
#[derive(Clone)]
pub struct DeciderMetrics {
    desired: Family<Labels, Gauge>,
    excess: Family<Labels, Float>,
    panic_mode: Family<Labels, Gauge>,
    concurrency: Trio,
    rps: Trio,
    requested: Family<Labels, Gauge>,
    pods: Pods<Family<Labels, Gauge>>,
    cold_start: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    scrapes: Scrapes,
}

/// A value for each state of pods.
#[derive(Clone)]
struct Pods<T> {
    ready: T,
    not_ready: T,
    pending: T,
    terminating: T,
}

impl<T> Pods<T> {
    fn map<U>(&self, f: impl Fn(&T) -> U) -> Pods<U> {
        Pods {
            ready: f(&self.ready),
            not_ready: f(&self.not_ready),
            pending: f(&self.pending),
            terminating: f(&self.terminating),
        }
    }
}

/// What a load is measured by: averages over both windows and the target.
#[derive(Clone)]
struct Trio {
    stable: Family<Labels, Float>,
    panic: Family<Labels, Float>,
    target: Family<Labels, Float>,
}

/// One revision's handles. Its series end when this is dropped.
pub struct RevisionMetrics {
    families: DeciderMetrics,
    labels: Labels,
    metric: ScalingMetric,
    desired: Gauge,
    excess: Float,
    panic_mode: Gauge,
    stable: Float,
    panic: Float,
    target: Float,
    requested: Gauge,
    pods: Pods<Gauge>,
    scale_phase: Histogram,
    scrapes: Arc<Series>,
    /// When a stat asked for pods where there were none.
    asked: Mutex<Option<Instant>>,
}

impl DeciderMetrics {
    /// Registers the families.
    pub fn new(metrics: &Metrics) -> Self {
        let float = |name: &str, help: &str| metrics.register(name, help, Family::default());
        let count = |name: &str, help: &str| metrics.register(name, help, Family::default());
        let trio = |what: &str, suffix: &str, words: &str| Trio {
            stable: float(
                &format!("kn_revision_{what}_stable{suffix}"),
                &format!("{words} of the whole revision, averaged over the stable window"),
            ),
            panic: float(
                &format!("kn_revision_{what}_panic{suffix}"),
                &format!("{words} of the whole revision, averaged over the panic window"),
            ),
            target: float(&format!("kn_revision_{what}_target{suffix}"), &format!("{words} that one pod should see")),
        };
        let scrapes = Scrapes::new();
        let what = "Seconds that scrapes of one revision took";
        metrics.register("kn_autoscaler_scrape_duration_seconds", what, scrapes.family());
        Self {
            scrapes,
            desired: count("kn_revision_pods_desired", "Pods that the autoscaler wants, min and max scale aside"),
            excess: float("kn_revision_capacity_excess", "Excess burst capacity; negative: activators are in the path"),
            panic_mode: count("kn_revision_panic_mode", "1 while the autoscaler panics, else 0"),
            concurrency: trio("concurrency", "", "Requests in flight"),
            rps: trio("rps", "_per_second", "Requests a second"),
            requested: count(
                "kn_revision_pods_requested",
                "Pods asked of the target, bounds and grace periods applied",
            ),
            pods: Pods {
                ready: count("kn_revision_pods_count", "Ready pods"),
                not_ready: count("kn_revision_pods_not_ready_count", "Pods that are not ready"),
                pending: count("kn_revision_pods_pending_count", "Pods that have not started yet"),
                terminating: count("kn_revision_pods_terminating_count", "Pods on their way out"),
            },
            cold_start: metrics.register_with_unit(
                "zeroscale_cold_start_phase",
                "Phases of cold starts",
                Unit::Seconds,
                Family::new_with_constructor(|| Histogram::new(COLD_START_BOUNDS)),
            ),
        }
    }

    /// Handles for one revision.
    pub fn revision(&self, key: &RevisionKey, labels: &SubjectLabels, metric: ScalingMetric) -> RevisionMetrics {
        let scrapes = self.scrapes.of(key.namespace(), labels);
        let labels = Labels {
            k8s_namespace_name: key.namespace().to_owned(),
            kn_service_name: labels.service.clone(),
            kn_configuration_name: labels.configuration.clone(),
            kn_revision_name: key.name().to_owned(),
        };
        let trio = self.trio(metric);
        RevisionMetrics {
            desired: self.desired.get_or_create_owned(&labels),
            excess: self.excess.get_or_create_owned(&labels),
            panic_mode: self.panic_mode.get_or_create_owned(&labels),
            stable: trio.stable.get_or_create_owned(&labels),
            panic: trio.panic.get_or_create_owned(&labels),
            target: trio.target.get_or_create_owned(&labels),
            requested: self.requested.get_or_create_owned(&labels),
            pods: self.pods.map(|family| family.get_or_create_owned(&labels)),
            scale_phase: self.cold_start.get_or_create_owned(&labels.scale_phase()),
            scrapes,
            asked: Mutex::default(),
            families: self.clone(),
            labels,
            metric,
        }
    }

    fn trio(&self, metric: ScalingMetric) -> &Trio {
        match metric {
            ScalingMetric::Concurrency => &self.concurrency,
            ScalingMetric::Rps => &self.rps,
        }
    }
}

impl Labels {
    fn scale_phase(&self) -> PhaseLabels {
        PhaseLabels {
            k8s_namespace_name: self.k8s_namespace_name.clone(),
            kn_revision_name: self.kn_revision_name.clone(),
            phase: "scale",
        }
    }
}

impl RevisionMetrics {
    /// A stat has come that asks for pods where there are none.
    pub fn asked(&self, now: Instant) {
        let mut asked = self.asked.lock();
        if asked.is_none_or(|at| now.saturating_duration_since(at) > GIVEN_UP) {
            *asked = Some(now);
        }
    }

    /// A change of the replicas was accepted that gives the target its first pods.
    pub fn woken(&self, now: Instant) {
        if let Some(asked) = self.asked.lock().take() {
            self.scale_phase.observe(now.saturating_duration_since(asked).as_secs_f64());
        }
    }

    /// Where the seconds of its scrapes are put.
    pub fn scrapes(&self) -> Histogram {
        self.scrapes.histogram()
    }

    /// Sets everything to what a decision says.
    pub fn set(&self, decision: &Recommendation) {
        self.desired.set(i64::from(decision.desired));
        self.excess.set(f64::from(decision.excess_burst_capacity));
        self.panic_mode.set(i64::from(decision.panicking));
        self.stable.set(decision.inputs.stable);
        self.panic.set(decision.inputs.panic);
        self.target.set(decision.inputs.target);
    }

    /// Sets the scale that was asked of the target.
    pub fn set_requested(&self, replicas: i32) {
        self.requested.set(i64::from(replicas));
    }

    /// Sets the pods in each state.
    pub fn set_pods(&self, counts: PodCounts) {
        let PodCounts { ready, not_ready, pending, terminating } = counts;
        for (gauge, count) in [
            (&self.pods.ready, ready),
            (&self.pods.not_ready, not_ready),
            (&self.pods.pending, pending),
            (&self.pods.terminating, terminating),
        ] {
            gauge.set(i64::from(count));
        }
    }
}

impl Drop for RevisionMetrics {
    fn drop(&mut self) {
        let families = &self.families;
        families.desired.remove(&self.labels);
        families.excess.remove(&self.labels);
        families.panic_mode.remove(&self.labels);
        families.requested.remove(&self.labels);
        families.cold_start.remove(&self.labels.scale_phase());
        families.pods.map(|family| family.remove(&self.labels));
        let trio = families.trio(self.metric);
        for family in [&trio.stable, &trio.panic, &trio.target] {
            family.remove(&self.labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "{k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\",\
                            kn_revision_name=\"web-1\"}";
    const CONFIGURATION: &str = "k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\"";

    /// Goal: every instrument of the reference (9.2 of the autoscaler, 2.12 of the reconcilers) is on the text page, with its
    /// name, type, labels and no others.
    #[test]
    fn instruments_are_upstreams() {
        let metrics = Metrics::default();
        let families = DeciderMetrics::new(&metrics);
        let labels = SubjectLabels { service: "shop".into(), configuration: "web".into() };
        let key = RevisionKey::new("ns", "web-1");
        let gauges = [
            "pods_desired",
            "capacity_excess",
            "panic_mode",
            "pods_requested",
            "pods_count",
            "pods_not_ready_count",
            "pods_pending_count",
            "pods_terminating_count",
        ];
        for (metric, trio) in [
            (ScalingMetric::Concurrency, ["concurrency_stable", "concurrency_panic", "concurrency_target"]),
            (ScalingMetric::Rps, ["rps_stable_per_second", "rps_panic_per_second", "rps_target_per_second"]),
        ] {
            let revision = families.revision(&key, &labels, metric);
            revision.scrapes().observe(0.3);
            let text = metrics.encode().expect("text");
            for name in gauges.iter().chain(&trio) {
                assert!(text.contains(&format!("# TYPE kn_revision_{name} gauge\n")), "{name} in\n{text}");
                assert!(text.contains(&format!("\nkn_revision_{name}{REVISION} 0")), "{name} in\n{text}");
            }
            let scrapes = "kn_autoscaler_scrape_duration_seconds";
            assert!(text.contains(&format!("# TYPE {scrapes} histogram\n")), "{text}");
            assert!(text.contains(&format!("\n{scrapes}_count{{{CONFIGURATION}}} 1\n")), "{text}");
            for (bound, count) in [("0.005", 0), ("0.25", 0), ("0.5", 1), ("10.0", 1), ("+Inf", 1)] {
                let bucket = format!("\n{scrapes}_bucket{{le=\"{bound}\",{CONFIGURATION}}} {count}\n");
                assert!(text.contains(&bucket), "{bucket} in\n{text}");
            }
            drop(revision);
            assert!(!metrics.encode().expect("text").contains("k8s_namespace_name"), "series end with the revision");
        }
    }
}
