//! The two objects that a pass makes and keeps: Metric and ServerlessService. An existing one is put right
//! ([`corrected`]); one that somebody else controls is left alone and told in the status.

use super::super::error::Error;
use super::{Pass, objects};
use common_api::{Mode, PodAutoscaler, ServerlessService};
use common_controller::WriteError;
use common_controller::objects::{controller, corrected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

impl Pass<'_> {
    pub(super) async fn ensure_metric(&mut self, object: &PodAutoscaler, scrape_target: &str) -> Result<(), Error> {
        let (cx, key) = (self.cx, self.key);
        let config = cx.autoscaler_config.borrow().clone();
        let want = objects::metric(object, cx.mode, &config, scrape_target);
        let Some(have) = cx.world.metrics.get(key) else {
            cx.create(key, &cx.world.metrics, &want, "error creating metric").await?;
            return Ok(());
        };
        if !self.owns(&have.metadata) {
            self.status.mark_not_owned("Metric", key.name(), self.now);
            let owner = format!("PA: {}", key.name());
            return Err(WriteError::NotOwned { owner, kind: "Metric", name: key.name().to_owned() }.into());
        }
        if let Some(next) = corrected(&*have, &want) {
            cx.replace(key, &cx.world.metrics, &next, "error updating metric").await?;
        }
        Ok(())
    }

    pub(super) async fn ensure_serverless(
        &mut self,
        object: &PodAutoscaler,
        have: Option<Arc<ServerlessService>>,
        mode: Mode,
        number: i32,
    ) -> Result<Arc<ServerlessService>, Error> {
        let (cx, key) = (self.cx, self.key);
        let during = Error::during("error reconciling SKS");
        let want = objects::serverless(object, cx.mode, mode, number);
        let Some(have) = have else {
            let created = cx.create(key, &cx.world.serverless, &want, "error creating SKS").await;
            return created.map(Arc::new).map_err(during);
        };
        if !self.owns(&have.metadata) {
            self.status.mark_not_owned("ServerlessService", key.name(), self.now);
            let owner = format!("PA: {}", key.name());
            return Err(during(WriteError::NotOwned { owner, kind: "SKS", name: key.name().to_owned() }.into()));
        }
        let Some(next) = corrected(&*have, &want) else { return Ok(have) };
        if next.spec != have.spec {
            tracing::info!(revision = %key, ?mode, number, "path");
        }
        let replaced = cx.replace(key, &cx.world.serverless, &next, "error updating SKS").await;
        replaced.map(Arc::new).map_err(during)
    }

    fn owns(&self, meta: &ObjectMeta) -> bool {
        controller(meta).is_some_and(|owner| Some(&owner.uid) == self.object.metadata.uid.as_ref())
    }
}
