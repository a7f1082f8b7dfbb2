//! Whether a PodAutoscaler breaks a rule, and what is in force if it does.
//!
//! A typing error in an annotation must not keep a sleeping service from waking: of an edit that breaks a rule the last
//! valid version stays in force. Such a version is kept packed, since it is needed only where a later one breaks a rule.

use super::hpa::Hpa;
use super::unserved::NOT_SERVED;
use autoscaler_core::engine::Plan;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use common_api::PodAutoscaler;
use common_controller::packed::{Held, Packer};
use dashmap::DashMap;
use kube::ResourceExt;
use std::sync::Arc;
use tokio::sync::watch;

/// A PodAutoscaler that breaks no rule.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) object: Arc<PodAutoscaler>,
    /// Its annotations of our own.
    pub(crate) settings: Arc<Settings>,
    /// What it asks the metrics for; none: its load alone scales it.
    pub(crate) plan: Option<Arc<Plan>>,
}

/// Validates PodAutoscalers, and remembers the last valid version of each.
pub(crate) struct Validation {
    hpa: Hpa,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    packer: Packer<PodAutoscaler>,
    last_valid: DashMap<Key, (Option<String>, Held<PodAutoscaler>)>,
}

impl Validation {
    pub(crate) fn new(hpa: Hpa, config: watch::Receiver<Arc<AutoscalerConfig>>) -> Self {
        Self { hpa, config, packer: Packer::new(), last_valid: DashMap::new() }
    }

    /// What a PodAutoscaler asks for: itself, or its last valid version, with the rules that it breaks now.
    ///
    /// # Errors
    /// It breaks a rule, and no version that did not is known.
    pub(crate) fn accepted(
        &self,
        key: &Key,
        object: &Arc<PodAutoscaler>,
    ) -> Result<(Accepted, Option<FieldErrors>), FieldErrors> {
        let config = self.config.borrow().clone();
        let served = if self.hpa.serves(object.annotations()) { Ok(()) } else { Err(unserved_class(object)) };
        let plan = self.hpa.plan(object.annotations());
        match all_errors(served, all_errors(object.validate_standalone(&config), plan)) {
            Ok(((), (settings, plan))) => {
                self.keep(key, object);
                Ok((Accepted { object: object.clone(), settings: Arc::new(settings), plan }, None))
            }
            Err(errors) => match self.last_valid(key, object) {
                Some(former) => Ok((former, Some(errors))),
                None => Err(errors),
            },
        }
    }

    fn keep(&self, key: &Key, object: &Arc<PodAutoscaler>) {
        let version = &object.metadata.resource_version;
        let is_kept = self.last_valid.get(key).is_some_and(|kept| version.is_some() && kept.0 == *version);
        if !is_kept {
            self.last_valid.insert(key.clone(), (version.clone(), self.packer.pack(object.clone())));
        }
    }

    /// The last valid version of this very object.
    fn last_valid(&self, key: &Key, object: &PodAutoscaler) -> Option<Accepted> {
        let kept = self.last_valid.get(key)?.1.clone();
        let former = self.packer.take_out(&kept).filter(|former| former.metadata.uid == object.metadata.uid)?;
        let settings = Settings::read(former.annotations()).ok()?;
        let plan = self.hpa.plan(former.annotations()).ok()?;
        Some(Accepted { object: former, settings: Arc::new(settings), plan })
    }

    /// Forgets one.
    pub(crate) fn forget(&self, key: &Key) {
        self.last_valid.remove(key);
    }
}

/// Both, or the errors of both.
fn all_errors<A, B>(a: Result<A, FieldErrors>, b: Result<B, FieldErrors>) -> Result<(A, B), FieldErrors> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(errors), Ok(_)) | (Ok(_), Err(errors)) => Err(errors),
        (Err(mut errors), Err(others)) => {
            errors.extend("", others);
            Err(errors)
        }
    }
}

fn unserved_class(object: &PodAutoscaler) -> FieldErrors {
    let (class, path) = (annotations::class(object.annotations()), annotations::CLASS.name);
    let mut errors = FieldErrors::new();
    errors.invalid_value(class, format!("metadata.annotations.{path}"), NOT_SERVED);
    errors
}
