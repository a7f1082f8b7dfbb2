//! What fills the stores in standalone: ZeroScalers, and beside them PodAutoscalers with what belongs to those.

use super::Scalers;
use crate::reconcile::stores::Stores;
use common_api::{Metric, PodAutoscaler, ServerlessService, ZeroScaler};
use common_controller::changes::{Change, watch};
use common_controller::{Kind, ObjectKey as Key, Store, key_of};
use futures::future::join4;
use futures::{FutureExt, StreamExt};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

impl Scalers {
    /// Fills `stores` until `shutdown`, in tasks of their own.
    pub(crate) fn follow(self: &Arc<Self>, stores: &Stores, client: &Client, shutdown: &CancellationToken) {
        self.enabled.follow(self, client, shutdown);
        let (autoscalers, scalers) = (stores.autoscalers.clone(), self.clone());
        let scalers_listed = each::<ZeroScaler>(client, shutdown, move |change| match change {
            Ok(object) => scalers.take(&autoscalers, object),
            Err(key) => scalers.gone(&autoscalers, &key),
        });
        let listed = [
            self.beside::<PodAutoscaler>(&stores.autoscalers, client, shutdown),
            self.beside::<ServerlessService>(&stores.serverless, client, shutdown),
            self.beside::<Metric>(&stores.metrics, client, shutdown),
        ];
        let [autoscalers_listed, serverless_listed, metrics_listed] = listed;
        let (autoscalers, serverless, metrics) =
            (stores.autoscalers.clone(), stores.serverless.clone(), stores.metrics.clone());
        tokio::spawn(join4(scalers_listed, autoscalers_listed, serverless_listed, metrics_listed).map(move |lists| {
            // A list that never came to its end is one of a process that ends.
            if matches!(lists, (Ok(()), Ok(()), Ok(()), Ok(()))) {
                autoscalers.listed();
                serverless.listed();
                metrics.listed();
            }
        }));
    }

    /// Objects of the API server that have no ZeroScaler's name.
    fn beside<K: Kind>(
        self: &Arc<Self>,
        store: &Arc<Store<K>>,
        client: &Client,
        shutdown: &CancellationToken,
    ) -> oneshot::Receiver<()> {
        let (scalers, store) = (self.clone(), store.clone());
        each::<K>(client, shutdown, move |change| match change {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                let (key, version) = (key_of(&object), object.resource_version().unwrap_or_default());
                if !scalers.has(&key) {
                    store.apply(&key, &version, Some(object));
                }
            }
            Err(key) if !scalers.has(&key) => store.apply(&key, "", None),
            Err(_) => {}
        })
    }
}

/// Tells `hear` of each object, or of the name of one that is gone. The receiver hears when all have been listed once.
fn each<K: Kind>(
    client: &Client,
    shutdown: &CancellationToken,
    mut hear: impl FnMut(Result<K, Key>) + Send + 'static,
) -> oneshot::Receiver<()> {
    let (tell, listed) = oneshot::channel();
    let (api, shutdown, mut tell) = (Api::<K>::all(client.clone()), shutdown.clone(), Some(tell));
    tokio::spawn(async move {
        let mut changes = watch(api, Config::default());
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = shutdown.cancelled() => None,
            };
            match change {
                Some(Change::Applied(object)) => hear(Ok(object)),
                Some(Change::Gone(key)) => hear(Err(key)),
                Some(Change::Listed) => {
                    if let Some(tell) = tell.take() {
                        let _ = tell.send(()); // Nobody waits in a process that ends.
                    }
                }
                None => return,
            }
        }
    });
    listed
}
