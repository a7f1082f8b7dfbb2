//! Settings of one run: durations, repetitions, and addresses that no other run uses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(crate) struct Settings {
    /// Number of repetitions.
    pub(crate) repetitions: usize,
    /// Length of one repetition under load.
    pub(crate) span: Duration,
    /// Length of a single long run under a steady load.
    pub(crate) steady: Duration,
    /// Number of revisions of a large autoscaler.
    pub(crate) revisions: usize,
    /// Number of additional busy revisions, if a row has them.
    pub(crate) busy: usize,
}

/// Sizes from the command line.
#[derive(Default, clap::Args)]
pub(crate) struct Sizes {
    /// Revisions of a large autoscaler; default 10 000, or 1 000 with --quick.
    #[arg(long, value_name = "N")]
    revisions: Option<usize>,
    /// Additional busy revisions in `many`; default a fifth of the others, at most 2 000.
    #[arg(long, value_name = "N")]
    busy: Option<usize>,
}

/// Default maximum of busy revisions.
const BUSY_MAX: usize = 2_000;

impl Settings {
    /// Returns the settings from `sizes`, with the defaults of a whole run or a quick one.
    pub(crate) fn new(quick: bool, sizes: &Sizes) -> Self {
        let (repetitions, seconds, long, many) = if quick { (3, 1, 10, 1_000) } else { (7, 2, 60, 10_000) };
        let revisions = sizes.revisions.unwrap_or(many).max(1);
        Self {
            repetitions,
            span: Duration::from_secs(seconds),
            steady: Duration::from_secs(long),
            revisions,
            busy: sizes.busy.unwrap_or((revisions / 5).min(BUSY_MAX)).max(1),
        }
    }

    /// Returns a loopback address that no other run uses. It is the same for the whole run.
    pub(crate) fn ip(&self) -> IpAddr {
        own_ip(1)
    }

    /// Returns another such address, for a second plane with the same ports.
    pub(crate) fn second_ip(&self) -> IpAddr {
        own_ip(2)
    }

    /// Returns the address of `Self::ip` with a port.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(), port)
    }
}

fn own_ip(number: u8) -> IpAddr {
    let [low, high, ..] = std::process::id().to_le_bytes();
    IpAddr::from([127, 64 + high % 64, low, number])
}

/// Returns a quantile of `values`, which is one of them: 0.5 is the median, 0.99 the 99th percentile. Returns NaN if
/// there are no values.
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
