//! Monitors all connections to pods, with one task for the process and no timer per request.
//!
//! Every 100 ms each connection is judged by [`silence`]. A pod is doubted if one of its connections is doubtful, or if
//! a request's connect is not answered. Then a connect of our own checks the pod's kernel:
//!
//! | answer | consequence |
//! |---|---|
//! | connected | nothing changes: a segment was lost, or a single connection is cut off and ends by its own silence |
//! | refused | the machine is alive, the program is not: the pod is out until its probe passes |
//! | none, and bytes still unacknowledged | the pod is gone: it is out, and all connections to it are closed now, which fails every pending response, body and tunnel |
//!
//! During the check the pod gets no new requests. If a request's connect was given up recently, there is no second
//! check. An unanswered connect alone proves nothing, because a full accept queue drops it silently. A silent
//! connection alone proves nothing either, because a single flow may be blocked. Both together are proof, unless the
//! pod has answered another connect meanwhile: the bytes of a connection that found no place in a full queue are not
//! acknowledged either.
//!
//! # When nothing is unacknowledged
//!
//! A pod may vanish just after it has acknowledged everything, while each new request needs a new connection. Nothing
//! is written to detect that; only the kernel probes. On connections whose last bytes were ours and are acknowledged,
//! so that a response is pending, keep-alive probes after 1 s. An unanswered probe is proof together with an unanswered
//! connect. Alone it proves nothing, because a packet may be lost: the probe is repeated after a second, and another
//! second later the connection ends. Other connections (idle ones, and bodies or tunnels without traffic) are probed
//! after 5 s ([`crate::pod::stream`]). So such a pod is found gone within about 1.5 s if requests need new connections
//! to it, and within 3 s otherwise.
//!
//! The task sleeps while no connection is open and no pod is doubted.

mod link;
pub(crate) mod silence;
mod task;
mod tracked;

pub(crate) use link::{Link, Lost, is_silence};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
pub(crate) use task::run;
use tokio::net::TcpStream;
use tokio::sync::Notify;
pub(crate) use tracked::Tracked;

/// Cause of failures of a pod that is gone.
pub(crate) const UNREACHABLE: &str = "the pod acknowledges neither bytes nor new connections";

/// Idle time before the first keep-alive probe (upstream's 5 s).
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);

/// Receiver of evidence about a pod, which its connections provide.
pub trait PodObserver: Send + Sync {
    /// The pod may be gone. It must get no new requests until that is known.
    fn pod_doubted(&self, pod: SocketAddr);

    /// A doubted pod is alive.
    fn pod_trusted(&self, pod: SocketAddr);

    /// The pod is unreachable, and all requests in flight to it are lost.
    fn pod_failed(&self, pod: SocketAddr, cause: &str);
}

/// Monitor of all connections to pods, with the observers of each address.
#[derive(Default)]
pub(crate) struct Liveness {
    inbox: Mutex<Inbox>,
    news: Notify,
    observers: Mutex<HashMap<SocketAddr, Vec<Weak<dyn PodObserver>>>>,
}

#[derive(Default)]
struct Inbox {
    opened: Vec<Arc<Tracked>>,
    doubted: Vec<Arc<Link>>,
    to_cut: Vec<IpAddr>,
    /// The task waits for a first connection.
    sleeping: bool,
}

impl Liveness {
    /// Monitors a new connection.
    ///
    /// # Safety
    /// See [`Tracked::new`].
    pub(crate) unsafe fn open(&self, stream: &TcpStream, link: &Arc<Link>) -> Arc<Tracked> {
        // SAFETY: guaranteed by the caller.
        let tracked = Arc::new(unsafe { Tracked::new(stream, link) });
        let sleeping = {
            let mut inbox = self.inbox.lock();
            inbox.opened.push(tracked.clone());
            inbox.sleeping
        };
        if sleeping {
            self.news.notify_one();
        }
        tracked
    }

    /// Checks whether the pod is alive, because the kernel has given up on a connection to this address, or has no
    /// route.
    pub(crate) fn doubt(&self, link: &Arc<Link>) {
        link.given_up.store(true, Ordering::Relaxed);
        self.suspect(link);
    }

    /// Checks whether the pod is alive, because a request's connect was unanswered for a while.
    pub(crate) fn suspect(&self, link: &Arc<Link>) {
        self.inbox.lock().doubted.push(link.clone());
        self.news.notify_one();
    }

    /// Ends every connection to the pod at this address, on any of its ports, without a check.
    pub(crate) fn cut(&self, pod: IpAddr) {
        self.inbox.lock().to_cut.push(pod);
        self.news.notify_one();
    }

    /// Notifies `observer` about this address from now on.
    pub(crate) fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.observers.lock().entry(address).or_default().push(observer);
    }

    pub(crate) fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        let mut observers = self.observers.lock();
        if let Some(of_address) = observers.get_mut(&address) {
            of_address.retain(|one| !std::ptr::addr_eq(one.as_ptr(), observer.as_ptr()));
            if of_address.is_empty() {
                observers.remove(&address);
            }
        }
    }

    fn notify(&self, address: SocketAddr, report: impl Fn(&dyn PodObserver, SocketAddr)) {
        let observers: Vec<Arc<dyn PodObserver>> =
            self.observers.lock().get(&address).into_iter().flatten().filter_map(Weak::upgrade).collect();
        observers.iter().for_each(|observer| report(&**observer, address));
    }
}
