//! Who looks at the metrics that PodAutoscalers ask for.

use std::str::FromStr;

/// Who looks at the metrics of PodAutoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hpa {
    /// This process, without HorizontalPodAutoscaler objects.
    #[default]
    Engine,
    /// Nobody: class HPA is not served, and metrics in annotations have no effect.
    Off,
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
