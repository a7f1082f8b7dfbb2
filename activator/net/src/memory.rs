//! What clients' connections and requests may keep in memory: one bound for the process, shared by workload and by client
//! ([`activator_core::ledger`]).
//!
//! Whoever keeps something has a [`Charge`], which gives it back when it is dropped. When all is used up, the largest holder
//! gives way: a request that waits is refused, a connection whose client sends or leaves unread too much is cut. Whether
//! something is needed, or is a convenience that nobody is to give way for, the caller says ([`Charge::set`],
//! [`Charge::spare`]).

use crate::client::host::host_of;
use activator_core::ledger::{Full, Holder, Ledger, Of};
use futures::FutureExt;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Part of the bound that may be used beyond it for the moment in which somebody gives way.
const LEEWAY: u64 = 4;

/// Up to this part of the bound something is given that nobody gives way for.
const SPARE: u64 = 4;

/// A limit that is never reached, for a process without one.
const UNBOUNDED: u64 = u64::MAX / 2;

/// A holder of memory that can be told to give way.
pub(crate) trait Party: Holder + Send + Sync {
    /// Tells the holder to free its memory, because others need it.
    fn give_way(&self);
}

/// Kinds of memory, which metrics tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests that wait, pages' streams, large heads of answers.
    Held,
    /// What clients send that is no request yet, or that nobody has read.
    Input,
    /// Answers that clients do not read.
    Output,
}

/// The memory that clients' connections and requests share. Cheap to clone.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    /// The current second, as connections count them.
    second: AtomicU32,
    ledger: Mutex<Ledger<dyn Party>>,
    /// Bytes, by kind.
    kept: [AtomicU64; 3],
    /// Charges of the first kind.
    held: AtomicU64,
}

/// Bytes that are charged to a workload and a client until the charge is dropped.
pub(crate) struct Charge {
    memory: Memory,
    kind: Kind,
    key: usize,
    bytes: u64,
}

/// A workload's share. Cheap to clone.
#[derive(Clone)]
pub struct Share {
    memory: Memory,
    workload: u64,
}

/// The charge of a request or a connection while it waits.
pub struct Held {
    _charge: Charge,
    way: Arc<Way>,
}

/// Tells what waits, or a connection that keeps it, that it is to give way.
#[derive(Default)]
struct Way {
    told: Notify,
    connection: OnceLock<Arc<dyn Party>>,
}

impl Holder for Way {
    fn idle_since(&self) -> Option<u32> {
        None
    }
}

impl Party for Way {
    fn give_way(&self) {
        self.told.notify_one();
        self.connection.get().into_iter().for_each(|connection| connection.give_way());
    }
}

impl Memory {
    /// Creates a bound of `limit` bytes, or none.
    pub fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(UNBOUNDED);
        let ledger = Mutex::new(Ledger::new(limit, limit / LEEWAY));
        let (second, kept, held) = Default::default();
        Self(Arc::new(Shared { second, ledger, kept, held }))
    }

    /// Returns the share of the workload with this number.
    pub fn share(&self, workload: u64) -> Share {
        Share { memory: self.clone(), workload }
    }

    /// Returns the bytes that are charged of a kind.
    pub fn kept(&self, kind: Kind) -> u64 {
        self.0.kept[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of charges of [`Kind::Held`].
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Sets the current second, of the clock by which holders say since when they have been idle.
    pub(crate) fn set_second(&self, second: u32) {
        self.0.second.store(second, Ordering::Relaxed);
    }

    /// Creates a charge of no bytes.
    pub(crate) fn charge(&self, kind: Kind, of: Of, party: Arc<dyn Party>) -> Charge {
        let key = self.0.ledger.lock().enter(of, party);
        if kind == Kind::Held {
            self.0.held.fetch_add(1, Ordering::Relaxed);
        }
        Charge { memory: self.clone(), kind, key, bytes: 0 }
    }
}

impl Charge {
    /// Sets the charge to `bytes`. Other holders give way if there is no room.
    ///
    /// # Errors
    /// This holder would have to give way itself. The charge stays as it was.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), Full> {
        let shared = &self.memory.0;
        if bytes > self.bytes {
            let now = shared.second.load(Ordering::Relaxed);
            let (grown, others) = shared.ledger.lock().grow(self.key, bytes - self.bytes, now, false);
            others.iter().for_each(|other| other.give_way());
            grown?;
        } else {
            shared.ledger.lock().shrink(self.key, self.bytes - bytes);
        }
        self.count(bytes);
        Ok(())
    }

    /// Adds `more` bytes if little of the limit is used. Returns whether it did.
    pub(crate) fn spare(&mut self, more: u64) -> bool {
        let mut ledger = self.memory.0.ledger.lock();
        let is_plenty = ledger.held().saturating_add(more) <= ledger.limit() / SPARE;
        if is_plenty {
            ledger.put(self.key, more);
            drop(ledger);
            self.count(self.bytes + more);
        }
        is_plenty
    }

    /// Adds `more` bytes, even beyond the limit.
    fn put(&mut self, more: u64) {
        self.memory.0.ledger.lock().put(self.key, more);
        self.count(self.bytes + more);
    }

    /// Returns the bytes that are charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn count(&mut self, bytes: u64) {
        let kept = &self.memory.0.kept[self.kind as usize];
        kept.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.count(0);
        if self.kind == Kind::Held {
            self.memory.0.held.fetch_sub(1, Ordering::Relaxed);
        }
        self.memory.0.ledger.lock().leave(self.key);
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Share {
    /// Charges `bytes` of a client's request that begins to wait.
    ///
    /// # Errors
    /// The request would have to give way itself.
    pub fn hold(&self, client: IpAddr, bytes: u64) -> Result<Held, Full> {
        let mut held = self.begin(client);
        held._charge.set(bytes)?;
        Ok(held)
    }

    /// Charges `bytes` of a request that was admitted before, even beyond the limit.
    pub fn hold_again(&self, client: IpAddr, bytes: u64) -> Held {
        let mut held = self.begin(client);
        if held._charge.set(bytes).is_err() {
            held._charge.put(bytes);
        }
        held
    }

    /// Returns the refusal of a request of this workload that gives way.
    pub fn full(&self) -> Full {
        let ledger = self.memory.0.ledger.lock();
        Full { limit: ledger.limit(), own: ledger.of_workload(self.workload), is_beyond: false }
    }

    fn begin(&self, client: IpAddr) -> Held {
        let (way, of) = (Arc::<Way>::default(), Of { workload: self.workload, address: host_of(client) });
        Held { _charge: self.memory.charge(Kind::Held, of, way.clone()), way }
    }
}

impl Held {
    /// Waits until others need the memory.
    pub async fn gives_way(&self) {
        self.way.told.notified().await;
    }

    /// Has `connection`, which keeps the memory from now on, give way for it.
    pub(crate) fn moves_to(&self, connection: Arc<dyn Party>) {
        let _ = self.way.connection.set(connection); // It moves once.
        if self.gives_way().now_or_never().is_some() {
            self.way.give_way(); // It was told before.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Goal: a workload that waits alone may have all; another one gets what it asks for up to half, from the first one's
    /// youngest, and everything is given back.
    #[tokio::test]
    async fn the_largest_gives_way() {
        let memory = Memory::new(Some(1600));
        let (one, other) = (memory.share(1), memory.share(2));
        let held: Vec<Held> = (0..16).map(|_| one.hold(CLIENT, 100).expect("room")).collect();
        let full = one.hold(CLIENT, 100).err().expect("its own are the most");
        assert_eq!((full.limit, full.own), (1600, 1600));
        let newcomer = other.hold(CLIENT, 100).expect("others have more");
        let told: Vec<bool> = held.iter().map(|held| held.gives_way().now_or_never().is_some()).collect();
        assert_eq!(told.iter().position(|told| *told), Some(15), "the youngest");
        assert_eq!((memory.held(), memory.kept(Kind::Held)), (17, 1700), "until it has gone");
        drop((held, newcomer));
        assert_eq!((memory.held(), memory.kept(Kind::Held)), (0, 0));
    }

    /// Goal: who waits again is not refused, and is the first to give way to others.
    #[tokio::test]
    async fn who_waits_again_is_charged_beyond_the_bound() {
        let memory = Memory::new(Some(1200));
        let again = memory.share(1).hold_again(CLIENT, 5000);
        assert_eq!((memory.held(), memory.kept(Kind::Held)), (1, 5000));
        assert!(memory.share(1).hold(CLIENT, 100).is_err());
        assert!(again.gives_way().now_or_never().is_none());
        assert!(memory.share(2).hold(CLIENT, 100).is_ok());
        assert!(again.gives_way().now_or_never().is_some());
    }

    /// Goal: a large head that nobody reads gives way by its connection's end, also if it was told before it got there.
    #[test]
    fn a_connection_gives_way_for_what_it_keeps() {
        #[derive(Default)]
        struct Connection(AtomicBool);
        impl Holder for Connection {
            fn idle_since(&self) -> Option<u32> {
                None
            }
        }
        impl Party for Connection {
            fn give_way(&self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        for is_told_before in [false, true] {
            let memory = Memory::new(Some(1000));
            let (held, connection) = (memory.share(1).hold(CLIENT, 1000).expect("room"), Arc::<Connection>::default());
            let is_cut = || connection.0.load(Ordering::Relaxed);
            if !is_told_before {
                held.moves_to(connection.clone());
            }
            assert!(!is_cut());
            let _other = memory.share(2).hold(CLIENT, 100).expect("the first has more");
            if is_told_before {
                held.moves_to(connection.clone());
            }
            assert!(is_cut(), "told before: {is_told_before}");
        }
    }

    #[test]
    fn without_a_bound_everything_is_held() {
        let share = Memory::new(None).share(1);
        let _held: Vec<Held> = (0..8).map(|_| share.hold(CLIENT, 1 << 50).expect("no bound")).collect();
    }
}
