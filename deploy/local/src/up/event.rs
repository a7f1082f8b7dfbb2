//! What a cluster tells whoever looks on: a person, or a test.

use activator::ColdStart;
use autoscaler::ScaleEvent;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Something worth telling.
#[derive(Clone, Debug)]
pub enum Event {
    /// An autoscaler changed the replicas of a target.
    Scale(ScaleEvent),
    /// A request that had to be held was answered.
    ColdStart {
        /// What its activator saw.
        cold: ColdStart,
        /// Time at which the autoscaler's patch had been answered that gave the workload its pods; it names the wake.
        scaled: Option<Instant>,
    },
    /// A plane became ready or ceased to be.
    Plane {
        /// Its pod name.
        name: String,
        /// Whether it answers its probe.
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
                let p = Phases::of(cold, *scaled);
                write!(
                    f,
                    "cold start  {}  {} = signal {} + scale {} + pod {} + probe {} + forward {}",
                    cold.key,
                    ms(cold.total()),
                    ms(p.signal),
                    ms(p.scale),
                    ms(p.pod),
                    ms(p.probe),
                    ms(p.forward)
                )
            }
            Event::Plane { name, ready } => {
                write!(f, "plane       {name}  {}", if *ready { "ready" } else { "not ready" })
            }
        }
    }
}

/// The parts of a cold start, as both planes saw it together; they add up to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// From the request to the stat on its way to the autoscaler.
    pub signal: Duration,
    /// To the answered patch of the replicas.
    pub scale: Duration,
    /// To the address of a pod: controllers, node and EndpointSlice.
    pub pod: Duration,
    /// To a probe that passed: the program's own start.
    pub probe: Duration,
    /// To the first byte of the answer.
    pub forward: Duration,
}

impl Phases {
    /// Splits what the activator saw at the instant at which the patch was answered.
    pub fn of(cold: &ColdStart, scaled: Option<Instant>) -> Self {
        let seen = cold.phases();
        let signalled = cold.received + seen.signal;
        let known = signalled + seen.scale;
        let scaled = scaled.unwrap_or(signalled).clamp(signalled, known);
        Self {
            signal: seen.signal,
            scale: scaled - signalled,
            pod: known - scaled,
            probe: seen.probe,
            forward: seen.release + seen.answer,
        }
    }
}

/// Milliseconds with one decimal.
fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
