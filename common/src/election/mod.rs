//! Decides which Leases to write, and when. Pure: time and randomness are arguments.
//!
//! The caller reports the observed Leases ([`Election::observe`]) and the results of writes ([`Election::written`], …).
//! The [`Election`] returns the next writes ([`Election::due`]) and the time of the next call ([`Election::wake`]).
//! Each lease has at most one write in flight.
//!
//! # Why two processes never hold one lease
//!
//! Every write carries the resource version it is based on. A holder counts its lease from the moment *before* it sent
//! the last successful write. Other processes wait for the recorded duration from the moment *after* they observed that
//! write. So a holder stops before any other process may take over, whatever the wall clocks say, provided that
//! monotonic clocks run at the same speed. All processes, including the holder, use the duration in whole seconds, as
//! recorded in the Lease. Processes that wait for the end of a lease wait for at least one second.
//!
//! # Not here
//!
//! Reading and writing Leases, and the bucket of a key ([`crate::ownership`]).

#[cfg(test)]
pub(crate) mod tests;

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

/// Minimum remaining lease time for a write; covers the time that the write may take to arrive.
pub const WRITE_MARGIN: Duration = Duration::from_secs(2);

/// Times of renewal, step-down and takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for which a lease outlives its last renewal; whole seconds, a fraction is dropped.
    pub lease_duration: Duration,
    /// Time for which a holder continues without a renewal; less than the lease duration.
    pub renew_deadline: Duration,
    /// Time between renewals; 1.2 times this is less than the renew deadline.
    pub retry_period: Duration,
}

impl Timing {
    /// Knative's defaults (`config-leader-election`).
    pub const KNATIVE: Self = Self {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(10),
    };

    /// Standalone's defaults, close to those of Kubernetes' own controllers. The lease is short because no workload in
    /// a crashed owner's share scales from zero until its lease ends. Renewing four leases every 3 s costs little more
    /// than one write per second.
    pub const STANDALONE: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(3),
    };
}

/// Delay after a write without a usable response.
const RETRY_AFTER_ERROR: Duration = Duration::from_millis(500);
/// Extra delay before a process takes a free lease, for each lease that it already holds; at most [`STAGGER_MAX`].
const STAGGER_PER_LEASE: Duration = Duration::from_millis(100);
/// Maximum of that delay, and so the longest head start for processes with fewer leases.
const STAGGER_MAX: Duration = Duration::from_millis(800);
/// Random part of that delay, so that equal processes do not collide each time.
const STAGGER_JITTER: Duration = Duration::from_millis(100);
/// Time between claims, so that one handover is visible before the next claim.
const CLAIM_PERIOD: Duration = Duration::from_secs(1);
/// Age after which a claim is ignored, because its author may be gone.
const CLAIM_MAX_AGE: Duration = Duration::from_secs(2);
/// Minimum duration of a recorded lease. A shorter duration is treated as this one.
/// There is no upper bound: a holder relies on the duration that it has written, however long.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// Content of a Lease that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder. Empty if the lease is free.
    pub holder: String,
    /// Time for which other processes wait after the last change before they take the lease, in whole seconds.
    pub duration: Duration,
    /// Opaque value that changes with every renewal.
    pub renewal: String,
    /// Identity of the process that asks for the lease, if any.
    pub claim: Option<String>,
    /// Resource version.
    pub version: String,
}

impl Record {
    /// Returns the time for which the lease outlives its last change.
    fn lasts(&self) -> Duration {
        self.duration.max(DURATION_MIN)
    }
}

/// Operation on one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create the Lease with this process as its holder.
    Create,
    /// Write a holder, based on a version.
    Write {
        /// Version that the write replaces.
        version: String,
        /// New holder. Empty to release the lease.
        holder: String,
        /// Set if this begins a new tenure.
        transition: bool,
    },
    /// Ask the holder for the lease.
    Claim,
    /// Read the lease again.
    Read,
}

/// All leases of one group from the point of view of one process.
#[derive(Debug)]
pub struct Election {
    me: String,
    timing: Timing,
    balance: bool,
    leases: Vec<LeaseState>,
    next_claim: Instant,
}

#[derive(Debug)]
struct LeaseState {
    /// Set once the API server has reported whether the lease exists.
    known: bool,
    record: Option<Record>,
    /// Local time of the record's last change.
    changed_at: Instant,
    /// Local time at which the claim appeared.
    claimed_at: Instant,
    /// Time at which the last successful write that made or kept this process the holder was sent. `None` if this
    /// process is not the holder.
    renewed_at: Option<Instant>,
    /// Time until which the lease is not given away: writes by an earlier run of this process may still be in flight.
    kept_until: Option<Instant>,
    /// Set while a write is in flight.
    busy: bool,
    /// Set if another write may have intervened: read before writing.
    stale: bool,
    not_before: Instant,
    stagger: Duration,
}

impl LeaseState {
    fn is_kept(&self, now: Instant) -> bool {
        self.kept_until.is_some_and(|until| now < until)
    }
}

impl Election {
    /// Creates a candidate `me` for `count` leases in unknown state. If `balance` is set, it claims and yields fair
    /// shares.
    pub fn new(me: String, count: usize, timing: Timing, balance: bool, now: Instant) -> Self {
        let lease = || LeaseState {
            known: false,
            record: None,
            changed_at: now,
            claimed_at: now,
            renewed_at: None,
            kept_until: None,
            busy: false,
            stale: false,
            not_before: now,
            stagger: Duration::ZERO,
        };
        let lease_duration = Duration::from_secs(timing.lease_duration.as_secs()); // The duration as recorded.
        let timing = Timing { lease_duration, ..timing };
        // Claims wait until every process could take some of the free leases.
        let next_claim = now + CLAIM_PERIOD * 2;
        Self { me, timing, balance, leases: std::iter::repeat_with(lease).take(count).collect(), next_claim }
    }

    /// Returns the time until which this process may regard itself as the holder, or `None` if it is not.
    pub fn held_until(&self, lease: usize) -> Option<Instant> {
        self.leases[lease].renewed_at.map(|sent| sent + self.timing.lease_duration)
    }

    /// Returns the last observed holder's identity.
    pub fn holder(&self, lease: usize) -> Option<&str> {
        self.leases[lease].record.as_ref().map(|record| record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// Returns the time until which the last observed holder counts: its recorded duration after its last observed
    /// renewal. Another process may have taken over since; a process without a connection to the API server does not
    /// notice that. Returns `None` without a holder.
    pub fn believed_until(&self, lease: usize) -> Option<Instant> {
        let state = &self.leases[lease];
        state.record.as_ref().filter(|record| !record.holder.is_empty()).map(|record| state.changed_at + record.lasts())
    }

    /// Records the observed state of a lease. `None` if the lease does not exist.
    pub fn observe(&mut self, lease: usize, record: Option<Record>, now: Instant, rng: &mut impl Rng) {
        let held = self.leases.iter().filter(|lease| lease.renewed_at.is_some()).count();
        let state = &mut self.leases[lease];
        if !state.known
            && let Some(earlier) = record.as_ref().filter(|record| record.holder == self.me)
        {
            state.kept_until = Some(now + earlier.lasts());
        }
        state.known = true;
        // Kubernetes' versions are numbers; any other text is never older.
        let number = |record: &Option<Record>| record.as_ref()?.version.parse::<u64>().ok();
        if let (Some(old), Some(new)) = (number(&state.record), number(&record))
            && new < old
        {
            return; // The watch lags behind the response to a write.
        }
        let tenure = |record: &Option<Record>| record.as_ref().map(|r| (r.holder.clone(), r.renewal.clone()));
        if tenure(&state.record) != tenure(&record) {
            state.changed_at = now;
            let share = STAGGER_PER_LEASE.saturating_mul(u32::try_from(held).unwrap_or(u32::MAX)).min(STAGGER_MAX);
            state.stagger = share + STAGGER_JITTER.mul_f64(rng.random_range(0.0..1.0));
        }
        let claim = |record: &Option<Record>| record.as_ref().and_then(|r| r.claim.clone());
        if claim(&state.record) != claim(&record) {
            state.claimed_at = now;
        }
        if record.as_ref().is_none_or(|record| record.holder != self.me) {
            state.renewed_at = None;
        }
        state.record = record;
    }

    /// Records that a write sent at `sent` was accepted, with the resulting lease.
    pub fn written(&mut self, lease: usize, record: Record, sent: Instant, now: Instant, rng: &mut impl Rng) {
        let mine = record.holder == self.me;
        self.observe(lease, Some(record), now, rng);
        let state = &mut self.leases[lease];
        state.busy = false;
        state.renewed_at = mine.then_some(sent);
    }

    /// Records that a claim was written.
    pub fn done(&mut self, lease: usize) {
        self.leases[lease].busy = false;
    }

    /// Records that a write was rejected because the lease has changed. The lease must be read again.
    pub fn conflict(&mut self, lease: usize) {
        self.leases[lease].busy = false;
        self.leases[lease].stale = true;
    }

    /// Records that a write failed or had no usable response. The write may have been carried out.
    pub fn failed(&mut self, lease: usize, now: Instant) {
        let state = &mut self.leases[lease];
        state.busy = false;
        state.stale = true;
        state.not_before = now + RETRY_AFTER_ERROR;
    }

    /// Records the result of [`Op::Read`].
    pub fn read(&mut self, lease: usize, record: Option<Record>, now: Instant, rng: &mut impl Rng) {
        self.leases[lease].busy = false;
        self.leases[lease].stale = false;
        self.observe(lease, record, now, rng);
    }

    /// Returns the operations that are due. Each counts as in flight until its result is reported.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Op)> {
        let mut ops = Vec::new();
        for lease in 0..self.leases.len() {
            let deadline = self.timing.renew_deadline;
            let state = &mut self.leases[lease];
            if state.renewed_at.is_some_and(|sent| now >= sent + deadline) {
                state.renewed_at = None; // Not renewed in time: step down, then compete like any other process.
            }
            if let Some((at, op)) = self.next(lease, now)
                && at <= now
            {
                let state = &mut self.leases[lease];
                state.busy = true;
                if matches!(&op, Op::Write { holder, .. } if *holder != self.me) {
                    state.renewed_at = None; // Stop acting before the next holder starts.
                }
                ops.push((lease, op));
            }
        }
        if self.balance && now >= self.next_claim {
            self.next_claim = now + CLAIM_PERIOD;
            if let Some(lease) = self.claimable() {
                self.leases[lease].busy = true;
                ops.push((lease, Op::Claim));
            }
        }
        ops
    }

    /// Returns the time at which [`Election::due`] may return something, if nothing else happens before.
    pub fn wake(&self, now: Instant) -> Option<Instant> {
        let step_downs = self.leases.iter().filter_map(|lease| Some(lease.renewed_at? + self.timing.renew_deadline));
        let writes = (0..self.leases.len()).filter_map(|lease| Some(self.next(lease, now)?.0));
        let claim = self.balance.then_some(self.next_claim);
        step_downs.chain(writes).chain(claim).min()
    }

    /// Returns the writes that give up all held leases. Leases that must not be given away yet are left to expire. No
    /// lease is held afterwards.
    pub fn release(&mut self, now: Instant) -> Vec<(usize, Op)> {
        let mut ops = Vec::new();
        for (index, lease) in self.leases.iter_mut().enumerate() {
            if lease.renewed_at.take().is_some()
                && !lease.is_kept(now)
                && let Some(record) = &lease.record
            {
                let version = record.version.clone();
                ops.push((index, Op::Write { version, holder: String::new(), transition: false }));
            }
        }
        ops
    }

    /// Returns the next operation for one lease and its time.
    fn next(&self, lease: usize, now: Instant) -> Option<(Instant, Op)> {
        let state = &self.leases[lease];
        if state.busy || !state.known {
            return None;
        }
        let at_earliest = |at: Instant| at.max(state.not_before);
        if state.stale {
            return Some((state.not_before, Op::Read));
        }
        let Some(record) = &state.record else {
            return Some((at_earliest(state.changed_at + state.stagger), Op::Create));
        };
        let write = |holder: &str, transition: bool| Op::Write {
            version: record.version.clone(),
            holder: holder.to_owned(),
            transition,
        };
        if record.holder == self.me {
            if let Some(claimant) = self.entitled(lease, now) {
                return Some((at_earliest(state.claimed_at), write(claimant, true)));
            }
            // In our name but not held: handed over to us, or left by an earlier run of this very process.
            let at = state.renewed_at.map_or(state.changed_at, |sent| sent + self.timing.retry_period);
            return Some((at_earliest(at), write(&self.me, false)));
        }
        let free_at = if record.holder.is_empty() { state.changed_at } else { state.changed_at + record.lasts() };
        Some((at_earliest(free_at + state.stagger), write(&self.me, true)))
    }

    /// Returns the process that has recently claimed our lease, if it holds at least two leases fewer than we do.
    fn entitled(&self, lease: usize, now: Instant) -> Option<&str> {
        let state = &self.leases[lease];
        let claimant = state.record.as_ref()?.claim.as_deref()?;
        let fresh = now <= state.claimed_at + CLAIM_MAX_AGE;
        let fair = self.count(&self.me) >= self.count(claimant) + 2;
        let can_hand_over = !state.is_kept(now);
        let may_yield = self.balance && claimant != self.me && can_hand_over;
        (may_yield && fresh && fair && self.all_held()).then_some(claimant)
    }

    /// Returns the lease to claim: the last one of the process with the most leases, if it holds at least two more than
    /// we do.
    fn claimable(&self) -> Option<usize> {
        if !self.all_held() {
            return None;
        }
        let mine = self.count(&self.me);
        let is_candidate = |lease: &usize| !self.leases[*lease].busy && self.holder(*lease) != Some(self.me.as_str());
        (0..self.leases.len())
            .filter(is_candidate)
            .map(|lease| (self.count(self.holder(lease).unwrap_or_default()), lease))
            .max()
            .filter(|(most, _)| *most >= mine + 2)
            .map(|(_, lease)| lease)
    }

    fn all_held(&self) -> bool {
        (0..self.leases.len()).all(|lease| self.holder(lease).is_some())
    }

    fn count(&self, holder: &str) -> usize {
        (0..self.leases.len()).filter(|lease| self.holder(*lease) == Some(holder)).count()
    }
}
