//! Timeline of one cold start.
//!
//! A request that finds no capacity passes these instants in this order. If an instant lies before the request (a pod
//! was already known, another request had already signalled), its phase has no duration.
//!
//! | phase | from | to |
//! |---|---|---|
//! | signal | the request head was read | its stat was written to the autoscaler's socket |
//! | scale | the stat was written | the first address of a pod was known |
//! | probe | the address was known | a probe of it passed |
//! | release | the probe passed | the request was on its way to the pod |
//! | answer | the request was on its way | the response head arrived |

use common::RevisionKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Callback for each request that found no capacity, as soon as the first byte of its response is on the way. It is
/// also called once a pod is ready, if the wake had only waiting pages.
pub type OnColdStart = Arc<dyn Fn(&ColdStart) + Send + Sync>;

/// Instants of one cold start.
#[derive(Clone, Debug, PartialEq)]
pub struct ColdStart {
    /// Revision that was woken.
    pub key: RevisionKey,
    /// Time at which the request head had been read.
    pub received: Instant,
    /// Time at which the first stat was written to the socket; `None` if the stat link was down all the time.
    pub signalled: Option<Instant>,
    /// Time at which the first pod address became known.
    pub address_known: Instant,
    /// Time at which the first probe passed.
    pub probed: Instant,
    /// Time at which the request was handed to a pod's connection.
    pub released: Instant,
    /// Time at which the response head arrived.
    pub first_byte: Instant,
}

/// Durations of the phases of one cold start; they add up to the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Time until the autoscaler was notified.
    pub signal: Duration,
    /// Time until a pod's address was known: the autoscaler, the API server, the scheduler and the node.
    pub scale: Duration,
    /// Time until the pod accepted a probe: the start of the program.
    pub probe: Duration,
    /// Time until the request was on its way.
    pub release: Duration,
    /// Time until the pod responded.
    pub answer: Duration,
}

impl ColdStart {
    /// Splits the total into its phases. Instants outside the order are moved to the nearest bound.
    pub fn phases(&self) -> Phases {
        let mut at = self.received;
        let mut next = |instant: Instant| {
            let instant = instant.clamp(at, self.first_byte.max(at));
            let phase = instant - at;
            at = instant;
            phase
        };
        Phases {
            signal: next(self.signalled.unwrap_or(self.received)),
            scale: next(self.address_known),
            probe: next(self.probed),
            release: next(self.released),
            answer: next(self.first_byte),
        }
    }

    pub(crate) fn log(&self) {
        let phases = self.phases();
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        tracing::info!(
            revision = %self.key,
            total_ms = ms(self.total()),
            signal_ms = ms(phases.signal),
            scale_ms = ms(phases.scale),
            probe_ms = ms(phases.probe),
            release_ms = ms(phases.release),
            answer_ms = ms(phases.answer),
            "cold start"
        );
    }

    /// Returns the time from the request head to the response head.
    pub fn total(&self) -> Duration {
        self.first_byte.saturating_duration_since(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_to_the_total_in_any_order() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for [received, signalled, known, probed, released, first] in
            [[0, 1, 5, 9, 10, 12], [4, 1, 2, 3, 5, 6], [0, 30, 5, 20, 21, 22], [5, 5, 5, 5, 5, 5]]
        {
            let cold = ColdStart {
                key: RevisionKey::new("ns", "app"),
                received: at(received),
                signalled: Some(at(signalled)),
                address_known: at(known),
                probed: at(probed),
                released: at(released),
                first_byte: at(first),
            };
            let p = cold.phases();
            assert_eq!(p.signal + p.scale + p.probe + p.release + p.answer, cold.total(), "{cold:?}");
        }
    }
}
