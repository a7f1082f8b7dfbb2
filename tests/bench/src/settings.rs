//! Settings of one run: how long, how often, and addresses that no other run uses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(crate) struct Settings {
    /// Repetitions of what is measured by repetitions.
    pub(crate) repetitions: usize,
    /// Length of one repetition under load.
    pub(crate) span: Duration,
    /// Length of what is one long run under a steady load.
    pub(crate) steady: Duration,
    /// Revisions of a large autoscaler.
    pub(crate) revisions: usize,
    /// Busy ones beside them, where some are.
    pub(crate) busy: usize,
}

/// How much, as a command line says it.
#[derive(Default, clap::Args)]
pub(crate) struct Sizes {
    /// Repetitions of what is measured by repetitions.
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// Length of runs under a steady load; 60, or 10 of a quick one, unless it is said.
    #[arg(long, value_name = "SECONDS")]
    steady: Option<u64>,
    /// Revisions of a large autoscaler; 10 000, or 1 000 of a quick one, unless it is said.
    #[arg(long, value_name = "N")]
    revisions: Option<usize>,
    /// Busy ones beside them in `many`; a fifth of that, at most 2 000, unless it is said.
    #[arg(long, value_name = "N")]
    busy: Option<usize>,
}

/// Most busy ones, unless it is said.
const BUSY_MAX: usize = 2_000;

impl Settings {
    /// What `sizes` says, and what is usual, for a whole run or a quick one, where it says nothing.
    pub(crate) fn new(quick: bool, sizes: &Sizes) -> Self {
        let (usual, seconds, long, many) = if quick { (3, 1, 10, 1_000) } else { (7, 2, 60, 10_000) };
        let revisions = sizes.revisions.unwrap_or(many).max(1);
        Self {
            repetitions: sizes.repetitions.unwrap_or(usual).max(1),
            span: Duration::from_secs(seconds),
            steady: Duration::from_secs(sizes.steady.unwrap_or(long).max(1)),
            revisions,
            busy: sizes.busy.unwrap_or((revisions / 5).min(BUSY_MAX)).max(1),
        }
    }

    /// A loopback address that no other run uses, the same for the whole run.
    pub(crate) fn ip(&self) -> IpAddr {
        own_ip(1)
    }

    /// Another one, for a second plane with the same ports.
    pub(crate) fn second_ip(&self) -> IpAddr {
        own_ip(2)
    }

    /// That address with a port.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(), port)
    }
}

fn own_ip(number: u8) -> IpAddr {
    let [low, high, ..] = std::process::id().to_le_bytes();
    IpAddr::from([127, 64 + high % 64, low, number])
}

/// The value that `part` of all are not above: 0.5 for the median, 0.99 for the 99th percentile. NaN of nothing.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_members_of_the_sample() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 0.75, 0.99, 1.0].map(|part| quantile(&values, part)), [1.0, 2.0, 3.0, 4.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
