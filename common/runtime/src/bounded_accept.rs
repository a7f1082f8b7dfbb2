//! Bounds what the clients of a port may hold together: connections before they have proven anything, streams, bytes.
//!
//! # The rule
//!
//! [`Shares`] have a total, and a bound for each client address. Where a newcomer exceeds the bound of its address, its own
//! address gives way, and where it exceeds the total, the address that holds most, its own included. So an address cannot
//! use up the total, and a newcomer with a small share is never refused in place of a large holder. Among addresses that
//! hold equally much, the newcomer's gives way last where the oldest share does, and first where the youngest does.
//!
//! | which of the address's shares gives way | where |
//! |---|---|
//! | the oldest: it has had its time | connections that have not said yet what they want |
//! | the youngest, the newcomer included | streams and bytes in use |
//!
//! [`Acceptor`] is a listener with such shares. A connection that gives way is closed at once, so the next one always has a
//! place: probes are answered while thousands of silent connections are open. What was closed or refused is logged once a
//! minute.
//!
//! # Not here
//!
//! Deadlines: callers bound the time of a head and of an answer.

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

/// Time between two lines of the log about refused connections.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Pause after a failed accept. Without descriptors, some have to close first.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of [`Shares`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all clients together.
    pub total: usize,
    /// For each address.
    pub per_address: usize,
}

/// The share of an address that gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesWay {
    /// The one that was taken first.
    Oldest,
    /// The one that was taken last.
    Youngest,
}

/// One bounded resource, divided among the addresses of clients.
#[derive(Debug)]
pub struct Shares {
    limits: Limits,
    gives_way: GivesWay,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    next: u64,
    addresses: HashMap<IpAddr, Holder>,
}

/// What an address holds.
#[derive(Debug, Default)]
struct Holder {
    sum: usize,
    /// In order of arrival.
    members: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    amount: usize,
    /// Tells the share, by being dropped, that it has given way.
    _stays: oneshot::Sender<Infallible>,
}

/// What one connection holds. Given back when dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
    number: u64,
    lost: oneshot::Receiver<Infallible>,
}

impl Shares {
    /// Nothing is held.
    pub fn new(limits: Limits, gives_way: GivesWay) -> Arc<Self> {
        Arc::new(Self { limits, gives_way, state: Mutex::default() })
    }

    /// A share of `amount` for a client from `address`; none: it would have to give way itself.
    pub fn take(self: &Arc<Self>, address: IpAddr, amount: usize) -> Option<Share> {
        let (stays, lost) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            let members = &mut state.addresses.entry(address).or_default().members;
            members.insert(number, Member { amount: 0, _stays: stays });
            number
        };
        let share = Share { shares: self.clone(), address, number, lost };
        share.grow(amount).then_some(share)
    }

    /// What all hold.
    pub fn held(&self) -> usize {
        self.state.lock().total
    }
}

impl State {
    /// The address that is to give way for `more` of `address`, if any is.
    fn holder_in_the_way(&self, shares: &Shares, address: IpAddr, more: usize) -> Option<IpAddr> {
        let Shares { limits, gives_way, .. } = shares;
        let sum = |of: &IpAddr| {
            let held = self.addresses.get(of).map_or(0, |holder| holder.sum);
            if *of == address { held.saturating_add(more) } else { held }
        };
        if sum(&address) > limits.per_address {
            return Some(address);
        }
        let is_full = self.total.saturating_add(more) > limits.total;
        let rank = |(of, holder): &(&IpAddr, &Holder)| {
            let is_preferred = (**of == address) == (*gives_way == GivesWay::Youngest);
            (sum(of), is_preferred, Reverse(holder.members.keys().next().copied()))
        };
        is_full.then(|| self.addresses.iter().max_by_key(rank).map(|(of, _)| *of)).flatten()
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
    /// Takes `more`; `false`: it would have to give way itself, or has.
    pub fn grow(&self, more: usize) -> bool {
        let Shares { gives_way, state, .. } = &*self.shares;
        let mut state = state.lock();
        while let Some(address) = state.holder_in_the_way(&self.shares, self.address, more) {
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

    /// The client's address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Ready once it has given way.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.lost).poll(cx).map(drop)
    }

    /// Waits until it has given way.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn lost(&mut self) {
        poll_fn(|cx| self.poll_lost(cx)).await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.state.lock().remove(self.address, self.number);
    }
}

/// A listener whose connections are bounded.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// Name of the port in the log.
    port: &'static str,
    shares: Arc<Shares>,
}

impl Acceptor {
    /// Accepts what comes to `listener`, the port that the log calls `port`. The oldest connection gives way.
    pub fn new(listener: TcpListener, port: &'static str, limits: Limits) -> Self {
        Self { listener, port, shares: Shares::new(limits, GivesWay::Oldest) }
    }

    /// Serves each connection by `serve`, in a task of its own, until `shutdown`; then closes the listener and returns the
    /// tasks. Each gets the client's address, an IPv4-mapped one as IPv4, and is dropped once it has to give way.
    pub async fn serve<F>(self, shutdown: CancellationToken, serve: impl Fn(TcpStream, IpAddr) -> F) -> TaskTracker
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, closed) = (TaskTracker::new(), Arc::new(Mutex::new(Closed::default())));
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
                Err(error) => {
                    closed.lock().log(self.port, Instant::now(), |count| {
                        tracing::warn!(port = self.port, count, %error, "accept failed");
                    });
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // The oldest gives way, so that the newcomer has a share.
            let Some(mut share) = self.shares.take(address, 1) else { continue };
            let (serving, limits, port, closed) =
                (serve(stream, address), self.shares.limits, self.port, closed.clone());
            tasks.spawn(async move {
                tokio::select! {
                    biased; // What has come already is answered.
                    () = serving => {}
                    () = share.lost() => closed.lock().log(port, Instant::now(), |count| {
                        tracing::warn!(
                            port, count, %address, limit = limits.total, per_address = limits.per_address,
                            "connections were closed for newer ones: clients have too many"
                        );
                    }),
                }
            });
            tokio::task::yield_now().await; // It has its turn before the next one takes its share.
        }
        tasks.close();
        tasks
    }
}

/// Connections that were closed, or not accepted, and when that was logged.
#[derive(Debug, Default)]
struct Closed {
    count: u64,
    logged: Option<Instant>,
}

impl Closed {
    /// Counts one more. Logs the number of those that were not logged yet, once in [`LOGGED_EVERY`].
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

    /// Goal: the largest holder gives way, its oldest or its youngest share, and never a smaller one for a larger.
    #[test]
    fn the_largest_holder_gives_way() {
        // Of four in total and three for each: the address of each newcomer, who loses a share to it, whether it has one.
        type Row<'a> = (GivesWay, &'a [(u8, Option<usize>, bool)]);
        use GivesWay::{Oldest, Youngest};
        let rows: [Row<'_>; 7] = [
            (Oldest, &[(1, None, true), (1, None, true), (1, None, true), (1, Some(0), true), (1, Some(1), true)]),
            (Youngest, &[(1, None, true), (1, None, true), (1, None, true), (1, None, false)]),
            (Oldest, &[(9, None, true), (1, None, true), (1, None, true), (1, None, true), (8, Some(1), true)]),
            (Youngest, &[(9, None, true), (1, None, true), (1, None, true), (1, None, true), (8, Some(3), true)]),
            (Oldest, &[(1, None, true), (1, None, true), (2, None, true), (2, None, true), (1, Some(0), true)]),
            (Youngest, &[(1, None, true), (2, None, true), (3, None, true), (4, None, true), (5, None, false)]),
            (Oldest, &[(1, None, true), (2, None, true), (3, None, true), (4, None, true), (5, Some(0), true)]),
        ];
        for (gives_way, comers) in rows {
            let shares = Shares::new(Limits { total: 4, per_address: 3 }, gives_way);
            let mut held: Vec<Option<Share>> = Vec::new();
            for (comer, (from, loses, is_in)) in comers.iter().enumerate() {
                let share = shares.take(address(*from), 1);
                assert_eq!(share.is_some(), *is_in, "{gives_way:?} {comer}");
                let lost =
                    held.iter_mut().position(|share| share.as_mut().is_some_and(|s| s.lost().now_or_never().is_some()));
                assert_eq!(lost, *loses, "{gives_way:?} {comer}");
                lost.into_iter().for_each(|lost| held[lost] = None);
                held.push(share);
            }
            held.clear();
            assert_eq!((shares.held(), shares.state.lock().addresses.len()), (0, 0));
        }
    }

    /// Goal: a share that grows counts with all that it holds, and gives all of it back.
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

    /// Goal: a client that says what it wants is answered, however many silent ones there are, from its own address or from
    /// another; the others are closed as far as there are too many.
    #[tokio::test]
    async fn silent_connections_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("bound");
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
