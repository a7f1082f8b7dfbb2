//! One second of stats: from the activators to the autoscalers that they are connected to, and on to the owners.

use super::slices::{carriers, ready_activators};
use super::{Size, address, key, pod_name};
use crate::activator::{SYSTEM, stat_message, stats_with};
use activator_core::accounting::{InFlight, RevisionStats};
use autoscaler_core::forwarding::{Forwarded, Hop, Route, route};
use common::ownership::{self, Owner, bucket_names};
use common::stat::{WireStatMessage, WireStatMessages};
use common::{RevisionKey, wire};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Maximum number of entries in a frame between two autoscalers.
pub const BATCH_MAX: usize = 4096;
const SECOND: i64 = 1_000_000_000;
/// Number of seconds by which ended requests have been reported.
const SECONDS: i64 = 3;

/// Traffic of one direction in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages.
    pub frames: u64,
    /// Number of stats in them.
    pub stats: u64,
    /// Number of attestations in them.
    pub attestations: u64,
    /// Number of bytes of all frames.
    pub bytes: u64,
}

impl Traffic {
    fn count(&mut self, frame: &WireStatMessages, bytes: usize) {
        let stats = frame.messages.iter().filter(|message| message.stat.is_some()).count() as u64;
        self.frames += 1;
        self.stats += stats;
        self.attestations += frame.messages.len() as u64 - stats;
        self.bytes += bytes as u64;
    }

    fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.stats += other.stats;
        self.attestations += other.attestations;
        self.bytes += other.bytes;
    }
}

/// Traffic of the last second by link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Traffic from each activator.
    pub up: Vec<Traffic>,
    /// Traffic from one autoscaler to another.
    pub across: BTreeMap<(usize, usize), Traffic>,
    /// Number of stats, by the number of times that each was recorded.
    pub recorded: BTreeMap<u32, u64>,
    /// Stats recorded by an autoscaler that does not own their bucket.
    pub strayed: u64,
}

impl Streams {
    /// Returns the traffic of all activators.
    pub fn up_all(&self) -> Traffic {
        sum(&self.up)
    }

    /// Returns the traffic between all autoscalers.
    pub fn across_all(&self) -> Traffic {
        sum(self.across.values())
    }
}

fn sum<'a>(all: impl IntoIterator<Item = &'a Traffic>) -> Traffic {
    let mut sum = Traffic::default();
    all.into_iter().for_each(|traffic| sum.add(traffic));
    sum
}

/// Reporting workload at one activator, with the request that keeps it busy.
struct Reporter {
    key: RevisionKey,
    stats: Arc<RevisionStats>,
    _busy: Option<InFlight>,
}

/// Returns the traffic of the last of [`SECONDS`] seconds.
pub fn streams(size: &Size) -> Streams {
    let clock = Arc::new(AtomicI64::new(0));
    let activators = ready_activators(size.activators);
    let mut reporters: Vec<Vec<Reporter>> = (0..size.activators).map(|_| Vec::new()).collect();
    for workload in 0..size.busy + size.ended {
        let key = key(workload);
        let carriers = carriers(&key, &activators);
        let carrying = reporters.iter_mut().enumerate().filter(|(index, _)| carriers.contains(&address(*index)));
        for (_, reporters) in carrying {
            let stats = stats_with(&clock);
            let entered = stats.enter();
            let busy = (workload < size.busy).then_some(entered.in_flight);
            reporters.push(Reporter { key: key.clone(), stats, _busy: busy });
        }
    }
    let mut cluster = Cluster::new(size.autoscalers);
    for second in 1..=SECONDS {
        clock.store(second * SECOND, Ordering::Relaxed);
        cluster.observed = ObservedTraffic::default();
        for (activator, reporters) in reporters.iter().enumerate() {
            let frame = report(activator, reporters);
            cluster.receive_frame(activator, frame);
        }
    }
    let ObservedTraffic { up, across, recorded, strayed } = cluster.observed;
    let mut by_count = BTreeMap::new();
    recorded.values().for_each(|count| *by_count.entry(*count).or_default() += 1);
    let up = (0..size.activators).map(|activator| up.get(&activator).copied().unwrap_or_default()).collect();
    Streams { up, across, recorded: by_count, strayed }
}

/// Returns the frame of one activator for this second.
fn report(activator: usize, reporters: &[Reporter]) -> WireStatMessages {
    let pod = pod_name(activator);
    let mut messages = vec![wire::attestation(SYSTEM, &pod)];
    for Reporter { key, stats, .. } in reporters {
        let Some(report) = stats.report() else { continue };
        report.signal.into_iter().for_each(|signal| signal.confirm());
        messages.push(stat_message(key, &pod, report.average_concurrency, report.request_count));
    }
    WireStatMessages { messages }
}

#[derive(Default)]
struct ObservedTraffic {
    up: HashMap<usize, Traffic>,
    across: BTreeMap<(usize, usize), Traffic>,
    recorded: HashMap<(String, String, String), u32>,
    strayed: u64,
}

struct Cluster {
    autoscalers: usize,
    buckets: Vec<String>,
    /// Owner of each workload.
    owners: HashMap<RevisionKey, usize>,
    observed: ObservedTraffic,
}

impl Cluster {
    fn new(autoscalers: usize) -> Self {
        let buckets = bucket_names(u32::try_from(autoscalers).unwrap_or(1));
        Self { autoscalers, buckets, owners: HashMap::new(), observed: ObservedTraffic::default() }
    }

    fn owner(&mut self, key: &RevisionKey) -> usize {
        if let Some(owner) = self.owners.get(key) {
            return *owner;
        }
        let bucket = ownership::owner(&self.buckets, key.as_str()).unwrap_or_default();
        let owner = self.buckets.iter().position(|name| name == bucket).unwrap_or_default();
        self.owners.insert(key.clone(), owner);
        owner
    }

    /// Handles a frame of an activator. Each activator is connected to one autoscaler.
    fn receive_frame(&mut self, activator: usize, frame: WireStatMessages) {
        let bytes = wire::encode(&frame);
        self.observed.up.entry(activator).or_default().count(&frame, bytes.len());
        self.receive(activator % self.autoscalers, &bytes, activator, None);
    }

    fn receive(&mut self, at: usize, bytes: &[u8], activator: usize, forwarded: Option<&Forwarded<usize>>) {
        let Ok(frame) = wire::decode(bytes) else { return };
        let mut onward: BTreeMap<(usize, Hop), Vec<WireStatMessage>> = BTreeMap::new();
        for message in frame.messages {
            let Some(mut stat) = message.stat.clone() else {
                if forwarded.is_none() {
                    let names = [message.name.clone(), address(activator).to_string()];
                    for other in (0..self.autoscalers).filter(|other| *other != at) {
                        let attestations = names.iter().map(|name| wire::attestation(SYSTEM, name));
                        onward.entry((other, Hop::First)).or_default().extend(attestations);
                    }
                }
                continue;
            };
            stat.timestamp = if stat.timestamp == 0 { 1_700_000_000 } else { stat.timestamp };
            let owner = self.owner(&RevisionKey::new(&message.namespace, &message.name));
            let owner_here = if owner == at { Owner::Us } else { Owner::Other(owner) };
            match route(owner_here, forwarded, Duration::ZERO) {
                Route::Record => {
                    self.observed.strayed += u64::from(owner != at);
                    let source = (stat.pod_name, message.namespace, message.name);
                    *self.observed.recorded.entry(source).or_default() += 1;
                }
                Route::Send(other, hop) => {
                    let message = WireStatMessage { stat: Some(stat), ..message };
                    onward.entry((other, hop)).or_default().push(message);
                }
                Route::Hold | Route::Drop => {}
            }
        }
        for ((other, hop), messages) in onward {
            for batch in messages.chunks(BATCH_MAX) {
                let frame = WireStatMessages { messages: batch.to_vec() };
                let bytes = wire::encode(&frame);
                self.observed.across.entry((at, other)).or_default().count(&frame, bytes.len());
                self.receive(other, &bytes, activator, Some(&Forwarded { hop, by: Some(at) }));
            }
        }
    }
}
