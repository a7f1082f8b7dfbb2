//! Compares the waiting times at several activators with those of one ideal queue.

use sim::holders::{Figures, Setting, figures};
use std::time::Duration;

fn setting(activators: usize, even: bool) -> Setting {
    Setting { activators, pods: 5, rate: 80.0 / activators as f64, even, lasts: Duration::from_secs(60) }
}

/// Goal: equal load waits equally at each activator, and is divided equally among the pods. Method: 80 evenly spaced
/// requests a second over one to five activators, on five pods with one slot, 50 ms each plus transit.
#[test]
fn equal_load_is_distributed_equally() {
    for activators in [1, 2, 3, 5] {
        let Figures { p99, shares, .. } = figures(1, &setting(activators, true));
        assert!(p99.iter().all(|p99| *p99 < Duration::from_millis(60)), "{activators}: {p99:?}");
        assert!(shares.iter().all(|share| (0.16..=0.24).contains(share)), "{activators}: {shares:?}");
    }
}

/// Goal: with random arrivals the p99 is at most 1.1 times that of one ideal queue, whichever activator holds the pods.
/// This also holds for pods divided between holders, with nine of ten slots busy.
#[test]
fn several_activators_are_as_fast_as_one_queue() {
    let shared = |activators| setting(activators, false);
    let divided = |activators: usize| {
        let (rate, lasts) = (0.9 * 640.0 / 0.0505 / activators as f64, Duration::from_secs(5));
        Setting { pods: 640, rate, lasts, ..shared(activators) }
    };
    for (setting, seeds) in [(shared(1), 5), (shared(2), 5), (shared(5), 5), (divided(2), 2), (divided(3), 2)] {
        for seed in 0..seeds {
            let Figures { p99, p99_all, p99_ideal, .. } = figures(seed, &setting);
            let ratio = p99_all.as_secs_f64() / p99_ideal.as_secs_f64();
            assert!(ratio < 1.1, "{setting:?}, seed {seed}: {ratio} {p99:?}");
        }
    }
}
