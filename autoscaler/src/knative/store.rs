//! Stores of Knative's objects, and the routing of their events to keys.
//!
//! | event | PodAutoscaler keys | Metric keys |
//! |---|---|---|
//! | PodAutoscaler | itself | – |
//! | ServerlessService | its owner | – |
//! | Metric | its owner | itself |

use crate::cluster::target_key::TargetKey;
use crate::cluster::{FrontEndQueues, Index};
use crate::engine::parts::Parts;
use crate::reconcile::Watches;
use common::RevisionKey as Key;
use common_api::{Metric, PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use common_controller::{Priority, Store, WorkQueue};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Api, Resource};
use std::sync::Arc;

pub(crate) struct Objects {
    /// PodAutoscalers of all classes.
    pub(crate) autoscalers: Arc<Store<PodAutoscaler>>,
    pub(crate) serverless: Arc<Store<ServerlessService>>,
    pub(crate) metrics: Arc<Store<Metric>>,
    pub(crate) measurements: Measurements,
}

/// Queue of Metrics to reconcile. Knative's own controllers handle all other objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurements(pub(crate) WorkQueue<Key>);

impl FrontEndQueues for Measurements {
    fn queue_measurement(&self, key: &Key, priority: Priority) {
        self.0.add(key.clone(), priority);
    }
}

impl Objects {
    /// Creates empty stores. PodAutoscalers are recorded in `index`.
    pub(crate) fn new(index: &Arc<Index>, measurements: Measurements) -> Self {
        let (all, of_serverless, of_metric, queue) =
            (index.clone(), index.clone(), index.clone(), measurements.0.clone());
        Self {
            autoscalers: Arc::new(Store::packing(move |key, old, new| autoscaler(&all, key, old, new))),
            serverless: Arc::new(Store::packing(move |key, old, new| owner(&of_serverless, key, old, new))),
            metrics: Arc::new(Store::packing(move |key, old, new| {
                queue.add(key.clone(), Priority::Normal);
                owner(&of_metric, key, old, new);
            })),
            measurements,
        }
    }
}

fn autoscaler(index: &Index, key: &Key, old: Option<&Arc<PodAutoscaler>>, new: Option<&Arc<PodAutoscaler>>) {
    let target = |object: &Arc<PodAutoscaler>| {
        TargetKey::from_reference(key.namespace(), &object.spec.scale_target_ref).into_iter().collect()
    };
    index.apply(key, new.map(target), Priority::of_change(old, new));
}

fn owner<K: Resource>(index: &Index, key: &Key, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
    let owner = new.or(old).and_then(|object| controller(object.meta())).filter(|owner| owner.kind == "PodAutoscaler");
    if let Some(owner) = owner {
        index.queue.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
    }
}

impl Watches for Objects {
    fn follow<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, ()> {
        let (client, shutdown) = (&parts.writes.client, &parts.shutdown);
        self.autoscalers.spawn(Api::all(client.clone()), shutdown);
        self.serverless.spawn(Api::all(client.clone()), shutdown);
        self.metrics.spawn(Api::all(client.clone()), shutdown);
        async {
            self.autoscalers.synced().await;
            parts.stores.prepare_targets();
            self.serverless.synced().await;
            self.metrics.synced().await;
        }
        .boxed()
    }
}
