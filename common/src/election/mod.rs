//! The rules of holding leases: what to write when. Pure; time and chance are arguments.
//!
//! An [`Election`] is told what the Leases look like ([`Election::observe`]) and how its writes ended
//! ([`Election::written`], …), and answers with the next writes ([`Election::due`]) and when to ask again
//! ([`Election::wake`]). One write at most is under way for each lease.
//!
//! # Why two processes never hold one lease
//!
//! Every write carries the resource version it is based on. A holder counts its lease from the moment *before* it sent
//! the last successful write; others wait for the recorded duration from the moment *after* they saw that write. So a
//! holder stops believing before anybody may take over, whatever the wall clocks say, as long as monotonic clocks run
//! at one speed. The duration is what the Lease can hold, whole seconds, for the holder too, and it is counted by one
//! rule wherever a record is read.
//!
//! # Not here
//!
//! Reading and writing Leases, and which bucket a key belongs to ([`crate::ownership`]).

mod timing;

#[cfg(test)]
mod tests;

pub use timing::{Timing, WRITE_MARGIN};

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

/// Wait after a write that failed for want of an answer.
const RETRY_AFTER_ERROR: Duration = Duration::from_millis(500);
/// A free lease is taken later by who holds more: so much for each lease held, at most [`STAGGER_MAX`].
const STAGGER_PER_LEASE: Duration = Duration::from_millis(100);
/// Longest head start for those who hold less.
const STAGGER_MAX: Duration = Duration::from_millis(800);
/// Random part of that wait, so that equals do not collide each time.
const STAGGER_JITTER: Duration = Duration::from_millis(100);
/// Time between claims, which lets one handover show before the next is asked for.
const CLAIM_PERIOD: Duration = Duration::from_secs(1);
/// A claim older than this is ignored: its author may be gone.
const CLAIM_FRESH: Duration = Duration::from_secs(2);
/// A recorded lease duration that is shorter counts as this: it may be somebody's mistake, and nobody holds a lease for
/// no time. There is no upper bound: a holder believes what it has written, however long that is.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// What a Lease says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Holder's identity; empty: free.
    pub holder: String,
    /// How long others wait after the last change before they take it; whole seconds.
    pub duration: Duration,
    /// Changes with every renewal; opaque.
    pub renewal: String,
    /// Who asks for the lease, if anybody.
    pub claim: Option<String>,
    /// Resource version.
    pub version: String,
}

impl Record {
    /// How long it outlives its last change.
    fn lasts(&self) -> Duration {
        self.duration.max(DURATION_MIN)
    }
}

/// What to do with one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create it, held by this process.
    Create,
    /// Write a holder, based on a version.
    Write {
        /// The version that the write replaces.
        version: String,
        /// The new holder; empty: nobody.
        holder: String,
        /// Whether this begins a new tenure.
        transition: bool,
    },
    /// Ask its holder for it.
    Claim,
    /// Read it again.
    Read,
}

/// All leases of one group, from the point of view of one process.
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
    /// Whether the API server has told yet whether it exists.
    known: bool,
    record: Option<Record>,
    /// When the record last changed, on our clock.
    changed: Instant,
    /// When its claim appeared.
    claimed: Instant,
    /// When the last successful write that made or kept us the holder was sent.
    held: Option<Instant>,
    /// Until when it is not given away: what an earlier life of ours was writing under it may still be on its way.
    kept_until: Option<Instant>,
    /// A write is under way.
    busy: bool,
    /// Another write came between: read before writing.
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
    /// Campaigns as `me` for `count` leases, of which nothing is known yet. `balance`: asks for and yields fair shares.
    pub fn new(me: String, count: usize, timing: Timing, balance: bool, now: Instant) -> Self {
        let lease = || LeaseState {
            known: false,
            record: None,
            changed: now,
            claimed: now,
            held: None,
            kept_until: None,
            busy: false,
            stale: false,
            not_before: now,
            stagger: Duration::ZERO,
        };
        let lease_duration = Duration::from_secs(timing.lease_duration.as_secs()); // What is recorded.
        let timing = Timing { lease_duration, ..timing };
        // Claims wait until everybody has had a turn at the free leases.
        let next_claim = now + CLAIM_PERIOD * 2;
        Self { me, timing, balance, leases: std::iter::repeat_with(lease).take(count).collect(), next_claim }
    }

    /// Until when this process may believe to hold the lease; `None`: it does not.
    pub fn held_until(&self, lease: usize) -> Option<Instant> {
        self.leases[lease].held.map(|sent| sent + self.timing.lease_duration)
    }

    /// The holder's identity as last seen.
    pub fn holder(&self, lease: usize) -> Option<&str> {
        self.leases[lease].record.as_ref().map(|record| record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// Until when the holder as last seen counts: as long after its last sign of life as it asked for. Somebody else
    /// may have taken over since, which a process that is cut off from the API server does not see. `None`: no holder.
    pub fn believed_until(&self, lease: usize) -> Option<Instant> {
        let state = &self.leases[lease];
        state.record.as_ref().filter(|record| !record.holder.is_empty()).map(|record| state.changed + record.lasts())
    }

    /// The lease looks like this now, or is not there.
    pub fn observe(&mut self, lease: usize, record: Option<Record>, now: Instant, rng: &mut impl Rng) {
        let held = self.leases.iter().filter(|lease| lease.held.is_some()).count();
        let state = &mut self.leases[lease];
        if !state.known
            && let Some(left) = record.as_ref().filter(|record| record.holder == self.me)
        {
            state.kept_until = Some(now + left.lasts());
        }
        state.known = true;
        if let (Some(old), Some(new)) = (&state.record, &record)
            && older(&new.version, &old.version)
        {
            return; // The watch lags behind what a write has answered.
        }
        let tenure = |record: &Option<Record>| record.as_ref().map(|r| (r.holder.clone(), r.renewal.clone()));
        if tenure(&state.record) != tenure(&record) {
            state.changed = now;
            let share = STAGGER_PER_LEASE.saturating_mul(u32::try_from(held).unwrap_or(u32::MAX)).min(STAGGER_MAX);
            state.stagger = share + STAGGER_JITTER.mul_f64(rng.random_range(0.0..1.0));
        }
        let claim = |record: &Option<Record>| record.as_ref().and_then(|r| r.claim.clone());
        if claim(&state.record) != claim(&record) {
            state.claimed = now;
        }
        if record.as_ref().is_none_or(|record| record.holder != self.me) {
            state.held = None;
        }
        state.record = record;
    }

    /// A write that was sent at `sent` was accepted, and this is the lease since.
    pub fn written(&mut self, lease: usize, record: Record, sent: Instant, now: Instant, rng: &mut impl Rng) {
        let mine = record.holder == self.me;
        self.observe(lease, Some(record), now, rng);
        let state = &mut self.leases[lease];
        state.busy = false;
        state.held = mine.then_some(sent);
    }

    /// A claim was made, or what was asked for is not there.
    pub fn done(&mut self, lease: usize) {
        self.leases[lease].busy = false;
    }

    /// A write was refused because the lease has changed: look again.
    pub fn conflict(&mut self, lease: usize) {
        self.leases[lease].busy = false;
        self.leases[lease].stale = true;
    }

    /// A write got no answer, or an unusable one. It may have been carried out.
    pub fn failed(&mut self, lease: usize, now: Instant) {
        let state = &mut self.leases[lease];
        state.busy = false;
        state.stale = true;
        state.not_before = now + RETRY_AFTER_ERROR;
    }

    /// What was read in answer to [`Op::Read`].
    pub fn read(&mut self, lease: usize, record: Option<Record>, now: Instant, rng: &mut impl Rng) {
        self.leases[lease].busy = false;
        self.leases[lease].stale = false;
        self.observe(lease, record, now, rng);
    }

    /// The writes whose time has come. Each counts as under way until it is reported back.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Op)> {
        let mut ops = Vec::new();
        for lease in 0..self.leases.len() {
            let deadline = self.timing.renew_deadline;
            let state = &mut self.leases[lease];
            if state.held.is_some_and(|sent| now >= sent + deadline) {
                state.held = None; // Not renewed in time: step down, then compete as anybody.
            }
            if let Some((at, op)) = self.next(lease, now)
                && at <= now
            {
                let state = &mut self.leases[lease];
                state.busy = true;
                if matches!(&op, Op::Write { holder, .. } if *holder != self.me) {
                    state.held = None; // Stop acting before the other one starts.
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

    /// When [`Election::due`] may have something to say again, if nothing else happens.
    pub fn wake(&self, now: Instant) -> Option<Instant> {
        let step_downs = self.leases.iter().filter_map(|lease| Some(lease.held? + self.timing.renew_deadline));
        let writes = (0..self.leases.len()).filter_map(|lease| Some(self.next(lease, now)?.0));
        let claim = self.balance.then_some(self.next_claim);
        step_downs.chain(writes).chain(claim).min()
    }

    /// The writes that give up everything held, but for what is not to be given away yet: that ends by itself. Nothing
    /// is held afterwards.
    pub fn release(&mut self, now: Instant) -> Vec<(usize, Op)> {
        let mut ops = Vec::new();
        for (index, lease) in self.leases.iter_mut().enumerate() {
            if lease.held.take().is_some()
                && !lease.is_kept(now)
                && let Some(record) = &lease.record
            {
                let version = record.version.clone();
                ops.push((index, Op::Write { version, holder: String::new(), transition: false }));
            }
        }
        ops
    }

    /// The next write for one lease and its time.
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
            return Some((at_earliest(state.changed + state.stagger), Op::Create));
        };
        let write = |holder: &str, transition: bool| Op::Write {
            version: record.version.clone(),
            holder: holder.to_owned(),
            transition,
        };
        if record.holder == self.me {
            if let Some(claimant) = self.entitled(lease, now) {
                return Some((at_earliest(state.claimed), write(claimant, true)));
            }
            // Not held, yet in our name: handed over to us, or left by an earlier life of this very process.
            let at = state.held.map_or(state.changed, |sent| sent + self.timing.retry_period);
            return Some((at_earliest(at), write(&self.me, false)));
        }
        let free_at = if record.holder.is_empty() { state.changed } else { state.changed + record.lasts() };
        Some((at_earliest(free_at + state.stagger), write(&self.me, true)))
    }

    /// Who has freshly claimed a lease of ours and holds at least two fewer than we do.
    fn entitled(&self, lease: usize, now: Instant) -> Option<&str> {
        let state = &self.leases[lease];
        let claimant = state.record.as_ref()?.claim.as_deref()?;
        let fresh = now <= state.claimed + CLAIM_FRESH;
        let fair = self.count(&self.me) >= self.count(claimant) + 2;
        let free = !state.is_kept(now);
        (self.balance && claimant != self.me && fresh && fair && free && self.all_held()).then_some(claimant)
    }

    /// The lease to ask for: the last one of the richest holder, if that holds at least two more than we do.
    fn claimable(&self) -> Option<usize> {
        if !self.all_held() {
            return None;
        }
        let mine = self.count(&self.me);
        let free = |lease: &usize| !self.leases[*lease].busy && self.holder(*lease) != Some(self.me.as_str());
        (0..self.leases.len())
            .filter(free)
            .map(|lease| (self.count(self.holder(lease).unwrap_or_default()), lease))
            .max()
            .filter(|(richest, _)| *richest >= mine + 2)
            .map(|(_, lease)| lease)
    }

    fn all_held(&self) -> bool {
        (0..self.leases.len()).all(|lease| self.holder(lease).is_some())
    }

    fn count(&self, holder: &str) -> usize {
        (0..self.leases.len()).filter(|lease| self.holder(*lease) == Some(holder)).count()
    }
}

/// Whether one resource version is older than another. Kubernetes' are numbers; what is not is never older.
fn older(a: &str, b: &str) -> bool {
    matches!((a.parse::<u64>(), b.parse::<u64>()), (Ok(a), Ok(b)) if a < b)
}
