//! Validation of ZeroScalers, and the choice of the version in force if the newest is invalid.
//!
//! A typing error must not keep a sleeping service from waking. If an edit is invalid, or the cluster rejects the
//! target or Service of the newest version, the version that was served last stays in force. That version is kept
//! packed in memory, because it is rarely needed. It is also in the status, which users cannot write, so a later
//! process can read it there.

use crate::standalone::admission::schedules;
use crate::standalone::scalers::Scalers;
use autoscaler_core::engine::{Plan, plan};
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use common_api::ZeroScaler;
use common_controller::{Store, version_of};
use kube::ResourceExt;
use std::str::FromStr;
use std::sync::Arc;
use tokio::sync::watch;

/// Component that evaluates the metrics of ZeroScalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hpa {
    /// This process, without HorizontalPodAutoscaler objects.
    #[default]
    Engine,
    /// None: metrics have no effect.
    Off,
}

impl Hpa {
    /// Explains why the metrics of an object have no effect. Returns `None` if they have an effect or the object has
    /// none.
    pub(crate) fn ignored(self, object: &ZeroScaler) -> Option<String> {
        let asks = !object.spec.metrics.is_empty() || object.spec.behavior.is_some();
        let rule = "spec.metrics and spec.behavior have no effect: the autoscaler runs with ZEROSCALE_HPA=off and evaluates no \
                    metrics. Set that variable to engine, or remove both fields";
        (asks && self == Self::Off).then(|| rule.to_owned())
    }
}

impl FromStr for Hpa {
    /// Text of the violated rule.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "engine" => Ok(Self::Engine),
            "off" => Ok(Self::Off),
            _ => Err("must be engine or off"),
        }
    }
}

/// Valid version of a ZeroScaler.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// Metrics to evaluate. `None`: only the load scales the workload.
    pub(crate) plan: Option<Arc<Plan>>,
    /// Version as the user wrote it.
    pub(crate) original: Arc<ZeroScaler>,
}

/// Validates ZeroScalers, and remembers the last valid version of each.
pub(crate) struct Validation {
    pub(super) hpa: Hpa,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    scalers: Arc<Scalers>,
    /// Version of each ZeroScaler that was served last, without its status.
    served: Store<ZeroScaler>,
}

impl Validation {
    pub(crate) fn new(hpa: Hpa, config: watch::Receiver<Arc<AutoscalerConfig>>, scalers: Arc<Scalers>) -> Self {
        Self { hpa, config, scalers, served: Store::packing(|_, _, _| {}) }
    }

    /// Returns the version in force: a former version that is kept, or else the newest if it is valid, or else the last
    /// valid one. Fails with the violations of the newest version if no valid version is known.
    pub(crate) fn accepted(&self, key: &Key, original: &Arc<ZeroScaler>) -> Result<Accepted, FieldErrors> {
        let former = self.scalers.former_version(key).filter(|former| former.metadata.uid == original.metadata.uid);
        if let Some((original, plan)) = former.and_then(|former| self.plan(&former).ok().map(|plan| (former, plan))) {
            return Ok(Accepted { plan, original }); // The status reports the fault of the newest version.
        }
        self.newest(original).or_else(|errors| self.former(key, original).ok_or(errors))
    }

    /// Validates the newest version. Fails with the violated rules.
    pub(crate) fn newest(&self, original: &Arc<ZeroScaler>) -> Result<Accepted, FieldErrors> {
        let mut errors = check(original, &self.config.borrow()).err().unwrap_or_default();
        match self.plan(original) {
            Ok(plan) if errors.is_empty() => return Ok(Accepted { plan, original: original.clone() }),
            Ok(_) => {}
            Err(others) => errors.extend(others),
        }
        Err(errors)
    }

    /// Returns the version that was served last, if it is known.
    pub(crate) fn former(&self, key: &Key, original: &ZeroScaler) -> Option<Accepted> {
        let former = self.served.get(key).filter(|former| former.metadata.uid == original.metadata.uid);
        let former = former.or_else(|| self.recorded_in_status(original))?;
        let plan = self.plan(&former).ok()?;
        Some(Accepted { plan, original: former })
    }

    /// Returns the version that the status records as in force, if it is valid by itself. It may be the newest version
    /// and violate limits of the present configuration: it still wakes, whichever process leads.
    fn recorded_in_status(&self, original: &ZeroScaler) -> Option<Arc<ZeroScaler>> {
        let former = original.status.as_ref()?.in_force.as_ref()?.version_of(original)?;
        let is_good = ignore_fallback_port(former.validate()).is_ok() && schedules::check(&former.spec).is_ok();
        is_good.then(|| Arc::new(former))
    }

    /// Returns the version in force, if this process knows it.
    pub(crate) fn in_force(&self, key: &Key, original: &ZeroScaler) -> Option<Arc<ZeroScaler>> {
        let known = self.scalers.former_version(key).or_else(|| self.served.get(key));
        known.filter(|known| known.metadata.uid == original.metadata.uid)
    }

    /// Records that the newest version is served.
    pub(crate) fn record_served(&self, key: &Key, original: &Arc<ZeroScaler>) {
        self.scalers.former.remove(key);
        if self.served.version(key) != Some(version_of(&**original)) {
            // By the time this version is needed, its status belongs to another version.
            let version_alone = ZeroScaler { status: None, ..ZeroScaler::clone(original) };
            self.served.apply(key, &original.resource_version().unwrap_or_default(), Some(version_alone));
        }
    }

    /// Returns the plan for the metrics, or `None` if only the load scales the workload.
    fn plan(&self, original: &ZeroScaler) -> Result<Option<Arc<Plan>>, FieldErrors> {
        let (metrics, behavior) = (original.spec.metrics.clone(), original.spec.behavior.clone());
        match self.hpa {
            Hpa::Engine => Ok(plan::plan(metrics, behavior)?.map(Arc::new)),
            Hpa::Off => Ok(None),
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.served.apply(key, "", None);
        self.scalers.former.remove(key);
    }
}

/// Checks the rules that concern the object alone.
fn check(object: &ZeroScaler, config: &AutoscalerConfig) -> Result<(), FieldErrors> {
    ignore_fallback_port(object.validate_in(config))?;
    request_time(object)?;
    schedules::check(&object.spec)
}

/// Ignores violations in the port of a fallback alone: the fallback is left out, and its condition says so. The
/// definition rejects such a port, so only objects stored before that rule have one, and they must still wake.
fn ignore_fallback_port(checked: Result<(), FieldErrors>) -> Result<(), FieldErrors> {
    checked.or_else(|errors| errors.without("spec.wake.fallback.port").into_result())
}

/// Checks that the time of a request exists: its form alone would admit February 30.
fn request_time(object: &ZeroScaler) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    if let Some(request) = object.spec.request.as_ref().filter(|request| request.at().is_none()) {
        let rule = "must be a time that exists, such as 2026-01-31T08:00:00Z";
        errors.invalid_value(&request.at, "spec.request.at", rule);
    }
    errors.into_result()
}
