//! Whether a PodAutoscaler breaks a rule, and what is in force if it does.
//!
//! A typing error in an annotation must not keep a sleeping service from waking: of an edit that breaks a rule the last
//! valid version stays in force. Such a version is kept packed, since it is needed only where a later one breaks a rule.
//! Of a ZeroScaler it is the last version that was served: one whose target or Service the cluster refuses changes
//! nothing either.

use super::hpa::Hpa;
use super::scalers::{Scalers, translation};
use super::unserved::NOT_SERVED;
use autoscaler_core::engine::Plan;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use common_api::{PodAutoscaler, ZeroScaler};
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
    /// The ZeroScaler that it stands for; none: a user wrote it.
    pub(crate) original: Option<Arc<ZeroScaler>>,
}

/// Validates PodAutoscalers, and remembers the last valid version of each.
pub(crate) struct Validation {
    hpa: Hpa,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    packer: Packer<PodAutoscaler>,
    last_valid: DashMap<Key, (Option<String>, Held<PodAutoscaler>)>,
    scalers: Arc<Scalers>,
    scaler_packer: Packer<ZeroScaler>,
    served: DashMap<Key, Kept>,
}

/// The version of a ZeroScaler that was served last.
struct Kept {
    version: Option<String>,
    /// Beside which it was valid.
    config: Arc<AutoscalerConfig>,
    held: Held<ZeroScaler>,
}

impl Validation {
    pub(crate) fn new(hpa: Hpa, config: watch::Receiver<Arc<AutoscalerConfig>>, scalers: Arc<Scalers>) -> Self {
        Self {
            hpa,
            config,
            packer: Packer::new(),
            last_valid: DashMap::new(),
            scalers,
            scaler_packer: Packer::new(),
            served: DashMap::new(),
        }
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
        if let Some(original) = self.original(key, object) {
            let kept = self.scalers.kept(key).filter(|kept| kept.metadata.uid == original.metadata.uid);
            if let Some((former, plan)) = kept.and_then(|kept| self.scaler_plan(&kept).ok().map(|plan| (kept, plan))) {
                return Ok((meaning(former, plan, &config), None)); // Its status says what is wrong with the newest.
            }
            return match self.newest(key, &original) {
                Ok(newest) => Ok((newest, None)),
                Err(errors) => match self.former(key, &original) {
                    Some(former) => Ok((former, Some(errors))),
                    None => Err(errors),
                },
            };
        }
        let served = if self.hpa.serves(object.annotations()) { Ok(()) } else { Err(unserved_class(object)) };
        let plan = self.hpa.plan(object.annotations());
        match all_errors(served, all_errors(object.validate_standalone(&config), plan)) {
            Ok(((), (settings, plan))) => {
                self.keep(key, object);
                Ok((Accepted { object: object.clone(), settings: Arc::new(settings), plan, original: None }, None))
            }
            Err(errors) => match self.last_valid(key, object) {
                Some(former) => Ok((former, Some(errors))),
                None => Err(errors),
            },
        }
    }

    /// The ZeroScaler that a PodAutoscaler stands for; none: a user wrote it.
    pub(super) fn original(&self, key: &Key, object: &PodAutoscaler) -> Option<Arc<ZeroScaler>> {
        self.scalers.get(key).filter(|original| original.metadata.uid == object.metadata.uid)
    }

    /// What a ZeroScaler asks for as it is written now.
    ///
    /// # Errors
    /// It breaks a rule.
    pub(super) fn newest(&self, key: &Key, original: &Arc<ZeroScaler>) -> Result<Accepted, FieldErrors> {
        let config = self.config.borrow().clone();
        let version = &original.metadata.resource_version;
        let is_known = self
            .served
            .get(key)
            .is_some_and(|kept| version.is_some() && kept.version == *version && Arc::ptr_eq(&kept.config, &config));
        let checked = if is_known { Ok(()) } else { original.validate_in(&config) };
        let ((), plan) = all_errors(checked, self.scaler_plan(original))?;
        Ok(meaning(original.clone(), plan, &config))
    }

    /// What the version of it that was served last asks for.
    pub(super) fn former(&self, key: &Key, original: &ZeroScaler) -> Option<Accepted> {
        let former = self.served_last(key).filter(|former| former.metadata.uid == original.metadata.uid)?;
        let plan = self.scaler_plan(&former).ok()?;
        Some(meaning(former, plan, &self.config.borrow()))
    }

    /// The version of a ZeroScaler that was served last, by this process.
    pub(super) fn served_last(&self, key: &Key) -> Option<Arc<ZeroScaler>> {
        let kept = self.served.get(key).map(|kept| kept.held.clone())?;
        self.scaler_packer.take_out(&kept)
    }

    /// It is served as it is written.
    pub(super) fn serves(&self, key: &Key, original: &Arc<ZeroScaler>) {
        self.scalers.keep(key, None);
        let (version, config) = (&original.metadata.resource_version, self.config.borrow().clone());
        let is_kept = self
            .served
            .get(key)
            .is_some_and(|kept| version.is_some() && kept.version == *version && Arc::ptr_eq(&kept.config, &config));
        if !is_kept {
            let held = self.scaler_packer.pack(original.clone());
            self.served.insert(key.clone(), Kept { version: version.clone(), config, held });
        }
    }

    /// A former version of it stays in force.
    pub(super) fn keeps(&self, key: &Key, former: &Accepted) {
        self.scalers.keep(key, former.original.clone());
    }

    fn scaler_plan(&self, original: &ZeroScaler) -> Result<Option<Arc<Plan>>, FieldErrors> {
        match self.hpa {
            Hpa::Engine => translation::metrics(original).map(|plan| plan.map(Arc::new)),
            Hpa::Off => Ok(None),
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
        Some(Accepted { object: former, settings: Arc::new(settings), plan, original: None })
    }

    /// Forgets one.
    pub(crate) fn forget(&self, key: &Key) {
        self.last_valid.remove(key);
        self.served.remove(key);
        self.scalers.keep(key, None);
    }
}

/// What a valid ZeroScaler asks for.
fn meaning(original: Arc<ZeroScaler>, plan: Option<Arc<Plan>>, config: &AutoscalerConfig) -> Accepted {
    let scale = &original.spec.scale;
    let object = translation::autoscaler(&original);
    let object = translation::with_windows(object, scale.window(config), scale.panic_window(config));
    let settings = Arc::new(translation::settings(&original, None));
    Accepted { object: Arc::new(object), settings, plan, original: Some(original) }
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
