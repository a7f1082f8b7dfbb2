//! The watch that feeds the index. Parses only the needed part of each pod.

use super::asking;
use super::index::PodIndex;
use super::listening;
use super::seen::SeenPod;
use super::warnings::Warnings;
use common::RevisionKey as PodName;
use common::time::Timestamp;
use common_runtime::clock::Clock;
use common_runtime::namespaces::Namespaces;
use common_runtime::watching::watch;
use futures::StreamExt;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Scope of the watched pods, and of their kept labels.
#[derive(Clone, Debug)]
pub struct PodScope {
    /// Watched namespaces.
    pub namespaces: Namespaces,
    /// Selector of the watch.
    pub watched: watcher::Config,
    /// Returns whether a label is kept, because pods may be selected by it.
    pub keeps: fn(&str) -> bool,
    /// Set if causes and controllers of pods matter; otherwise only Kubernetes' Ready condition counts.
    pub judges: bool,
}

/// Watches pods until `shutdown`, tests the ports of pods without a probe, and queries the owners of controllers.
pub async fn run(client: Client, scope: PodScope, index: Arc<PodIndex>, shutdown: CancellationToken) {
    let asks = index.asks();
    let listening = async {
        match asks {
            Some(asks) => listening::run(index.clone(), asks).await,
            None => std::future::pending().await,
        }
    };
    let questions = index.questions();
    let controllers = async {
        match questions {
            Some(questions) => asking::run(client.clone(), index.clone(), questions).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = listening => {}
        () = controllers => {}
        () = follow(client.clone(), scope, index.clone(), shutdown) => {}
    }
}

async fn follow(client: Client, scope: PodScope, index: Arc<PodIndex>, shutdown: CancellationToken) {
    let mut events = watch(scope.namespaces.reach::<SeenPod>(&client), scope.watched.clone());
    let mut watching = Watching {
        scope,
        index,
        clock: Clock::system(),
        undecided: HashMap::new(),
        dues: BTreeSet::new(),
        warnings: Warnings::new(client),
    };
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            () = due(watching.due_in()) => {
                watching.look_again();
                continue;
            }
            (pod, warning) = watching.warnings.next() => {
                watching.warned(&pod, warning);
                continue;
            }
            event = events.next() => event,
        };
        match event {
            Some(watcher::Event::Init) => watching.index.begin_list(),
            Some(watcher::Event::InitDone) => watching.index.end_list(),
            Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => watching.apply(pod),
            Some(watcher::Event::Delete(pod)) => {
                let name = PodName::new(pod.namespace().unwrap_or_default(), pod.name_any());
                watching.decided(&name);
                watching.index.delete(name.namespace(), name.name());
            }
            None => return,
        }
    }
}

async fn due(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}

struct Watching {
    scope: PodScope,
    index: Arc<PodIndex>,
    clock: Clock,
    /// Pods whose state may change with time alone, and the time of their next check.
    undecided: HashMap<PodName, (SeenPod, Timestamp)>,
    /// Times and names of these pods, the next one first.
    dues: BTreeSet<(Timestamp, PodName)>,
    warnings: Warnings,
}

impl Watching {
    fn apply(&mut self, mut pod: SeenPod) {
        let name = PodName::new(pod.namespace().unwrap_or_default(), pod.name_any());
        let now = self.clock.now();
        if let Some(before) = self.decided(&name) {
            pod.remember(before);
        }
        let (mut state, due) = pod.state(self.scope.judges, now);
        state.labels.retain(|label, _| (self.scope.keeps)(label));
        self.index.apply(name.namespace(), name.name(), state);
        if let Some(after) = due {
            self.dues.insert((now + after, name.clone()));
            self.undecided.insert(name, (pod, now + after));
        }
    }

    fn decided(&mut self, name: &PodName) -> Option<SeenPod> {
        let (pod, due) = self.undecided.remove(name)?;
        self.dues.remove(&(due, name.clone()));
        Some(pod)
    }

    /// Returns the time until the next check.
    fn due_in(&self) -> Option<Duration> {
        self.dues.first().map(|(first, _)| first.saturating_since(self.clock.now()))
    }

    fn look_again(&mut self) {
        let now = self.clock.now();
        while let Some((_, name)) = self.dues.first().filter(|(due, _)| *due <= now).cloned() {
            let Some(mut pod) = self.decided(&name) else { return };
            if pod.is_stuck(now) && self.warnings.ask(&name) {
                pod = pod.asked();
            }
            self.apply(pod);
        }
    }

    fn warned(&mut self, name: &PodName, warning: Option<(String, String)>) {
        if let Some((pod, _)) = self.undecided.get(name) {
            let pod = pod.clone().with_warning(warning);
            self.apply(pod);
        }
    }
}
