//! Front end for ZeroScalers: validates each one, sets a finalizer when it adopts a target, and gives the target back
//! at the end.

use crate::cluster::error::Error;
use crate::engine::front_end::{FrontEnd, Notices, ObjectLookup, ReconcileOutcome};
use crate::engine::parts::Parts;
use crate::engine::scaler::Scaled;
use crate::engine::workload::{NotReady, Path, Previous, Reading, Workload};
use crate::scale::CollectSpec;
use crate::standalone::admission::outcome::{AdmissionNotes, Rejection};
use crate::standalone::admission::validation::Validation;
use crate::standalone::cluster::Cluster;
use crate::standalone::finalizer::{self, has_finalizer};
use crate::standalone::reasons::list_names;
use crate::standalone::scalers::COMPONENT;
use crate::standalone::scalers::findings::{Finding, Findings};
use crate::standalone::traffic::path_proof;
use crate::standalone::traffic::paths::PathRequest;
use autoscaler_core::manual_requests::Step;
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_api::ZeroScaler;
use common_api::zeroscaler::{Request, RequestResult, RequestStatus};
use common_controller::{Failure, Severity};
use dashmap::DashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay before the next check of the path, while slices lead elsewhere.
const PATH_RECHECK: Duration = Duration::from_secs(1);
/// Maximum number of other controllers that a message names.
const OTHERS_NAMED: usize = 3;

/// Reads ZeroScalers and records the findings about them.
pub(crate) struct Workloads {
    pub(super) validation: Arc<Validation>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) parts: Parts,
    /// Start of each return of a target.
    pub(super) release_began: DashMap<Key, Instant>,
    /// Time when the Services of each ZeroScaler were first found handed over.
    pub(super) handed_over: DashMap<Key, Instant>,
}

/// ZeroScaler during a reconcile.
pub(crate) struct Subject {
    /// Newest version that was read or returned by a write.
    object: Arc<ZeroScaler>,
    findings: Findings,
    notes: AdmissionNotes,
}

impl Workloads {
    pub(crate) fn new(parts: &Parts, validation: Arc<Validation>, cluster: Arc<Cluster>) -> Self {
        let (release_began, handed_over) = (DashMap::new(), DashMap::new());
        Self { validation, cluster, parts: parts.clone(), release_began, handed_over }
    }

    /// Returns the activators and numbers to which the slices lead, or `None` if they do not lead to activators alone.
    fn reached_activators(&self, subject: &Subject) -> Option<Vec<(IpAddr, u16)>> {
        path_proof::leads_of(&self.cluster, uid_of(subject), subject.notes.services.as_ref()?)
    }
}

impl FrontEnd for Workloads {
    type Subject = Subject;

    /// The cause of a failed wake may be fixed outside of our view (an image, a ConfigMap). A client that waits for
    /// `Ready` must then not have to wait for the next request. Helm waits for five minutes by default.
    const REPORTS_GIVEN_UP_FOR: Duration = Duration::from_secs(240);

    fn find(&self, key: &Key, _: Timestamp) -> ObjectLookup<Subject> {
        let Some(object) = self.cluster.scalers.objects.get(key) else { return ObjectLookup::Gone };
        let (is_deleted, has_finalizer) = (object.metadata.deletion_timestamp.is_some(), has_finalizer(&object));
        let findings = self.cluster.scalers.findings(&object).unwrap_or_default();
        let subject = Subject { object, findings, notes: AdmissionNotes::default() };
        match (is_deleted, has_finalizer) {
            (false, _) => ObjectLookup::Present(subject),
            (true, true) => ObjectLookup::Leaving(subject),
            (true, false) => ObjectLookup::Over,
        }
    }

    fn read(&self, key: &Key, subject: &mut Subject, _: Timestamp) -> Result<Reading, Error> {
        match self.admit(key, &subject.object, &subject.findings) {
            Ok((workload, notes)) => {
                subject.notes = notes;
                Ok(Reading::Go(Box::new(workload)))
            }
            Err(Rejection::Refused(why, afterwards)) => Ok(Reading::Refuse(why, afterwards)),
            Err(Rejection::Failed(error)) => Err(error),
        }
    }

    fn refuse(&self, subject: &mut Subject, why: NotReady, _: Timestamp) {
        subject.findings.refused = Some(why.into());
        subject.findings.foreign_pods = None; // The foreign pods are unknown while the object is refused.
    }

    fn is_adopted(&self, subject: &Subject) -> bool {
        has_finalizer(&subject.object)
    }

    async fn adopt(&self, key: &Key, subject: &mut Subject, workload: &Workload) -> Result<(), Error> {
        self.cancel_release(key);
        let Subject { object, notes, findings } = subject;
        let is_new = !has_finalizer(object);
        *object = finalizer::set((&self.parts, &self.cluster), object, &notes.target, &workload.target).await?;
        if is_new {
            // Findings from the time with another target, or none, do not apply to this target.
            *findings = Findings::default();
        }
        Ok(())
    }

    fn previous(&self, subject: &Subject, now: Timestamp) -> Previous {
        subject.findings.previous(now)
    }

    fn probe_result(&self, _: &Key, subject: &Subject) -> ProbeResult {
        match self.reached_activators(subject) {
            Some(leads) => self.cluster.port_allocator.proof(uid_of(subject), &leads),
            None => ProbeResult::NotInPath,
        }
    }

    fn request_probe(&self, key: &Key, subject: &Subject) {
        if let Some(leads) = self.reached_activators(subject) {
            self.cluster.port_allocator.query_for_proof(key, uid_of(subject), &leads);
        }
        if subject.notes.services.is_some() {
            self.parts.writes.decisions.add_after(key.clone(), PATH_RECHECK);
        }
    }

    /// Queues the scaling event for the status controller, which reports it with the status.
    fn scaled(&self, key: &Key, _: &Subject, scaled: Scaled) {
        self.cluster.scalers.scaled(key, scaled);
    }

    fn warn(&self, subject: &Subject, reason: &'static str, message: String) {
        self.parts.writes.recorder.record(COMPONENT, &*subject.object, Severity::Warning, reason, message);
    }

    fn notice(&self, subject: &mut Subject, workload: &Workload, notices: Notices) {
        let Subject { findings, notes, .. } = subject;
        let ignored = notes.ignored.take().map(|message| Finding::new("AnnotationIgnored", message));
        findings.paused = workload.paused;
        findings.lost_hosts = notes.lost_hosts.take();
        findings.unmeasured = notices.unmeasured.map(|(reason, why)| Finding::new(reason, why)).or(ignored);
        findings.rejected_scale_up = notices.refused.map(|why| Finding::new("FailedUpdateScale", &*why));
        findings.contest = notices.contest.map(|message| Finding::new("ReplicasContested", message));
        // While the foreign pods are unknown, the finding stays.
        if let Some(others) = notices.foreign_controllers {
            findings.foreign_pods = foreign_pods(workload, &others);
        }
    }

    async fn route(&self, key: &Key, subject: &mut Subject, workload: &Workload, path: Path) -> Result<bool, Error> {
        let decider = &workload.parameters.decider;
        let spec = CollectSpec {
            stable_window: decider.stable_window,
            panic_window: decider.panic_window,
            aggregation: decider.aggregation,
            scrape_target: workload.parameters.scraped.then(|| workload.private_service.clone()),
        };
        self.parts.ports.collection.ensure(key, spec);
        let Subject { object, findings, notes } = subject;
        self.cluster.request_path(object, PathRequest { path, target: notes.target.clone() });
        findings.service = self.cluster.path(object).map(|path| path.service).unwrap_or_default();
        Ok(!findings.service.is_empty())
    }

    fn conclude(&self, subject: &mut Subject, outcome: &ReconcileOutcome, now: Timestamp) {
        let Subject { object, findings, notes } = subject;
        findings.conclude(outcome, now);
        findings.refused = notes.broken.take().map(Finding::from);
        if let Some((request, step)) = object.spec.request.as_ref().zip(outcome.step) {
            findings.request = Some(request_status(request, step));
        }
    }

    async fn finish(&self, _: &Key, subject: Subject, outcome: Result<(), Error>) -> Result<(), Error> {
        let Subject { object, mut findings, .. } = subject;
        if let Err(error) = &outcome {
            if error.is_temporary() {
                return outcome;
            }
            if !error.is_conflict() {
                self.parts.writes.recorder.record_error(COMPONENT, &*object, "InternalError", error.to_string());
            }
        }
        findings.finish(object.metadata.generation, self.parts.writes.clock.now());
        self.cluster.record_findings(&object, findings);
        outcome
    }

    async fn release(&self, key: &Key, subject: &Subject) -> Result<(), Error> {
        self.release_target(key, &subject.object).await
    }

    async fn abandon(&self, key: &Key, subject: &Subject) -> Result<(), Error> {
        self.end_release(key, &subject.object).await
    }

    fn forget(&self, key: &Key) {
        self.cluster.scalers.forget_findings(key);
        self.validation.forget(key);
        self.cancel_release(key);
        self.cluster.handovers.forget(key);
        self.cluster.forget_path(key);
    }
}

fn uid_of(subject: &Subject) -> &str {
    subject.object.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the finding about other controllers whose pods the target's selector also matches.
fn foreign_pods(workload: &Workload, others: &[String]) -> Option<Finding> {
    if others.is_empty() {
        return None;
    }
    let others = list_names(others, OTHERS_NAMED);
    let (kind, name) = (&workload.kind, workload.target_key.object.name());
    let selector = workload.selector().unwrap_or_default();
    let message = format!(
        "the selector of {kind} {name} ({selector}) also matches pods of {others}. Those pods are not counted and get no \
         requests, not even through Services that led to them before. Give them different labels, so that the selector \
         matches the pods of {kind} {name} only, and a Service of their own if clients need them"
    );
    Some(Finding::new("SelectorOverlaps", message))
}

fn request_status(request: &Request, step: Step) -> RequestStatus {
    let Request { state, at } = request.clone();
    let (result, obstacle) = match step {
        Step::Wake | Step::Sleep { .. } | Step::Wait => (RequestResult::Pending, None),
        Step::Over(Ok(())) => (RequestResult::Done, None),
        Step::Over(Err(obstacle)) => (RequestResult::Kept, Some(obstacle)),
    };
    let reason = obstacle.map(|obstacle| obstacle.reason().to_owned()).unwrap_or_default();
    let message = obstacle.map(|obstacle| obstacle.explain()).unwrap_or_default();
    RequestStatus { state, at, result, reason, message }
}
