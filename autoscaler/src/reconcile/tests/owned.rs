//! ServerlessServices that a script of the API server sees each change of, and whose Services and slices are nevertheless
//! owned by the ZeroScaler, as those of the process are.

use super::super::error::Error;
use super::super::records::Children;
use common::RevisionKey as Key;
use common_api::{ServerlessService, ServerlessServiceStatus, ZeroScaler};
use common_controller::{Statuses, WriteError};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// Objects of the API server.
pub(super) struct OfScalers(pub(super) Arc<dyn Children<ServerlessService>>);

impl Statuses<ServerlessService> for OfScalers {
    fn write<'a>(
        &'a self,
        read: &'a Arc<ServerlessService>,
        status: ServerlessServiceStatus,
    ) -> BoxFuture<'a, Result<(), WriteError>> {
        self.0.write(read, status)
    }

    fn complain(&self, object: &ServerlessService, reason: &str, message: String) {
        self.0.complain(object, reason, message);
    }
}

impl Children<ServerlessService> for OfScalers {
    fn create<'a>(
        &'a self,
        revision: &'a Key,
        object: ServerlessService,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<ServerlessService>, Error>> {
        self.0.create(revision, object, doing)
    }

    fn replace<'a>(
        &'a self,
        revision: &'a Key,
        object: ServerlessService,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<ServerlessService>, Error>> {
        self.0.replace(revision, object, doing)
    }

    fn delete<'a>(&'a self, revision: &'a Key, doing: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.0.delete(revision, doing)
    }

    fn reference(&self, object: &ServerlessService) -> OwnerReference {
        let kind = ZeroScaler::kind(&()).into_owned();
        OwnerReference { kind, uid: object.uid().unwrap_or_default(), ..self.0.reference(object) }
    }

    fn forget(&self, revision: &Key) {
        self.0.forget(revision);
    }

    fn outlives_process(&self, revision: &Key) -> bool {
        self.0.outlives_process(revision)
    }
}
