//! Choice of the component that evaluates the metrics of ZeroScalers.

use common_api::ZeroScaler;
use std::str::FromStr;

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
