//! Task that looks at every connection to pods, and checks doubted pods.

use super::link::{Link, is_silence};
use super::silence::{Judgement, SilenceDetector};
use super::tracked::{LOST, SILENT, Tracked};
use super::{KEEPALIVE, Liveness, UNREACHABLE};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two looks at every connection.
const TICK: Duration = Duration::from_millis(100);

/// Time between two looks while a pod has left our connect unanswered.
const TICK_CLOSELY: Duration = Duration::from_millis(20);

/// Idle time before keep-alive's first probe if a response is pending: the kernel's minimum.
const KEEPALIVE_WAITING: Duration = Duration::from_secs(1);

/// Number of connections for which memory is kept. Memory for larger bursts is freed.
const ENTRIES_KEPT: usize = 64;

/// Monitors all connections until `shutdown`.
pub(crate) async fn run(liveness: Arc<Liveness>, shutdown: CancellationToken) {
    Task { liveness, entries: Vec::new(), checks: JoinSet::new() }.run(shutdown).await;
}

struct Entry {
    tracked: Arc<Tracked>,
    detector: SilenceDetector,
    probes_early: bool,
}

impl Entry {
    /// Judges the connection. `closely` is set if a connect to its pod has just been unanswered.
    fn look(&mut self, now: Instant, closely: bool) -> Judgement {
        let counts = self.tracked.counts();
        let judgement = self.detector.judge(now, counts, closely, || self.tracked.socket.state());
        let waits = self.tracked.waiting.load(Ordering::Relaxed) && self.detector.is_settled(counts.0);
        if self.probes_early != waits {
            self.probes_early = waits;
            self.tracked.socket.set_keepalive_time(if waits { KEEPALIVE_WAITING } else { KEEPALIVE });
        }
        judgement
    }
}

struct Task {
    liveness: Arc<Liveness>,
    entries: Vec<Entry>,
    checks: JoinSet<(Arc<Link>, io::Result<()>)>,
}

impl Task {
    async fn run(mut self, shutdown: CancellationToken) {
        let mut next = Instant::now();
        loop {
            let idle = self.take_inbox();
            let tick = async {
                match idle {
                    true => std::future::pending().await,
                    false => tokio::time::sleep_until(next).await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.liveness.news.notified() => {}
                Some(check) = self.checks.join_next() => match check {
                    Ok((link, answer)) => self.answered(&link, &answer),
                    Err(error) => tracing::error!(%error, "the check of a pod panicked"),
                },
                () = tick => {
                    let closely = self.sweep();
                    next = Instant::now() + if closely { TICK_CLOSELY } else { TICK };
                }
            }
        }
    }

    /// Takes new connections and orders. Returns true if there is no connection to look at.
    fn take_inbox(&mut self) -> bool {
        self.take_opened();
        let doubted = std::mem::take(&mut self.liveness.inbox.lock().doubted);
        doubted.into_iter().for_each(|link| self.check(link));
        let to_cut = std::mem::take(&mut self.liveness.inbox.lock().to_cut);
        for pod in to_cut {
            // Each port has its own link. If pods share their node's address, all pods of the node lose their
            // connections.
            self.cut(|link| link.address.ip() == pod);
        }
        self.entries.is_empty()
    }

    fn take_opened(&mut self) {
        let mut inbox = self.liveness.inbox.lock();
        let new = |tracked| Entry { tracked, detector: SilenceDetector::default(), probes_early: false };
        self.entries.extend(std::mem::take(&mut inbox.opened).into_iter().map(new));
        inbox.sleeping = self.entries.is_empty();
    }

    /// Looks at every connection. Returns whether the next look must come soon.
    fn sweep(&mut self) -> bool {
        let now = Instant::now();
        self.entries.retain(|entry| Arc::strong_count(&entry.tracked) > 1);
        if self.entries.capacity() > ENTRIES_KEPT.max(4 * self.entries.len()) {
            self.entries.shrink_to(ENTRIES_KEPT.max(2 * self.entries.len()));
        }
        let mut closely = false;
        let (mut doubted, mut lost) = (Vec::new(), Vec::new());
        for entry in &mut self.entries {
            let unanswered = entry.tracked.link.is_unanswered(now);
            closely |= unanswered;
            match entry.look(now, unanswered) {
                Judgement::Fine => {}
                Judgement::Doubtful if unanswered => lost.push(entry.tracked.link.clone()),
                Judgement::Doubtful => doubted.push(entry.tracked.link.clone()),
                Judgement::Silent => {
                    let link = &entry.tracked.link;
                    tracing::debug!(pod = %link.address, "the pod does not acknowledge the bytes of a connection");
                    link.given_up.store(true, Ordering::Relaxed);
                    doubted.push(link.clone());
                    entry.tracked.cut(SILENT);
                }
            }
        }
        doubted.into_iter().for_each(|link| self.check(link));
        lost.sort_unstable_by_key(|link| link.address);
        lost.dedup_by_key(|link| link.address);
        lost.iter().for_each(|link| self.lose(link));
        closely
    }

    /// Checks a pod's kernel, unless a check is running. Until it answers, the pod gets no new requests.
    fn check(&mut self, link: Arc<Link>) {
        if link.checking.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::debug!(pod = %link.address, "checking whether the pod is reachable");
        self.liveness.notify(link.address, |observer, pod| observer.pod_doubted(pod));
        self.checks.spawn(async move {
            let answer = link.check().await;
            (link, answer)
        });
    }

    fn answered(&mut self, link: &Arc<Link>, answer: &io::Result<()>) {
        let given_up = link.given_up.swap(false, Ordering::Relaxed);
        link.checking.store(false, Ordering::Relaxed);
        match answer {
            Err(error) if !is_silence(error) => {
                let cause = error.to_string();
                self.liveness.notify(link.address, |observer, pod| observer.pod_failed(pod, &cause));
            }
            Err(_) if given_up || self.is_silent(link) => self.lose(link),
            // A connection may still prove that the pod is gone, as long as the connect counts as unanswered.
            Ok(()) | Err(_) => self.liveness.notify(link.address, |observer, pod| observer.pod_trusted(pod)),
        }
    }

    /// Reports whether a connection to the pod is silent at this moment.
    fn is_silent(&mut self, link: &Arc<Link>) -> bool {
        let now = Instant::now();
        let here = |entry: &Entry| entry.tracked.link.address == link.address;
        let closely = link.is_unanswered(now);
        self.entries.iter_mut().any(|entry| here(entry) && entry.look(now, closely) != Judgement::Fine)
    }

    fn lose(&mut self, link: &Arc<Link>) {
        link.checking.store(false, Ordering::Relaxed);
        tracing::warn!(pod = %link.address, cause = UNREACHABLE, "the pod is gone; its connections are closed");
        self.liveness.notify(link.address, |observer, pod| observer.pod_failed(pod, UNREACHABLE));
        link.lose();
        self.cut(|other| other.address == link.address);
    }

    /// Ends all connections whose link `is_cut`.
    fn cut(&mut self, is_cut: impl Fn(&Link) -> bool) {
        // This includes recent connections, and those of an earlier pool.
        self.take_opened();
        for entry in self.entries.iter().filter(|entry| is_cut(&entry.tracked.link)) {
            entry.tracked.cut(LOST);
        }
    }
}
