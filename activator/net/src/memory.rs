//! Memory held by clients' connections and requests. One limit holds for the process, shared by workload and by client
//! ([`activator_core::ledger`]).
//!
//! Each holder has a [`Charge`], which returns its bytes on drop. When the limit is reached, the largest holder gives
//! way: a waiting request is rejected, and a connection whose client sends or leaves unread too much is closed. The
//! caller states whether the memory is needed ([`Charge::set`]), or only convenient, so that no holder has to give way
//! for it ([`Charge::spare`]).

use activator_core::ledger::{Full, Holder, HolderGroup, Ledger};
use futures::FutureExt;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Divisor of the limit: this part may be used beyond the limit while a holder gives way.
const LEEWAY: u64 = 4;

/// Divisor of the limit: below this part of the limit, `Charge::spare` grants memory.
const SPARE: u64 = 4;

/// Limit that is never reached, for a process without a limit.
const UNBOUNDED: u64 = u64::MAX / 2;

/// A holder of memory that can be told to give way.
pub(crate) trait GivesWay: Holder + std::fmt::Debug + Send + Sync {
    /// Tells the holder to free its memory because other holders need it.
    fn give_way(&self);
}

/// Kinds of memory. Metrics report each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Held requests, streams of waiting pages, and large heads of responses.
    Held,
    /// Bytes received from clients that are not yet a request, or not yet read.
    Input,
    /// Response bytes that clients do not read.
    Output,
}

/// Memory shared by clients' connections and requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Memory(Arc<MemoryShared>);

#[derive(Debug)]
struct MemoryShared {
    /// Current second, on the clock of `Holder::idle_since`.
    second: AtomicU32,
    ledger: Mutex<Ledger<dyn GivesWay>>,
    /// Charged bytes, by kind.
    charged: [AtomicU64; 3],
    /// Number of charges of `Kind::Held`.
    held: AtomicU64,
}

/// Bytes that are charged to a workload and a client until the charge is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Memory,
    kind: Kind,
    key: usize,
    bytes: u64,
}

/// Share of a workload. Cheap to clone.
#[derive(Clone)]
pub struct Share {
    memory: Memory,
    workload: u64,
}

/// Charge of a request or a connection while it waits.
#[derive(Debug)]
pub struct HeldCharge {
    _charge: Charge,
    signal: Arc<GiveWaySignal>,
}

/// Signal to give way, for a waiting request or the connection that holds its memory.
#[derive(Debug, Default)]
struct GiveWaySignal {
    notified: Notify,
    connection: OnceLock<Arc<dyn GivesWay>>,
}

impl Holder for GiveWaySignal {
    fn idle_since(&self) -> Option<u32> {
        None
    }
}

impl GivesWay for GiveWaySignal {
    fn give_way(&self) {
        self.notified.notify_one();
        self.connection.get().into_iter().for_each(|connection| connection.give_way());
    }
}

impl Memory {
    /// Creates memory with a limit of `limit` bytes, or without a limit.
    pub fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(UNBOUNDED);
        let ledger = Mutex::new(Ledger::new(limit, limit / LEEWAY));
        let (second, charged, held) = Default::default();
        Self(Arc::new(MemoryShared { second, ledger, charged, held }))
    }

    /// Returns the share of the workload with this number.
    pub fn share(&self, workload: u64) -> Share {
        Share { memory: self.clone(), workload }
    }

    /// Returns the charged bytes of a kind.
    pub fn charged(&self, kind: Kind) -> u64 {
        self.0.charged[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of charges of [`Kind::Held`].
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Returns the current second, on the clock of `Holder::idle_since`.
    pub(crate) fn second(&self) -> u32 {
        self.0.second.load(Ordering::Relaxed)
    }

    /// Advances the clock by a second, which is returned.
    pub(crate) fn next_second(&self) -> u32 {
        self.0.second.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Creates a charge of no bytes.
    pub(crate) fn charge(&self, kind: Kind, group: HolderGroup, holder: Arc<dyn GivesWay>) -> Charge {
        let key = self.0.ledger.lock().enter(group, holder);
        if kind == Kind::Held {
            self.0.held.fetch_add(1, Ordering::Relaxed);
        }
        Charge { memory: self.clone(), kind, key, bytes: 0 }
    }
}

impl Charge {
    /// Sets the charge to `bytes`. Other holders give way if the limit is reached. An error means that this holder
    /// would have to give way itself, and the charge stays as it was.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), Full> {
        let shared = &self.memory.0;
        if bytes > self.bytes {
            let now = self.memory.second();
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

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn count(&mut self, bytes: u64) {
        let charged = &self.memory.0.charged[self.kind as usize];
        charged.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
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

impl Share {
    /// Charges `bytes` for a client's request that begins to wait.
    ///
    /// # Errors
    /// The request would have to give way itself.
    pub fn hold(&self, client: IpAddr, bytes: u64) -> Result<HeldCharge, Full> {
        let mut held = self.begin(client);
        held._charge.set(bytes)?;
        Ok(held)
    }

    /// Charges `bytes` for a request that was admitted before, even beyond the limit.
    pub fn hold_again(&self, client: IpAddr, bytes: u64) -> HeldCharge {
        let mut held = self.begin(client);
        if held._charge.set(bytes).is_err() {
            held._charge.put(bytes);
        }
        held
    }

    /// Returns the rejection for a request of this workload that gives way.
    pub fn full(&self) -> Full {
        let ledger = self.memory.0.ledger.lock();
        Full { limit: ledger.limit(), own: ledger.of_workload(self.workload), is_beyond: false }
    }

    fn begin(&self, client: IpAddr) -> HeldCharge {
        let (signal, group) =
            (Arc::<GiveWaySignal>::default(), HolderGroup { workload: self.workload, address: host_of(client) });
        HeldCharge { _charge: self.memory.charge(Kind::Held, group, signal.clone()), signal }
    }
}

impl HeldCharge {
    /// Waits until the holder must give way.
    pub async fn gives_way(&self) {
        self.signal.notified.notified().await;
    }

    /// Makes `connection`, which now holds the memory, give way in its place.
    pub(crate) fn transfer_to(&self, connection: Arc<dyn GivesWay>) {
        let _ = self.signal.connection.set(connection); // It moves only once.
        if self.gives_way().now_or_never().is_some() {
            self.signal.give_way(); // The signal came before the move.
        }
    }
}

/// Returns the address that identifies a client: IPv4 also if it is mapped into IPv6, and the /64 network of an IPv6
/// address, because one host owns all of it.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Goal: a workload alone may use the whole limit. A second workload gets up to half of it, taken from the youngest
    /// request of the first. All charges are returned.
    #[tokio::test]
    async fn the_largest_holder_gives_way() {
        let memory = Memory::new(Some(1600));
        let (one, other) = (memory.share(1), memory.share(2));
        let held: Vec<HeldCharge> = (0..16).map(|_| one.hold(CLIENT, 100).expect("room")).collect();
        let full = one.hold(CLIENT, 100).expect_err("its own are the most");
        assert_eq!((full.limit, full.own), (1600, 1600));
        let newcomer = other.hold(CLIENT, 100).expect("others have more");
        let displaced: Vec<bool> = held.iter().map(|held| held.gives_way().now_or_never().is_some()).collect();
        assert_eq!(displaced.iter().position(|displaced| *displaced), Some(15), "the youngest");
        assert_eq!((memory.held(), memory.charged(Kind::Held)), (17, 1700), "until it has gone");
        drop((held, newcomer));
        assert_eq!((memory.held(), memory.charged(Kind::Held)), (0, 0));
    }

    /// Goal: a request that waits again is not rejected, and is the first to give way to other workloads.
    #[tokio::test]
    async fn a_request_that_waits_again_may_exceed_the_limit() {
        let memory = Memory::new(Some(1200));
        let again = memory.share(1).hold_again(CLIENT, 5000);
        assert_eq!((memory.held(), memory.charged(Kind::Held)), (1, 5000));
        assert!(memory.share(1).hold(CLIENT, 100).is_err());
        assert!(again.gives_way().now_or_never().is_none());
        assert!(memory.share(2).hold(CLIENT, 100).is_ok());
        assert!(again.gives_way().now_or_never().is_some());
    }

    /// Goal: a large head that the client does not read gives way by closing its connection, even if the signal comes
    /// before the head reaches the connection.
    #[test]
    fn a_connection_gives_way_for_an_unread_head() {
        #[derive(Debug, Default)]
        struct Connection(AtomicBool);
        impl Holder for Connection {
            fn idle_since(&self) -> Option<u32> {
                None
            }
        }
        impl GivesWay for Connection {
            fn give_way(&self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        for is_signalled_before in [false, true] {
            let memory = Memory::new(Some(1000));
            let (held, connection) = (memory.share(1).hold(CLIENT, 1000).expect("room"), Arc::<Connection>::default());
            let is_cut = || connection.0.load(Ordering::Relaxed);
            if !is_signalled_before {
                held.transfer_to(connection.clone());
            }
            assert!(!is_cut());
            let _other = memory.share(2).hold(CLIENT, 100).expect("the first has more");
            if is_signalled_before {
                held.transfer_to(connection.clone());
            }
            assert!(is_cut(), "told before: {is_signalled_before}");
        }
    }

    #[test]
    fn memory_without_a_limit_rejects_nothing() {
        let share = Memory::new(None).share(1);
        let _held: Vec<HeldCharge> = (0..8).map(|_| share.hold(CLIENT, 1 << 50).expect("no bound")).collect();
    }
}
