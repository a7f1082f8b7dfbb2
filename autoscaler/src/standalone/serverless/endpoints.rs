//! Step 4 of a pass: the EndpointSlices of the public Service, and what others left behind of them.

use super::services::Common;
use super::slices::{self, Route, Write};
use super::{Pass, Public, adopt, backend};
use crate::reconcile::error::Error;
use crate::reconcile::stores::facts::Target;
use common::RevisionKey as Key;
use common::names;
use common_api::Mode;
use common_api::serverlessservice_status::Pending;
use common_controller::{BoundedApi, WriteError};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use std::sync::Arc;

impl Pass<'_> {
    /// `led`: the slices of the private Service, where we write them.
    pub(super) async fn endpoints(
        &mut self,
        public: &Public,
        common: &Common,
        target: &Target,
        led: Option<Vec<Arc<EndpointSlice>>>,
    ) -> Result<(), Error> {
        let (controller, key) = (self.controller, self.key);
        let name = public.service.name_any();
        let public_key = Key::new(key.namespace(), name.as_str());
        let private_key = Key::new(key.namespace(), self.status.private_service_name.as_str());
        let private = led.unwrap_or_else(|| controller.cluster.slices_of(&private_key));
        let activators = controller.cluster.activators();
        let outcome = slices::desired(&slices::Inputs {
            namespace: key.namespace(),
            service: &name,
            ports: &public.ports,
            mode: self.object.spec.mode.unwrap_or(Mode::Proxy),
            num_activators: self.object.spec.num_activators,
            target: key.name(),
            traffic_port: common.protocol.port_name(),
            activator_port: backend::activator_port(common.protocol),
            private: &private,
            activators: &activators,
            labels: common.labels_of(names::SERVICE_TYPE_PUBLIC),
            owner: common.owner.clone(),
        });
        // Where no activator is ready either, nobody is led back to pods that are about to go: an activator is there
        // sooner than everybody has forgotten them.
        let asleep = target.current() == 0 || controller.leaving.is_leaving(key);
        if outcome.route == Route::Pods
            && outcome.pods_ready > 0
            && asleep
            && self.object.spec.mode == Some(Mode::Proxy)
        {
            return Ok(());
        }
        // A Service that has its selector back has slices that are none of our business again.
        let returned = public.adopted && adopt::needs_adoption(&public.service);
        let existing = controller.cluster.slices_of(&public_key);
        let writes = slices::writes(&existing, outcome.slices);
        for write in writes {
            match write {
                Write::Update(slice) => {
                    let doing = "failed to update public EndpointSlice";
                    controller.writes.replace(key, &controller.cluster.slices, &*slice, doing).await?;
                }
                Write::Create(slice) => {
                    self.status.mark_pending(Pending::CreatingPublicEndpoints, self.now);
                    let doing = "failed to create public EndpointSlice";
                    controller.writes.create(key, &controller.cluster.slices, &*slice, doing).await?;
                }
                Write::Delete(_) if returned => {}
                Write::Delete(slice) => {
                    let left_behind = existing.iter().any(|e| e.name_any() == slice && !slices::is_ours(e));
                    if left_behind {
                        self.delete_endpoints(&name).await?;
                    }
                    let slice = Key::new(key.namespace(), slice);
                    controller
                        .writes
                        .delete(key, &controller.cluster.slices, &slice, "failed to delete EndpointSlice")
                        .await?;
                }
            }
        }
        if outcome.pods_ready > 0 {
            self.status.mark_endpoints_populated(self.now);
        } else {
            self.status.mark_pending(Pending::NoHealthyBackends, self.now);
        }
        self.status.mark_activators_in_path(outcome.route == Route::Activators, self.now);
        Ok(())
    }

    /// What Kubernetes' endpoints controller left behind of an adopted Service. It writes it anew once the selector is
    /// back.
    async fn delete_endpoints(&self, name: &str) -> Result<(), Error> {
        let (doing, key) = (format!("failed to delete Endpoints {name}"), Key::new(self.key.namespace(), name));
        let delete =
            async |api: BoundedApi| api.delete::<Endpoints>(&key, None).await.map_err(WriteError::api(doing.as_str()));
        self.controller.writes.writer().write(self.key, &doing, delete).await?;
        Ok(())
    }
}
