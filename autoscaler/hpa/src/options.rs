//! Options of the HorizontalPodAutoscaler controller, with the flags of Kubernetes' controller manager.

use clap::{Args, Parser, ValueEnum};
use common::golang;
use hpa_core::options::{Gates, Options as Rules};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Mode of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HpaMode {
    /// Evaluate objects of `autoscaling/v2` instead of Kubernetes' own controller.
    Native,
    /// Create such objects for PodAutoscalers of class HPA, as Knative does, for another controller to evaluate.
    Delegate,
}

/// Options of the controller, and its flags.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ControllerOptions {
    /// Number of concurrently evaluated HorizontalPodAutoscalers.
    #[arg(long = "concurrent-horizontal-pod-autoscaler-syncs", default_value = "5")]
    pub concurrent_syncs: NonZeroUsize,
    /// Interval between two evaluations of one HorizontalPodAutoscaler.
    #[arg(long = "horizontal-pod-autoscaler-sync-period", default_value = "15s", value_parser = sync_period)]
    pub sync_period: Duration,
    /// Time for which recommendations hold back a scale-down, unless the object sets one.
    #[arg(long = "horizontal-pod-autoscaler-downscale-stabilization", default_value = "5m", value_parser = duration)]
    pub downscale_stabilization: Duration,
    /// Share of its target by which a metric may differ without an effect.
    #[arg(long = "horizontal-pod-autoscaler-tolerance", default_value = "0.1", value_parser = tolerance)]
    pub tolerance: f64,
    /// Time after the start of a pod during which its cpu counts only if the pod is ready.
    #[arg(long = "horizontal-pod-autoscaler-cpu-initialization-period", default_value = "5m", value_parser = duration)]
    pub cpu_initialization_period: Duration,
    /// Time after the start of a pod. A pod that became unready within this time counts as never ready.
    #[arg(long = "horizontal-pod-autoscaler-initial-readiness-delay", default_value = "30s", value_parser = duration)]
    pub initial_readiness_delay: Duration,
    /// Feature gates `HPAScaleToZero=true|false` and `HPAConfigurableTolerance=true|false`, separated by commas.
    #[arg(long = "feature-gates", default_value = "", value_parser = gates)]
    pub gates: Gates,
}

/// Command line with only these flags.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    options: ControllerOptions,
}

/// The defaults of the flags.
impl Default for ControllerOptions {
    fn default() -> Self {
        Flags::parse_from([""]).options
    }
}

impl ControllerOptions {
    pub(crate) fn rules(&self) -> Rules {
        let Self { tolerance, downscale_stabilization, cpu_initialization_period, initial_readiness_delay, .. } = *self;
        Rules { tolerance, downscale_stabilization, cpu_initialization_period, initial_readiness_delay }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = golang::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < golang::GoDuration::ZERO { Err("must not be negative".to_owned()) } else { Ok(duration.to_std()) }
}

/// Parses a sync period in Go's syntax. Fails if the period is not positive. Upstream crashes on such a period.
pub fn sync_period(text: &str) -> Result<Duration, String> {
    duration(text)
        .and_then(|duration| if duration.is_zero() { Err("must be positive".to_owned()) } else { Ok(duration) })
}

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = golang::parse_float(text).map_err(|error| error.to_string())?;
    if tolerance >= 0.0 { Ok(tolerance) } else { Err("must be a share of the target, at least 0".to_owned()) }
}

fn gates(text: &str) -> Result<Gates, String> {
    let mut gates = Gates::default();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} must be GATE=true or GATE=false"))?;
        let value = value.parse().map_err(|_| format!("{pair:?}: {value:?} must be true or false"))?;
        match name {
            "HPAScaleToZero" => gates.scale_to_zero = value,
            "HPAConfigurableTolerance" => gates.configurable_tolerance = value,
            _ => {
                return Err(format!(
                    "{name:?} is not a supported feature gate: use HPAScaleToZero or HPAConfigurableTolerance"
                ));
            }
        }
    }
    Ok(gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<ControllerOptions, String> {
        let all = ["x"].iter().chain(args);
        Flags::try_parse_from(all).map(|flags| flags.options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_match_upstream() {
        let options = ControllerOptions::default();
        assert_eq!((options.rules(), options.gates), (Rules::default(), Gates::default()));
        assert_eq!((options.concurrent_syncs.get(), options.sync_period), (5, Duration::from_secs(15)));
        assert_eq!(parse(&[]), Ok(options));
    }

    #[test]
    fn names_and_bounds_of_the_flags_match_upstream() {
        let options = parse(&[
            "--concurrent-horizontal-pod-autoscaler-syncs=2",
            "--horizontal-pod-autoscaler-sync-period=1m",
            "--horizontal-pod-autoscaler-downscale-stabilization=0",
            "--horizontal-pod-autoscaler-tolerance=0",
            "--feature-gates=HPAScaleToZero=true,HPAConfigurableTolerance=false",
        ])
        .expect("valid");
        assert_eq!((options.concurrent_syncs.get(), options.sync_period), (2, Duration::from_secs(60)));
        assert_eq!((options.downscale_stabilization, options.tolerance), (Duration::ZERO, 0.0));
        assert!(options.gates.scale_to_zero && !options.gates.configurable_tolerance);
        for (bad, expected) in [
            ("--concurrent-horizontal-pod-autoscaler-syncs=0", "zero"),
            ("--horizontal-pod-autoscaler-sync-period=0s", "must be positive"),
            ("--horizontal-pod-autoscaler-sync-period=-1s", "must not be negative"),
            ("--horizontal-pod-autoscaler-tolerance=-0.1", "at least 0"),
            ("--horizontal-pod-autoscaler-tolerance=NaN", "at least 0"),
            ("--feature-gates=HPAScaleToZero", "must be GATE=true"),
            ("--feature-gates=HPAScaleToZero=yes", "must be true or false"),
            ("--feature-gates=Nope=true", "is not a supported feature gate"),
        ] {
            let error = parse(&[bad]).expect_err(bad);
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }
}
