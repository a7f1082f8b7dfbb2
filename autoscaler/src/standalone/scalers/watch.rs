//! What fills the stores in standalone: ZeroScalers alone.

use super::Scalers;
use crate::reconcile::stores::Stores;
use common_api::ZeroScaler;
use common_controller::changes::{Change, watch};
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use kube::Client;
use kube::runtime::watcher::Config;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

impl Scalers {
    /// Fills `stores` until `shutdown`, in tasks of their own.
    pub(crate) fn follow(
        self: &Arc<Self>,
        stores: &Stores,
        (client, namespaces): (&Client, &Namespaces),
        shutdown: &CancellationToken,
    ) {
        self.enabled.follow((client, namespaces), shutdown);
        let (autoscalers, scalers) = (stores.autoscalers.clone(), self.clone());
        let (serverless, metrics) = (stores.serverless.clone(), stores.metrics.clone());
        let (reach, shutdown) = (namespaces.reach::<ZeroScaler>(client), shutdown.clone());
        tokio::spawn(async move {
            let mut changes = watch(reach, Config::default());
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = shutdown.cancelled() => None,
                };
                match change {
                    Some(Change::Applied(object)) => scalers.take(&autoscalers, object),
                    Some(Change::Gone(key)) => scalers.gone(&autoscalers, &key),
                    Some(Change::Listed) => {
                        autoscalers.listed();
                        // Of these there are none but what the passes make.
                        serverless.listed();
                        metrics.listed();
                    }
                    None => return,
                }
            }
        });
    }
}
