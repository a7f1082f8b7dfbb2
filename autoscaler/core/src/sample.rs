//! Chooses the pods of a revision to scrape, and extrapolates their stats to all pods.
//!
//! # Sample size
//!
//! A sample of `N·X / (N + X − 1)` pods, rounded up, estimates the mean of `N` with 95 % confidence, a standard
//! deviation of 10 and a margin of error of 5: `X = 1.96² · 10² / 5²`. It never exceeds 16. Up to three pods are all
//! scraped.
//!
//! # Selection
//!
//! Pods younger than the stable window have not seen a full window of load, so older pods are scraped first. The group
//! of which only a part is scraped is shuffled.
//!
//! # Extrapolation
//!
//! The sum of each field is divided by the number of samples and multiplied by the number of pods. The result is a
//! total of the revision, not a mean.

use common::stat::Stat;
use common::time::Timestamp;
use rand::Rng;
use rand::seq::SliceRandom;
use std::time::Duration;

/// `1.96² · 10² / 5²`: sample size for an infinite population.
const SAMPLE_ENDLESS: f64 = 1.96 * 1.96 * 100.0 / 25.0;
/// Maximum size of a population that is scraped as a whole.
const ALL_UP_TO: usize = 3;
/// Pod name of a combined stat. A genuine zero (no pod was scraped) has no pod name, and is not recorded.
pub const SCRAPER_NAME: &str = "service-scraper";

/// Returns the number of pods to scrape of a `population`.
pub fn sample_size(population: usize) -> usize {
    if population <= ALL_UP_TO {
        return population;
    }
    let n = population as f64;
    (n * SAMPLE_ENDLESS / (n + SAMPLE_ENDLESS - 1.0)).ceil() as usize
}

/// Pods to scrape in order: first [`Candidates::needed`] pods, then further ones as those fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates<T> {
    /// Number of responses needed.
    pub needed: usize,
    /// All pods in the order in which to scrape them.
    pub order: Vec<T>,
}

/// Chooses pods. Each has a start time, if known; a pod without one counts as young.
pub fn choose<T>(
    pods: impl IntoIterator<Item = (T, Option<Timestamp>)>,
    now: Timestamp,
    stable_window: Duration,
    rng: &mut impl Rng,
) -> Candidates<T> {
    let (mut old, mut young) = (Vec::new(), Vec::new());
    for (pod, started) in pods {
        let is_old = started.is_some_and(|started| started + stable_window <= now);
        if is_old { old.push(pod) } else { young.push(pod) }
    }
    let needed = sample_size(old.len() + young.len());
    let partly = if old.len() < needed { &mut young } else { &mut old };
    partly.shuffle(rng);
    old.append(&mut young);
    Candidates { needed, order: old }
}

/// Extrapolates `samples` to `population` pods, with pod name [`SCRAPER_NAME`] and no time stamp. Returns `None`
/// without a sample.
pub fn combine(samples: &[Stat], population: usize) -> Option<Stat> {
    if samples.is_empty() {
        return None;
    }
    let (n, all) = (samples.len() as f64, population as f64);
    let total = |field: fn(&Stat) -> f64| samples.iter().map(field).sum::<f64>() / n * all;
    Some(Stat {
        pod_name: SCRAPER_NAME.into(),
        average_concurrent_requests: total(|s| s.average_concurrent_requests),
        average_proxied_concurrent_requests: total(|s| s.average_proxied_concurrent_requests),
        request_count: total(|s| s.request_count),
        proxied_request_count: total(|s| s.proxied_request_count),
        ..Stat::default()
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    /// Goal: sample sizes are correct at both ends of each range of populations.
    #[test]
    fn samples_grow_with_the_population_up_to_sixteen() {
        // The first population of each sample size, from 0 to 16.
        let first_with = [0, 1, 2, 3, 4, 6, 7, 10, 13, 16, 21, 27, 37, 52, 79, 148, 589];
        for (size, range) in first_with.windows(2).enumerate() {
            assert_eq!(sample_size(range[0]), size, "the first of a range");
            assert_eq!(sample_size(range[1] - 1), size, "the last of a range");
        }
        assert_eq!(sample_size(589), 16);
        assert_eq!(sample_size(1_000_000), 16);
    }

    /// Goal: older pods are preferred, and the group of which only a part is scraped is in random order.
    #[test]
    fn old_pods_are_scraped_first() {
        let now = Timestamp::from_secs(1_000_000);
        let pods = |old: usize, young: usize| {
            let started = move |i| if i < old { now - WINDOW } else { now - WINDOW + Duration::from_nanos(1) };
            (0..old + young).map(move |i| (i, Some(started(i))))
        };
        let mut rng = StdRng::seed_from_u64(7);
        // (old, young) -> needed. Either all old pods lead in their order, or the old pods lead shuffled.
        let few = choose(pods(5, 20), now, WINDOW, &mut rng);
        assert_eq!((few.needed, &few.order[..5]), (10, &[0, 1, 2, 3, 4][..]));
        assert!(!few.order[5..].is_sorted(), "the young are shuffled");
        let many = choose(pods(25, 5), now, WINDOW, &mut rng);
        assert_eq!(many.needed, 11);
        assert!(many.order[..25].iter().all(|i| *i < 25) && !many.order[..25].is_sorted(), "the old are shuffled");
        assert!(many.order[25..].is_sorted(), "the young are last");
        let just = choose(pods(11, 19), now, WINDOW, &mut rng);
        assert_eq!(just.needed, 11);
        assert!(!just.order[..11].is_sorted() && just.order[11..].is_sorted(), "as many old ones as are needed");
        let unknown = choose([("a", None), ("b", Some(now - WINDOW))], now, WINDOW, &mut rng);
        assert_eq!(unknown.order, ["b", "a"], "a pod without a start time is young");
    }

    #[test]
    fn a_combined_stat_is_a_total_of_the_revision() {
        let stat = |c, p, r, q| Stat {
            average_concurrent_requests: c,
            average_proxied_concurrent_requests: p,
            request_count: r,
            proxied_request_count: q,
            process_uptime: 9.0,
            timestamp: 9,
            ..Stat::default()
        };
        let three = [stat(3.0, 2.0, 5.0, 4.0), stat(5.0, 4.0, 7.0, 6.0), stat(3.0, 2.0, 5.0, 4.0)];
        let expected =
            Stat { pod_name: SCRAPER_NAME.into(), process_uptime: 0.0, timestamp: 0, ..stat(11.0, 8.0, 17.0, 14.0) };
        assert_eq!(combine(&three, 3), Some(expected));
        let more = combine(&three, 11).expect("samples").average_concurrent_requests;
        assert!((more - 11.0 / 3.0 * 11.0).abs() < 1e-9, "three of eleven pods: {more}");
        assert_eq!(combine(&[], 5), None);
    }
}
