//! Periodic evaluation of one revision: its pods and metrics are read every period.
//!
//! The first evaluation is immediate. An evaluation that takes longer than a period delays the next, and missed ones
//! are skipped. Each evaluation lists the pods from the API server's cache, because a watch of all pods would burden
//! every autoscaler, even without such revisions.

use super::{MeasurementState, Sources, Subject};
use autoscaler_core::engine::blend::Measured;
use autoscaler_core::engine::plan::PERIOD;
use common::RevisionKey as Key;
use common_controller::Priority;
use common_runtime::failure_log::FailureLog;
use hpa::pods::parse_pod;
use hpa::sources::REQUEST_TIMEOUT;
use hpa_core::combine::combine;
use hpa_core::measure::MetricInputs;
use hpa_core::options::{Gates, Options};
use hpa_core::pod::Pod;
use hpa_core::request::{Request, request};
use hpa_core::tolerance::Tolerances;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::{MissedTickBehavior, interval, timeout};

pub(super) struct Evaluation {
    key: Key,
    subject: Subject,
    sources: Sources,
    state: Arc<Mutex<MeasurementState>>,
    requests: Vec<Option<Request>>,
}

impl Evaluation {
    pub(super) fn new(key: Key, subject: Subject, sources: Sources, state: Arc<Mutex<MeasurementState>>) -> Self {
        let requests = subject.plan.metrics.iter().map(|metric| request(metric, &subject.selector)).collect();
        Self { key, subject, sources, state, requests }
    }

    pub(super) async fn run(self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = FailureLog::for_operation(format!("a metric of {}", self.key));
        loop {
            ticks.tick().await;
            let measured = self.measure().await;
            match &measured.first_failure {
                Some((_, why)) => failures.failed(why),
                None => failures.recovered(),
            }
            self.state.lock().measured = Some(measured);
            self.sources.requests.add(self.key.clone(), Priority::Normal);
        }
    }

    async fn measure(&self) -> Measured {
        let (pods, answers) = tokio::join!(
            timeout(REQUEST_TIMEOUT, self.pods()),
            self.sources.metrics.readings(self.key.namespace(), &self.requests)
        );
        let pods = match pods {
            Ok(Ok(pods)) => pods,
            Ok(Err(error)) => return self.failed(format!("the pods cannot be listed: {error}")),
            Err(_) => return self.failed(format!("the pods were not listed within {REQUEST_TIMEOUT:?}")),
        };
        let foreign = self.sources.pods.foreign_pods(&self.key).unwrap_or_default().pods;
        let is_own = |pod: &str| foreign.iter().all(|foreign| foreign != pod);
        let pods: Vec<&Pod> = pods.iter().filter(|pod| is_own(&pod.name)).collect();
        let answers: Vec<_> = answers.into_iter().map(|(answer, _)| answer.retain_pods(is_own)).collect();
        let (plan, options) = (&self.subject.plan, Options::default());
        let inputs = MetricInputs {
            now: self.sources.clock.now(),
            options: &options,
            tolerances: Tolerances::from_behavior(plan.behavior.as_ref(), &options, Gates::default()),
            namespace: self.key.namespace(),
            spec_replicas: self.state.lock().replicas,
            status_replicas: i32::try_from(pods.len()).unwrap_or(i32::MAX),
            pods: &pods,
        };
        Measured::from_combined(&combine(&inputs, &plan.metrics, &answers))
    }

    async fn pods(&self) -> kube::Result<Vec<Pod>> {
        let api: Api<core::Pod> = Api::namespaced(self.sources.client.clone(), self.key.namespace());
        let cached = ListParams::default().labels(&self.subject.selector).match_any();
        Ok(api.list(&cached).await?.items.iter().map(parse_pod).collect())
    }

    /// Returns a result in which every metric has failed.
    fn failed(&self, why: String) -> Measured {
        let failed = u16::try_from(self.requests.len()).unwrap_or(u16::MAX);
        Measured { proposal: None, failed, first_failure: Some(("FailedListPods", why)) }
    }
}
