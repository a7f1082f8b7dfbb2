//! Looks after all connections to pods: one task for the process, no timer for a request.
//!
//! Every 100 ms each connection is judged by [`silence`]. A pod is doubtful if one of them is, or if a request's
//! connect stays unanswered. Its kernel is asked by a connect of our own:
//!
//! | answer | follows |
//! |---|---|
//! | connected | it goes on as before: a segment was lost, or one connection is cut off, which its own silence ends |
//! | refused | the machine is there, the program is not: it is out until its probe passes |
//! | none, and bytes still unacknowledged | the pod is gone: it is out, and every connection to it breaks now: whoever waits for a response, a body or a tunnel is told |
//!
//! While it is asked it gets nothing new. If a connect for a request was given up just now, it is not asked again.
//! A connect alone proves nothing, since a full accept queue swallows it silently; neither does a silent connection
//! alone, since one flow may be blocked. Both together do, unless the pod has answered another connect meanwhile: bytes
//! on a connection that found no place in a full queue stay unacknowledged, too.
//!
//! # When nothing is unacknowledged
//!
//! All that was sent may have been acknowledged just before the pod went, and every new request need a new connection.
//! Nothing is written to find out: only the kernel asks. It is told to ask whether the pod is there (keep-alive) after
//! 1 s on connections whose last bytes were ours, once those are acknowledged: an answer is waited for. A question that
//! stays unanswered is enough if a connect stays unanswered too. Alone it says nothing, since a packet may be lost: a
//! second later it is asked again, and another second later the connection ends. Others (idle ones, a body or a tunnel
//! between two parts) are asked after 5 s ([`crate::pod::stream`]). So a pod that goes in such a moment is found gone
//! within 1.5 s or so where requests need connections to it, and within 3 s where they do not.
//!
//! The task sleeps while no connection is open and no pod is in doubt.

mod link;
pub(crate) mod silence;
mod task;
mod tracked;

pub(crate) use link::{Link, Lost, is_silence};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
pub(crate) use task::run;
use tokio::net::TcpStream;
use tokio::sync::Notify;
pub(crate) use tracked::Tracked;

/// First keep-alive probe on a connection without traffic (upstream's 5 s).
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);

/// Is told what the connections to a pod say of it.
pub trait PodObserver: Send + Sync {
    /// The pod may be gone: it is to get nothing new until that is known.
    fn pod_doubted(&self, pod: SocketAddr);

    /// A pod that was in doubt is there.
    fn pod_trusted(&self, pod: SocketAddr);

    /// The pod cannot be reached, and everything on its way there is lost.
    fn pod_failed(&self, pod: SocketAddr, cause: &str);
}

/// All connections to pods, and who is to be told about which address.
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
    to_cut: Vec<Arc<Link>>,
    /// The task waits for a first connection.
    sleeping: bool,
}

impl Liveness {
    /// Looks after a new connection.
    ///
    /// # Safety
    /// As of [`Tracked::new`].
    pub(crate) unsafe fn open(&self, stream: &TcpStream, link: &Arc<Link>) -> Arc<Tracked> {
        // SAFETY: the caller's promise.
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

    /// The kernel has given up on a connection to this address. Asks whether it is there at all.
    pub(crate) fn doubt(&self, link: &Arc<Link>) {
        link.given_up.store(true, Ordering::Relaxed);
        self.suspect(link);
    }

    /// A request's connect has stayed unanswered for a while. Asks whether it is there at all.
    pub(crate) fn suspect(&self, link: &Arc<Link>) {
        self.inbox.lock().doubted.push(link.clone());
        self.news.notify_one();
    }

    /// Every connection to the pod at this address ends, whichever of its ports it goes to and whatever the pod may say.
    pub(crate) fn cut(&self, link: &Arc<Link>) {
        self.inbox.lock().to_cut.push(link.clone());
        self.news.notify_one();
    }

    /// `observer` is told about this address from now on.
    pub(crate) fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.observers.lock().entry(address).or_default().push(observer);
    }

    /// And no longer.
    pub(crate) fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        let mut observers = self.observers.lock();
        if let Some(of_address) = observers.get_mut(&address) {
            of_address.retain(|one| !std::ptr::addr_eq(one.as_ptr(), observer.as_ptr()));
            if of_address.is_empty() {
                observers.remove(&address);
            }
        }
    }

    /// A pod that was asked goes on as before.
    fn trust(&self, link: &Link) {
        link.answered();
        self.notify(link.address, |observer, pod| observer.pod_trusted(pod));
    }

    fn notify(&self, address: SocketAddr, what: impl Fn(&dyn PodObserver, SocketAddr)) {
        let observers: Vec<Arc<dyn PodObserver>> =
            self.observers.lock().get(&address).into_iter().flatten().filter_map(Weak::upgrade).collect();
        observers.iter().for_each(|observer| what(&**observer, address));
    }
}
