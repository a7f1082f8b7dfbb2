//! Task that carries out the decisions of [`Election`]: watches Leases, writes them, publishes their holders.

use super::writers::Writers;
use super::{Ownership, Timing, View};
use crate::api_server;
use crate::failure_log::FailureLog;
use crate::watching;
use common::election::{Election, Op, Record};
use common::ownership::Holder;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Annotation by which a process asks the holder of a lease to hand it over.
const CLAIM: &str = "zeroscale.dev/claim";
/// Longest wait for the response to one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for writes in flight before a lease is handed over or released. If it is exceeded, the lease stays in
/// our name: it is resumed or expires.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for the release of all leases at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Leases and identity of a candidate.
#[derive(Clone, Debug)]
pub struct ElectorOptions {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Names of the Leases, in order of the buckets.
    pub names: Vec<String>,
    /// Identity that is written on the leases. Other processes can reach the holder only if this is a [`Holder`].
    pub identity: String,
    /// Times of renewal, step-down and takeover.
    pub timing: Timing,
    /// Enables fair shares: claims leases of larger holders, and yields to claims.
    pub balance: bool,
}

/// Watches the leases at once, and competes for them once `ready` completes. On `shutdown` it releases all of them, and
/// then the returned task ends.
///
/// Must be called within a tokio runtime.
pub fn start(
    client: Client,
    options: ElectorOptions,
    ready: impl Future<Output = ()> + Send + 'static,
    shutdown: CancellationToken,
) -> (Ownership, JoinHandle<()>) {
    let views = Arc::new(RwLock::new(vec![View::default(); options.names.len()]));
    let writers = Writers::new(options.names.len());
    let (changed, changes) = watch::channel(0);
    let now = Instant::now().into_std();
    let me = options.identity.clone();
    let elector = Elector {
        election: Election::new(me, options.names.len(), options.timing, options.balance, now),
        objects: vec![None; options.names.len()],
        failures: options.names.iter().map(|name| FailureLog::for_operation(format!("the lease {name}"))).collect(),
        leases: Api::namespaced(client, &options.namespace),
        views: views.clone(),
        writers: writers.clone(),
        changed,
        options,
    };
    (Ownership { views, writers, changes }, tokio::spawn(elector.run(ready, shutdown)))
}

struct Elector {
    options: ElectorOptions,
    election: Election,
    /// Leases as last observed, so that a write keeps the fields of other writers.
    objects: Vec<Option<Lease>>,
    /// Failures of each Lease.
    failures: Vec<FailureLog>,
    leases: Api<Lease>,
    views: Arc<RwLock<Vec<View>>>,
    writers: Writers,
    changed: watch::Sender<u64>,
}

/// Finished operation, with the Lease in its response.
struct OpResult {
    lease: usize,
    op: Op,
    at: Instant,
    response: kube::Result<Option<Lease>>,
}

impl Elector {
    async fn run(mut self, ready: impl Future<Output = ()>, shutdown: CancellationToken) {
        let (mut ready, mut is_ready) = (pin!(ready), false);
        let mut events = watching::watch(self.leases.clone(), watcher::Config::default());
        let mut writes = FuturesUnordered::new();
        let mut listed = HashSet::new();
        loop {
            let now = Instant::now().into_std();
            for (lease, op) in if is_ready { self.election.due(now) } else { Vec::new() } {
                writes.push(self.perform(lease, op).boxed());
            }
            self.publish();
            let wake = self.election.wake(Instant::now().into_std()).filter(|_| is_ready).map(Instant::from_std);
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = &mut ready, if !is_ready => is_ready = true,
                Some(result) = writes.next() => self.settle(result),
                event = events.next() => match event {
                    Some(event) => self.handle(event, &mut listed),
                    None => break, // A watch does not end.
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        // Writes in flight may make us a holder: await them, so that those leases are released too.
        let finish = async {
            while let Some(result) = writes.next().await {
                self.settle(result);
            }
            let releases: FuturesUnordered<_> = self
                .election
                .release(Instant::now().into_std())
                .into_iter()
                .map(|(lease, op)| self.perform(lease, op))
                .collect();
            self.publish();
            releases.collect::<Vec<_>>().await
        };
        if timeout(RELEASE_TIMEOUT, finish).await.is_err() {
            tracing::warn!("leases were not released in time; other replicas take over when they expire");
        }
        for view in self.views.write().iter_mut() {
            view.until = None;
        }
        self.changed.send_modify(|version| *version += 1);
    }

    fn handle(&mut self, event: watcher::Event<Lease>, listed: &mut HashSet<usize>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                if let Some(lease) = self.index(&object) {
                    listed.insert(lease);
                    self.observe(lease, Some(object));
                }
            }
            watcher::Event::Delete(object) => {
                if let Some(lease) = self.index(&object) {
                    self.observe(lease, None);
                }
            }
            watcher::Event::InitDone => {
                for missing in (0..self.objects.len()).filter(|lease| !listed.contains(lease)) {
                    self.observe(missing, None);
                }
            }
        }
    }

    fn index(&self, object: &Lease) -> Option<usize> {
        let name = object.metadata.name.as_deref()?;
        self.options.names.iter().position(|known| known == name)
    }

    fn observe(&mut self, lease: usize, object: Option<Lease>) {
        self.election.observe(lease, object.as_ref().map(record), Instant::now().into_std(), &mut rand::rng());
        self.objects[lease] = object;
    }

    fn settle(&mut self, result: OpResult) {
        let (now, rng) = (Instant::now().into_std(), &mut rand::rng());
        let OpResult { lease, op, at, response } = result;
        match (op, response) {
            (Op::Create | Op::Write { .. }, Ok(Some(object))) => {
                self.failures[lease].recovered();
                self.election.written(lease, record(&object), at.into_std(), now, rng);
                self.objects[lease] = Some(object);
            }
            (Op::Read, Ok(object)) => {
                self.election.read(lease, object.as_ref().map(record), now, rng);
                self.objects[lease] = object;
            }
            (_, Ok(_)) => self.election.done(lease),
            // A 404 on create means that the namespace is missing; reading again would not help.
            (Op::Create, Err(kube::Error::Api(status))) if status.code == 409 => self.election.conflict(lease),
            (Op::Write { .. }, Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                self.election.conflict(lease);
            }
            (op, Err(error)) => {
                if api_server::is_reported(&error) {
                    let lease = &self.options.names[lease];
                    tracing::debug!(%lease, ?op, %error, "an operation on the lease failed");
                } else {
                    self.failures[lease].failed(&error);
                }
                self.election.failed(lease, now);
            }
        }
    }

    /// Sends one operation. The future owns its data, so several can run at once. A write that gives up our lease first
    /// waits until no other write is in flight under the lease. None can begin meanwhile: in [`Election`] the lease is
    /// no longer ours, and this must have been [published](Self::publish) before the future is polled.
    fn perform(&self, lease: usize, op: Op) -> impl Future<Output = OpResult> + Send + use<> {
        let (leases, name) = (self.leases.clone(), self.options.names[lease].clone());
        let object = self.compose(lease, &op);
        let me = self.options.identity.clone();
        let gives_up_lease = matches!(&op, Op::Write { holder, .. } if *holder != me);
        let writers = self.writers.clone();
        let failed = |text: String| Err(kube::Error::Service(text.into()));
        async move {
            if gives_up_lease && timeout(IDLE_TIMEOUT, writers.idle(lease)).await.is_err() {
                let message = format!("the lease is kept, because a write under it has not ended in {IDLE_TIMEOUT:?}");
                // An API error, because `is_reported` would suppress other kinds here.
                let response = Err(kube::Error::Api(Status::failure(&message, "Kept").boxed()));
                return OpResult { lease, op, at: Instant::now(), response };
            }
            let at = Instant::now();
            let write = async {
                match &op {
                    Op::Create => leases.create(&PostParams::default(), &object).await.map(Some),
                    Op::Write { .. } => leases.replace(&name, &PostParams::default(), &object).await.map(Some),
                    Op::Claim => {
                        let patch = serde_json::json!({"metadata": {"annotations": {CLAIM: me}}});
                        leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(Some)
                    }
                    Op::Read => leases.get_opt(&name).await,
                }
            };
            let response = timeout(WRITE_TIMEOUT, write).await;
            let response = response.unwrap_or_else(|_| failed(format!("no response within {WRITE_TIMEOUT:?}")));
            OpResult { lease, op, at, response }
        }
    }

    /// Returns the object that an operation writes; unrelated fields stay as last observed.
    fn compose(&self, lease: usize, op: &Op) -> Lease {
        let (version, holder, transition) = match op {
            Op::Create => (None, self.options.identity.clone(), true),
            Op::Write { version, holder, transition } => (Some(version.clone()), holder.clone(), *transition),
            Op::Claim | Op::Read => return Lease::default(),
        };
        let mut object = self.objects[lease].clone().filter(|_| version.is_some()).unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.options.names[lease].clone()), ..ObjectMeta::default() },
            spec: None,
        });
        object.metadata.resource_version = version;
        object.metadata.managed_fields = None;
        object.annotations_mut().remove(CLAIM);
        let now = MicroTime(jiff::Timestamp::now());
        let before = object.spec.take().unwrap_or_default();
        let released = holder.is_empty();
        let seconds = if released { 1 } else { self.options.timing.lease_duration.as_secs() };
        object.spec = Some(LeaseSpec {
            holder_identity: Some(holder),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: if transition || released { Some(now.clone()) } else { before.acquire_time },
            renew_time: Some(now),
            lease_transitions: Some(match before.lease_transitions {
                None => 0,
                Some(count) => count.saturating_add(i32::from(transition)),
            }),
            ..before
        });
        object
    }

    /// Publishes the state, and notifies of changes other than renewals.
    fn publish(&self) {
        let mut changed = false;
        {
            let mut views = self.views.write();
            for (lease, view) in views.iter_mut().enumerate() {
                let until = self.election.held_until(lease).map(Instant::from_std);
                let holder = self.election.holder(lease).and_then(Holder::parse);
                changed |= view.until.is_some() != until.is_some() || view.holder != holder;
                let believed_until = self.election.believed_until(lease).map(Instant::from_std);
                *view = View { holder, until, believed_until };
            }
        }
        if changed {
            self.changed.send_modify(|version| *version += 1);
        }
    }
}

fn record(object: &Lease) -> Record {
    let spec = object.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(seconds),
        renewal: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        claim: object.annotations().get(CLAIM).cloned(),
        version: object.resource_version().unwrap_or_default(),
    }
}
