//! What a cluster tells whoever looks on: a person, or a test.

use activator::ColdStart;
use autoscaler::ScaleEvent;
use std::fmt;
use std::time::Duration;

/// Something worth telling.
#[derive(Clone, Debug)]
pub enum Event {
    /// An autoscaler changed the replicas of a target.
    Scale(ScaleEvent),
    /// A request that had to be held was answered.
    ColdStart(ColdStart),
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
            Event::ColdStart(cold) => {
                let p = cold.phases();
                write!(
                    f,
                    "cold start  {}  {} = signal {} + scale {} + probe {} + release {} + answer {}",
                    cold.key,
                    ms(cold.total()),
                    ms(p.signal),
                    ms(p.scale),
                    ms(p.probe),
                    ms(p.release),
                    ms(p.answer)
                )
            }
            Event::Plane { name, ready } => {
                write!(f, "plane       {name}  {}", if *ready { "ready" } else { "not ready" })
            }
        }
    }
}

/// Milliseconds with one decimal.
fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
