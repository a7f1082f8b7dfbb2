//! Whether a ZeroScaler breaks a rule, and what is in force if it does.
//!
//! A typing error must not keep a sleeping service from waking: of an edit that breaks a rule the version that was served last
//! stays in force, and so it does where the cluster refuses the target or the Service of the newest. Such a version is kept
//! packed, since it is needed only then, and stands in the status, which users cannot write: a process that comes later
//! reads it there.

use super::hpa::Hpa;
use super::scalers::{Scalers, translation};
use super::schedules;
use autoscaler_core::engine::Plan;
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use common_api::ZeroScaler;
use common_controller::packed::{Held, Packer};
use common_controller::version_of;
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// A ZeroScaler that breaks no rule.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// What it asks the metrics for; none: its load alone scales it.
    pub(crate) plan: Option<Arc<Plan>>,
    /// As it was written.
    pub(crate) original: Arc<ZeroScaler>,
}

/// Validates ZeroScalers, and remembers the last valid version of each.
pub(crate) struct Validation {
    hpa: Hpa,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    scalers: Arc<Scalers>,
    packer: Packer<ZeroScaler>,
    served: DashMap<Key, Kept>,
}

/// The version of a ZeroScaler that was served last, without its status.
struct Kept {
    /// Its resourceVersion.
    version: u64,
    /// Beside which it was valid.
    config: Arc<AutoscalerConfig>,
    held: Held<ZeroScaler>,
}

impl Validation {
    pub(crate) fn new(hpa: Hpa, config: watch::Receiver<Arc<AutoscalerConfig>>, scalers: Arc<Scalers>) -> Self {
        Self { hpa, config, scalers, packer: Packer::new(), served: DashMap::new() }
    }

    /// Returns what a ZeroScaler asks for: itself, or its last valid version.
    ///
    /// # Errors
    /// It breaks a rule, and no version that did not is known.
    pub(crate) fn accepted(&self, key: &Key, original: &Arc<ZeroScaler>) -> Result<Accepted, FieldErrors> {
        let kept = self.scalers.kept(key).filter(|kept| kept.metadata.uid == original.metadata.uid);
        if let Some((original, plan)) = kept.and_then(|kept| self.plan(&kept).ok().map(|plan| (kept, plan))) {
            return Ok(Accepted { plan, original }); // Its status says what is wrong with the newest.
        }
        self.newest(key, original).or_else(|errors| self.former(key, original).ok_or(errors))
    }

    /// What a ZeroScaler asks for as it is written now.
    ///
    /// # Errors
    /// It breaks a rule.
    pub(super) fn newest(&self, key: &Key, original: &Arc<ZeroScaler>) -> Result<Accepted, FieldErrors> {
        let config = self.config.borrow().clone();
        let checked = if self.is_served(key, original, &config) { Ok(()) } else { check(original, &config) };
        let ((), plan) = all_errors(checked, self.plan(original))?;
        Ok(Accepted { plan, original: original.clone() })
    }

    /// What the version of it that was served last asks for.
    pub(super) fn former(&self, key: &Key, original: &ZeroScaler) -> Option<Accepted> {
        let former = self.served_last(key).filter(|former| former.metadata.uid == original.metadata.uid);
        let former = former.or_else(|| self.written(original))?;
        let plan = self.plan(&former).ok()?;
        Some(Accepted { plan, original: former })
    }

    /// The version that the status says is in force, if it breaks no rule by itself. It may be the newest, and no longer
    /// within what the configuration allows: that keeps nobody from waking, whichever process leads.
    fn written(&self, original: &ZeroScaler) -> Option<Arc<ZeroScaler>> {
        let former = original.status.as_ref()?.in_force.as_ref()?.version_of(original)?;
        let is_good = done_without(former.validate()).is_ok() && schedules::check(&former.spec).is_ok();
        is_good.then(|| Arc::new(former))
    }

    /// The version that is in force, as far as this process knows it.
    pub(super) fn in_force(&self, key: &Key, original: &ZeroScaler) -> Option<Arc<ZeroScaler>> {
        let known = self.scalers.kept(key).or_else(|| self.served_last(key));
        known.filter(|known| known.metadata.uid == original.metadata.uid)
    }

    /// The version of a ZeroScaler that was served last, by this process.
    fn served_last(&self, key: &Key) -> Option<Arc<ZeroScaler>> {
        let kept = self.served.get(key).map(|kept| kept.held.clone())?;
        self.packer.take_out(&kept)
    }

    /// It is served as it is written.
    pub(super) fn serves(&self, key: &Key, original: &Arc<ZeroScaler>) {
        self.scalers.keep(key, None);
        let config = self.config.borrow().clone();
        if !self.is_served(key, original, &config) {
            // Its status is another version's by now, whenever this one is asked for.
            let version_alone = ZeroScaler { status: None, ..ZeroScaler::clone(original) };
            let held = self.packer.pack(Arc::new(version_alone));
            self.served.insert(key.clone(), Kept { version: version_of(&**original), config, held });
        }
    }

    /// Whether this very version was served last, and beside this very configuration.
    fn is_served(&self, key: &Key, object: &ZeroScaler, config: &Arc<AutoscalerConfig>) -> bool {
        let version = version_of(object);
        let is_it = |kept: &Kept| version != 0 && kept.version == version && Arc::ptr_eq(&kept.config, config);
        self.served.get(key).is_some_and(|kept| is_it(&kept))
    }

    /// A former version of it stays in force.
    pub(super) fn keeps(&self, key: &Key, former: &Accepted) {
        self.scalers.keep(key, Some(former.original.clone()));
    }

    fn plan(&self, original: &ZeroScaler) -> Result<Option<Arc<Plan>>, FieldErrors> {
        match self.hpa {
            Hpa::Engine => translation::metrics(original).map(|plan| plan.map(Arc::new)),
            Hpa::Off => Ok(None),
        }
    }

    /// Forgets one.
    pub(crate) fn forget(&self, key: &Key) {
        self.served.remove(key);
        self.scalers.keep(key, None);
    }
}

/// Whether it breaks a rule that it can be looked at by itself for.
fn check(object: &ZeroScaler, config: &AutoscalerConfig) -> Result<(), FieldErrors> {
    done_without(object.validate_in(config))?;
    request_time(object)?;
    schedules::check(&object.spec)
}

/// The same where it is a fallback's port alone that is wrong: that fallback is left out, and its condition says so. The
/// definition refuses such a port, and one that was stored before keeps nobody from waking.
fn done_without(checked: Result<(), FieldErrors>) -> Result<(), FieldErrors> {
    checked.or_else(|errors| errors.without("spec.wake.fallback.port").into_result())
}

/// Whether the time of a request is one: its form alone admits the thirtieth of February.
fn request_time(object: &ZeroScaler) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    if let Some(request) = object.spec.request.as_ref().filter(|request| request.at().is_none()) {
        errors.invalid_value(&request.at, "spec.request.at", "there is no such time");
    }
    errors.into_result()
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
