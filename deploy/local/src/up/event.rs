//! Events of a cluster, for a person or a test.

use activator::ColdStart;
use autoscaler::ScaleEvent;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// An event of a cluster.
#[derive(Clone, Debug)]
pub enum Event {
    /// An autoscaler changed the replicas of a target.
    Scale(ScaleEvent),
    /// A held request got its response.
    ColdStart {
        /// Times observed by the activator.
        cold: ColdStart,
        /// Time of the response to the autoscaler's patch that gave the workload its pods. It identifies the wake.
        scaled: Option<Instant>,
    },
    /// A plane became ready or unready.
    Plane {
        /// Name of its pod.
        name: String,
        /// True if its readiness probe passes.
        ready: bool,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Scale(scale) => {
                write!(f, "scale       {}  {} -> {}  ({})", scale.key, scale.from, scale.to, scale.reason)
            }
            Event::ColdStart { cold, scaled } => {
                let p = Phases::from_cold_start(cold, *scaled);
                let times = [cold.total(), p.signal, p.scale, p.pod, p.probe, p.forward];
                let [total, signal, scale, pod, probe, forward] = times.map(ms);
                write!(f, "cold start  {}  {total} = signal {signal} + scale {scale} + pod {pod}", cold.key)?;
                write!(f, " + probe {probe} + forward {forward}")
            }
            Event::Plane { name, ready } => {
                write!(f, "plane       {name}  {}", if *ready { "ready" } else { "not ready" })
            }
        }
    }
}

/// Phases of a cold start, from the times of both planes. They add up to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Time from the request to the sending of the stat.
    pub signal: Duration,
    /// Until the response to the patch of the replicas.
    pub scale: Duration,
    /// Until a pod address is known: controllers, node and EndpointSlice.
    pub pod: Duration,
    /// Until a probe passes: the start of the program.
    pub probe: Duration,
    /// Until the first byte of the response.
    pub forward: Duration,
}

impl Phases {
    /// Splits the activator's phase `scale` at `scaled`, the time of the response to the autoscaler's patch.
    pub fn from_cold_start(cold: &ColdStart, scaled: Option<Instant>) -> Self {
        let phases = cold.phases();
        let signalled = cold.received + phases.signal;
        let known = signalled + phases.scale;
        let scaled = scaled.unwrap_or(signalled).clamp(signalled, known);
        Self {
            signal: phases.signal,
            scale: scaled - signalled,
            pod: known - scaled,
            probe: phases.probe,
            forward: phases.release + phases.answer,
        }
    }
}

/// Formats milliseconds with one decimal.
fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
