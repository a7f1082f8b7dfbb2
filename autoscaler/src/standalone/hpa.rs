//! Who looks at the metrics that PodAutoscalers ask for, and what follows from it.

use autoscaler_core::engine::Plan;
use common::annotations::{self, Annotations};
use common::field::FieldErrors;
use common_api::ZeroScaler;
use std::str::FromStr;
use std::sync::Arc;

/// Who looks at the metrics of PodAutoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hpa {
    /// This process, without HorizontalPodAutoscaler objects.
    #[default]
    Engine,
    /// Nobody: class HPA is not served, and metrics in annotations have no effect.
    Off,
}

impl Hpa {
    /// Whether PodAutoscalers of that class are scaled.
    pub(crate) fn serves(self, annotations: &Annotations) -> bool {
        annotations::is_kpa(annotations) || (annotations::is_hpa(annotations) && self == Self::Engine)
    }

    /// What the metrics are asked for; none: nothing, or nobody asks them.
    ///
    /// # Errors
    /// The annotations break a rule.
    pub(crate) fn plan(self, annotations: &Annotations) -> Result<Option<Arc<Plan>>, FieldErrors> {
        match self {
            Self::Engine => {
                let plan = crate::engine::annotations::read(annotations).map_err(|found| {
                    let mut errors = FieldErrors::new();
                    errors.extend("metadata.annotations.", found);
                    errors
                })?;
                Ok(plan.map(Arc::new))
            }
            Self::Off => Ok(None),
        }
    }

    /// The same of a ZeroScaler.
    pub(crate) fn ignored_of(self, object: &ZeroScaler) -> Option<String> {
        let asks = !object.spec.metrics.is_empty() || object.spec.behavior.is_some();
        let rule = "spec.metrics and spec.behavior have no effect: ZEROSCALE_HPA is off, so nobody looks at metrics";
        (asks && self == Self::Off).then(|| rule.to_owned())
    }

    /// An annotation that asks for metrics although nobody looks at them, and why it has no effect.
    pub(crate) fn ignored(self, annotations: &Annotations) -> Option<String> {
        let asked = [annotations::METRICS, annotations::BEHAVIOR].into_iter().find_map(|key| key.entry(annotations));
        let (name, _) = asked.filter(|_| self == Self::Off)?;
        Some(format!("{name} has no effect: ZEROSCALE_HPA is off, so nobody looks at metrics"))
    }
}

impl FromStr for Hpa {
    /// The rule that is broken.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "engine" => Ok(Self::Engine),
            "off" => Ok(Self::Off),
            _ => Err("must be engine or off"),
        }
    }
}
