//! What changes, for everybody who follows.
//!
//! While somebody has a stream, one task asks this process and the other replicas each second for what is younger than
//! what they said last, and gives it to all streams at once. While nobody has, nobody is asked.
//!
//! A stream begins with a whole list. So that nothing is lost between that and the first change, it waits for the next
//! frame before it asks for the list; and makes another if the task had to begin anew. Whom the list tells of is told to
//! the task ([`Hub::told`]): one that came after the last frame and is gone before the next is in no frame but as gone.
//!
//! # Bounds
//!
//! Frames wait for slow streams, [`FRAMES_MAX`] of them, shared by all; who is further behind begins with a whole list
//! again. A second in which nothing changes has no frame, so whoever takes long for the list is not behind by that alone. Streams are bounded where they are opened ([`super::streams`]).

use super::changes::Position;
use super::own::{AT_ONCE, Own};
use super::replicas::{Replica, Replicas, name};
use common::RevisionKey;
use common_controller::shares::Instance;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Frames that wait for the slowest stream.
const FRAMES_MAX: usize = 16;
/// Time between two frames.
const EVERY: Duration = Duration::from_secs(1);
/// A new stream need not wait for longer than this.
const HURRIED: Duration = Duration::from_millis(50);

/// What has changed in a second.
#[derive(Debug)]
pub(super) struct Frame {
    /// What came before it is not known: whoever follows begins with a list.
    pub(super) is_first: bool,
    pub(super) rows: Vec<(RevisionKey, Arc<str>)>,
    pub(super) removed: Vec<RevisionKey>,
    pub(super) replicas: Arc<[Replica]>,
}

/// Collects and spreads frames.
pub(super) struct Hub {
    own: Arc<Own>,
    replicas: Replicas,
    frames: broadcast::Sender<Arc<Frame>>,
    known: Mutex<Known>,
    /// Somebody new follows.
    wanted: Notify,
}

/// How far everybody was followed.
#[derive(Default)]
struct Followed {
    own: Option<Position>,
    others: HashMap<Instance, String>,
    /// Who answered last.
    replicas: Option<Arc<[Replica]>>,
}

impl Hub {
    pub(super) fn new(own: Arc<Own>, replicas: Replicas) -> Self {
        let (frames, known, wanted) = (broadcast::channel(FRAMES_MAX).0, Mutex::default(), Notify::new());
        Self { own, replicas, frames, known, wanted }
    }

    /// Somebody who follows was told of these.
    pub(super) fn told(&self, keys: Vec<RevisionKey>) {
        self.known.lock().told(keys);
    }

    /// Follows from now on.
    pub(super) fn follow(&self) -> broadcast::Receiver<Arc<Frame>> {
        let frames = self.frames.subscribe();
        self.wanted.notify_one();
        frames
    }

    /// Collects frames while somebody follows, until `shutdown`.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        let (mut followed, mut is_hurried) = (Followed::default(), true);
        loop {
            if self.frames.receiver_count() == 0 {
                (followed, *self.known.lock()) = (Followed::default(), Known::default());
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = self.wanted.notified() => {}
                }
                is_hurried = true;
            }
            let frame = tokio::select! {
                () = shutdown.cancelled() => return,
                frame = self.collect(&mut followed) => frame,
            };
            let is_same = followed.replicas.as_ref() == Some(&frame.replicas);
            followed.replicas = Some(frame.replicas.clone());
            if is_hurried || !is_same || frame.is_first || !frame.rows.is_empty() || !frame.removed.is_empty() {
                let _ = self.frames.send(Arc::new(frame)); // Whoever followed may have gone.
            }
            tokio::time::sleep(HURRIED).await;
            is_hurried = timeout(EVERY, self.wanted.notified()).await.is_ok();
        }
    }

    async fn collect(&self, followed: &mut Followed) -> Frame {
        let is_first = followed.own.is_none();
        let others = self.replicas.others();
        followed.others.retain(|instance, _| others.contains(instance));
        let asked = others.into_iter().map(|instance| {
            let after = followed.others.get(&instance).cloned();
            (instance, after)
        });
        let (younger, told) = tokio::join!(self.own.changes(followed.own), self.replicas.rows(asked.collect()));
        let mut rows = Vec::new();
        if !is_first {
            for some in younger.changed.chunks(AT_ONCE) {
                rows.extend(some.iter().filter_map(|key| Some((key.clone(), self.own.row(key, false)?))));
                tokio::task::yield_now().await;
            }
        }
        followed.own = Some(younger.position);
        let mut replicas = vec![self.own.replica()];
        for (instance, answer) in told {
            let (error, answer) = (answer.as_ref().err().cloned(), answer.ok());
            replicas.push(Replica { name: name(&instance), answered: error.is_none(), error });
            if let Some(answer) = answer {
                if !is_first {
                    rows.extend(answer.rows);
                }
                followed.others.insert(instance, answer.position);
            }
        }
        let now: HashSet<_> = self.own.objects.keys().into_iter().collect();
        rows.retain(|(key, _)| now.contains(key));
        let removed = self.known.lock().gone(now);
        Frame { is_first, rows, removed, replicas: replicas.into() }
    }
}

/// Whom anybody who follows may know.
#[derive(Debug, Default)]
struct Known(HashSet<RevisionKey>);

impl Known {
    fn told(&mut self, keys: Vec<RevisionKey>) {
        self.0.extend(keys);
    }

    /// Those of them who are not there `now`.
    fn gone(&mut self, now: HashSet<RevisionKey>) -> Vec<RevisionKey> {
        let known = std::mem::replace(&mut self.0, now);
        known.into_iter().filter(|key| !self.0.contains(key)).collect()
    }
}

impl Own {
    /// The row of one, as it is sent.
    pub(super) fn row(&self, key: &RevisionKey, recent: bool) -> Option<Arc<str>> {
        Some(serde_json::to_string(&self.summary(key, recent)?).ok()?.into())
    }

    /// This replica.
    pub(super) fn replica(&self) -> Replica {
        Replica { name: self.me.clone(), answered: true, error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one that only a list has told of, and no frame, is told as gone nevertheless, and once.
    #[test]
    fn what_a_list_has_told_of_is_gone_when_it_goes() {
        let keys = |names: &[&str]| names.iter().map(|name| RevisionKey::new("ns", *name)).collect::<Vec<_>>();
        let now = |names| keys(names).into_iter().collect::<HashSet<_>>();
        let mut known = Known::default();
        assert_eq!(known.gone(now(&["a", "b"])), []);
        known.told(keys(&["a", "c"]));
        let mut gone = known.gone(now(&["a"]));
        gone.sort();
        assert_eq!(gone, keys(&["b", "c"]));
        assert_eq!(known.gone(now(&["a"])), []);
    }
}
