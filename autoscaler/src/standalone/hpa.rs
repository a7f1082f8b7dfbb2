//! Who looks at the metrics that ZeroScalers ask for, and what follows from it.

use common_api::ZeroScaler;
use std::str::FromStr;

/// Who looks at the metrics of ZeroScalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hpa {
    /// This process, without HorizontalPodAutoscaler objects.
    #[default]
    Engine,
    /// Nobody: they have no effect.
    Off,
}

impl Hpa {
    /// Why metrics that are asked for have no effect, if they have none.
    pub(crate) fn ignored(self, object: &ZeroScaler) -> Option<String> {
        let asks = !object.spec.metrics.is_empty() || object.spec.behavior.is_some();
        let rule = "spec.metrics and spec.behavior have no effect: ZEROSCALE_HPA is off, so nobody looks at metrics";
        (asks && self == Self::Off).then(|| rule.to_owned())
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
