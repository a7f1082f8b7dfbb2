//! Bounds what all clients of a port hold together: connections without a request yet, streams, bytes.
//!
//! # The rule
//!
//! [`Shares`] have a total and a limit per client address. If a new share exceeds the limit of its address, a share of
//! that address is revoked. If it exceeds the total, a share of the address that holds most is revoked, which may be
//! the new one's own address. So one address cannot use up the total, and a newcomer with a small share is never
//! refused in favour of a large holder. Among addresses that hold equally much, the newcomer's address comes last if
//! oldest shares are revoked, and first if youngest shares are revoked.
//!
//! | revoked share of the address | used for |
//! |---|---|
//! | the oldest: it has had its time | connections that have not sent a request yet |
//! | the youngest, including the newcomer | streams and bytes in use |
//!
//! [`Acceptor`] is a listener with such shares. A connection whose share is revoked is closed at once, so the next one
//! always has a place: probes get responses while thousands of silent connections are open. Closed and refused
//! connections are logged once a minute.
//!
//! # Not here
//!
//! Deadlines: callers limit the time of a head and of a response.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Interval of log lines about refused connections.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Pause after a failed accept. If descriptors are used up, some have to be closed first.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of [`Shares`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit for all clients together.
    pub total: usize,
    /// Limit for each address.
    pub per_address: usize,
}

/// Share of an address that is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesWay {
    /// The share that was taken first.
    Oldest,
    /// The share that was taken last.
    Youngest,
}

/// Bounded resource, divided among client addresses.
#[derive(Debug)]
pub struct Shares {
    limits: Limits,
    gives_way: GivesWay,
    state: Mutex<SharesState>,
}

#[derive(Debug, Default)]
struct SharesState {
    total: usize,
    next: u64,
    addresses: HashMap<IpAddr, Holder>,
}

/// Shares of one address.
#[derive(Debug, Default)]
struct Holder {
    sum: usize,
    /// Shares in order of arrival.
    members: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    amount: usize,
    /// Notifies the share, by being dropped, that it is revoked.
    _revoker: oneshot::Sender<Infallible>,
}

/// Share of one connection. Returned when dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
    number: u64,
    lost: oneshot::Receiver<Infallible>,
}

impl Shares {
    /// Creates shares of which none is taken.
    pub fn new(limits: Limits, gives_way: GivesWay) -> Arc<Self> {
        Arc::new(Self { limits, gives_way, state: Mutex::default() })
    }

    /// Takes a share of `amount` for a client at `address`, or returns `None` if the new share itself would be revoked.
    pub fn take(self: &Arc<Self>, address: IpAddr, amount: usize) -> Option<Share> {
        let (revoker, lost) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            let members = &mut state.addresses.entry(address).or_default().members;
            members.insert(number, Member { amount: 0, _revoker: revoker });
            number
        };
        let share = Share { shares: self.clone(), address, number, lost };
        share.grow(amount).then_some(share)
    }

    /// Returns the sum of all shares.
    pub fn held(&self) -> usize {
        self.state.lock().total
    }
}

impl SharesState {
    /// Returns the address of which a share must be revoked so that `address` can take `more`, if any.
    fn address_to_revoke(&self, shares: &Shares, address: IpAddr, more: usize) -> Option<IpAddr> {
        let Shares { limits, gives_way, .. } = shares;
        let sum = |other: &IpAddr| {
            let held = self.addresses.get(other).map_or(0, |holder| holder.sum);
            if *other == address { held.saturating_add(more) } else { held }
        };
        if sum(&address) > limits.per_address {
            return Some(address);
        }
        let is_full = self.total.saturating_add(more) > limits.total;
        let rank = |(other, holder): &(&IpAddr, &Holder)| {
            let is_preferred = (**other == address) == (*gives_way == GivesWay::Youngest);
            (sum(other), is_preferred, Reverse(holder.members.keys().next().copied()))
        };
        is_full.then(|| self.addresses.iter().max_by_key(rank).map(|(other, _)| *other)).flatten()
    }

    fn remove(&mut self, address: IpAddr, number: u64) {
        let Some(holder) = self.addresses.get_mut(&address) else { return };
        let amount = holder.members.remove(&number).map_or(0, |member| member.amount);
        holder.sum -= amount;
        self.total -= amount;
        if holder.members.is_empty() {
            self.addresses.remove(&address);
        }
    }
}

impl Share {
    /// Enlarges the share by `more`. Returns `false` if the share is revoked or would have to be.
    pub fn grow(&self, more: usize) -> bool {
        let Shares { gives_way, state, .. } = &*self.shares;
        let mut state = state.lock();
        while let Some(address) = state.address_to_revoke(&self.shares, self.address, more) {
            let members = state.addresses.get(&address).map(|holder| &holder.members);
            let mut others = members.into_iter().flat_map(BTreeMap::keys).copied();
            let victim = match gives_way {
                GivesWay::Oldest => others.find(|number| *number != self.number),
                GivesWay::Youngest => others.next_back().filter(|number| *number != self.number),
            };
            let Some(victim) = victim else { return false };
            state.remove(address, victim);
        }
        let Some(holder) = state.addresses.get_mut(&self.address) else { return false };
        let Some(member) = holder.members.get_mut(&self.number) else { return false };
        member.amount += more;
        holder.sum += more;
        state.total += more;
        true
    }

    /// Returns the client's address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Completes once the share is revoked.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.lost).poll(cx).map(drop)
    }

    /// Waits until the share is revoked. Cancel safe.
    pub async fn lost(&mut self) {
        poll_fn(|cx| self.poll_lost(cx)).await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.state.lock().remove(self.address, self.number);
    }
}

/// Listener whose connections are bounded.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// Name of the port in the log.
    port: &'static str,
    shares: Arc<Shares>,
}

impl Acceptor {
    /// Accepts connections of `listener`; `port` is the port's name in the log. The oldest connection is closed first.
    pub fn new(listener: TcpListener, port: &'static str, limits: Limits) -> Self {
        Self { listener, port, shares: Shares::new(limits, GivesWay::Oldest) }
    }

    /// Serves each connection by `serve` in its own task until `shutdown`. Then closes the listener and returns the
    /// tasks. Each task gets the client's address (an IPv4-mapped one as IPv4) and is dropped when its share is
    /// revoked.
    pub async fn serve<F>(self, shutdown: CancellationToken, serve: impl Fn(TcpStream, IpAddr) -> F) -> TaskTracker
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, closed) = (TaskTracker::new(), Arc::new(Mutex::new(Closed::default())));
        while let Some(accepted) = shutdown.run_until_cancelled(self.listener.accept()).await {
            let (stream, address) = match accepted {
                Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
                Err(error) => {
                    closed.lock().log(self.port, Instant::now(), |count| {
                        tracing::warn!(port = self.port, count, %error, "a connection could not be accepted");
                    });
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // A newcomer always gets its share: an older one is revoked instead.
            let Some(mut share) = self.shares.take(address, 1) else { continue };
            let (serving, limits, port, closed) =
                (serve(stream, address), self.shares.limits, self.port, closed.clone());
            tasks.spawn(async move {
                tokio::select! {
                    biased; // A request that has already arrived gets its response.
                    () = serving => {}
                    () = share.lost() => closed.lock().log(port, Instant::now(), |count| {
                        tracing::warn!(
                            port, count, %address, limit = limits.total, per_address = limits.per_address,
                            "connections were closed to make room for newer ones: clients have too many"
                        );
                    }),
                }
            });
            tokio::task::yield_now().await; // Lets the task run before the next connection takes its share.
        }
        tasks.close();
        tasks
    }
}

/// Number of closed or unaccepted connections, and time of the last log line.
#[derive(Debug, Default)]
struct Closed {
    count: u64,
    logged: Option<Instant>,
}

impl Closed {
    /// Counts one connection. Logs the number of unlogged ones, once in [`LOGGED_EVERY`].
    fn log(&mut self, port: &'static str, now: Instant, line: impl FnOnce(u64)) {
        self.count += 1;
        if self.logged.is_none_or(|at| now.duration_since(at) >= LOGGED_EVERY) {
            self.logged = Some(now);
            line(std::mem::take(&mut self.count));
        } else {
            tracing::debug!(port, "another connection was closed or not accepted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    /// Goal: the largest holder loses its oldest or youngest share, and never a smaller holder in favour of a larger
    /// one.
    #[test]
    fn the_largest_holder_gives_way() {
        // Limits: four in total, three per address. Columns: address of each newcomer, the share that is revoked for
        // it, and whether it gets a share.
        use GivesWay::{Oldest, Youngest};
        type Newcomer = (u8, Option<usize>, bool);
        let rows: [(GivesWay, &[Newcomer]); 7] = [
            (Oldest, &[(1, None, true), (1, None, true), (1, None, true), (1, Some(0), true), (1, Some(1), true)]),
            (Youngest, &[(1, None, true), (1, None, true), (1, None, true), (1, None, false)]),
            (Oldest, &[(9, None, true), (1, None, true), (1, None, true), (1, None, true), (8, Some(1), true)]),
            (Youngest, &[(9, None, true), (1, None, true), (1, None, true), (1, None, true), (8, Some(3), true)]),
            (Oldest, &[(1, None, true), (1, None, true), (2, None, true), (2, None, true), (1, Some(0), true)]),
            (Youngest, &[(1, None, true), (2, None, true), (3, None, true), (4, None, true), (5, None, false)]),
            (Oldest, &[(1, None, true), (2, None, true), (3, None, true), (4, None, true), (5, Some(0), true)]),
        ];
        for (gives_way, newcomers) in rows {
            let shares = Shares::new(Limits { total: 4, per_address: 3 }, gives_way);
            let mut held: Vec<Option<Share>> = Vec::new();
            for (newcomer, (from, revoked, is_in)) in newcomers.iter().enumerate() {
                let share = shares.take(address(*from), 1);
                assert_eq!(share.is_some(), *is_in, "{gives_way:?} {newcomer}");
                let lost =
                    held.iter_mut().position(|share| share.as_mut().is_some_and(|s| s.lost().now_or_never().is_some()));
                assert_eq!(lost, *revoked, "{gives_way:?} {newcomer}");
                lost.into_iter().for_each(|lost| held[lost] = None);
                held.push(share);
            }
            held.clear();
            assert_eq!((shares.held(), shares.state.lock().addresses.len()), (0, 0));
        }
    }

    /// Goal: a growing share counts with its whole amount and returns all of it.
    #[test]
    fn a_share_grows_within_its_bounds() {
        let shares = Shares::new(Limits { total: 100, per_address: 80 }, GivesWay::Youngest);
        let (small, mut large) =
            (shares.take(address(1), 10).expect("room"), shares.take(address(2), 70).expect("room"));
        assert!(!large.grow(20), "beyond what an address may have");
        assert!(large.lost().now_or_never().is_none() && shares.held() == 80);
        assert!(small.grow(55), "the other one holds more");
        assert!(large.lost().now_or_never().is_some() && !large.grow(1));
        drop(large);
        assert_eq!(shares.held(), 65);
        drop(small);
        assert_eq!(shares.held(), 0);
    }

    /// Goal: a client that sends a request gets a response despite many silent clients, from its own address or
    /// another. Surplus silent connections are closed.
    #[tokio::test]
    async fn silent_connections_do_not_block_other_clients() {
        let (listener, at) = crate::tests::listen().await;
        let shutdown = CancellationToken::new();
        let acceptor = Acceptor::new(listener, "test", Limits { total: 32, per_address: 8 });
        let shares = acceptor.shares.clone();
        let serving = tokio::spawn(acceptor.serve(shutdown.clone(), |mut stream, _| async move {
            if stream.read_u8().await.is_ok() {
                let _ = stream.write_u8(b'!').await;
            }
        }));
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(TcpStream::connect(at).await.expect("connected"));
            let mut client = TcpStream::connect(at).await.expect("connected");
            client.write_u8(b'?').await.expect("open");
            assert_eq!(client.read_u8().await.expect("an answer"), b'!');
        }
        assert!(shares.held() <= 8, "{}", shares.held());
        assert_eq!(silent[0].read_u8().await.map_err(|_| ()), Err(()), "it was closed");
        shutdown.cancel();
        drop(silent);
        serving.await.expect("no panic").wait().await;
    }
}
