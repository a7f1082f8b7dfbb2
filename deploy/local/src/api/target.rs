//! Reference to an object, which may not exist.

use std::sync::Arc;

use super::resource::Resource;
use super::status::ApiError;
use super::store::Object;

/// Reference to an object by its path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    /// Namespace; empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Target<'a> {
    /// Returns the reference to a known object.
    pub(crate) fn new(resource: &'a Arc<Resource>, object: &'a Object) -> Self {
        let (namespace, name) = (object.text("/metadata/namespace"), object.text("/metadata/name"));
        Target { resource, namespace, name }
    }

    pub(crate) fn key(&self) -> String {
        self.resource.key(self.namespace, self.name)
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource, self.name)
    }

    pub(crate) fn conflict(&self, why: &str) -> ApiError {
        ApiError::conflict(self.resource, self.name, why)
    }
}
