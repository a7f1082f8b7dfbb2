//! Tests of recorded and rejected stats, and of missing data.

use super::*;
use crate::scale_to_zero::tests::secs;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn spec() -> CollectSpec {
    CollectSpec {
        stable_window: Duration::from_secs(60),
        panic_window: Duration::from_secs(6),
        aggregation: Aggregation::Linear,
        scrape_target: Some("a-private".to_owned()),
    }
}

fn stat(concurrent: f64, proxied: f64, requests: f64, proxied_requests: f64) -> Stat {
    Stat {
        average_concurrent_requests: concurrent,
        average_proxied_concurrent_requests: proxied,
        request_count: requests,
        proxied_request_count: proxied_requests,
        ..Stat::default()
    }
}

#[test]
fn a_stat_counts_at_its_own_time() {
    let mut metrics = Metrics::new(&spec());
    metrics.record(&stat(10.0, 0.0, 0.0, 0.0), NOW).expect("a sane stat");
    for (age, load) in [
        (70, Load { stable: 10.0, panic: 10.0 }), // Older than both windows: ignored.
        (9, Load { stable: 2.0, panic: 10.0 }),   // Ten seconds, in the stable window alone: (10 + 10) / 10.
    ] {
        let late = Stat { timestamp: NOW.as_secs() - age, ..stat(10.0, 0.0, 0.0, 0.0) };
        metrics.record(&late, NOW).expect("a sane stat");
        assert_eq!(metrics.load(ScalingMetric::Concurrency, NOW), Ok(load), "{age} s old");
    }
}

/// Goal: external input cannot corrupt a window, and each rejection names field, value and rule.
#[test]
fn a_stat_with_an_invalid_number_is_rejected_as_a_whole() {
    let mut metrics = Metrics::new(&spec());
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1.1e9] {
        for field in 0..4 {
            let mut values = [1.0; 4];
            values[field] = bad;
            let [a, b, c, d] = values;
            let refused = metrics.record(&stat(a, b, c, d), NOW).expect_err("a number that spoils");
            assert!(refused.to_string().contains(&bad.to_string()), "{refused}");
        }
    }
    assert_eq!(metrics.load(ScalingMetric::Rps, NOW), Err(Unknown::NoData), "nothing was recorded");
    assert_eq!(metrics.record(&stat(VALUE_MAX, 0.0, 0.0, 0.0), NOW), Ok(()));
    let load = metrics.load(ScalingMetric::Concurrency, NOW);
    assert_eq!(load, Ok(Load { stable: VALUE_MAX, panic: VALUE_MAX }), "the largest value counts");
}

#[test]
fn a_time_stamp_may_be_a_little_ahead() {
    let mut metrics = Metrics::new(&spec());
    let ahead = |secs| Stat { timestamp: NOW.as_secs() + secs, ..stat(1.0, 0.0, 0.0, 0.0) };
    assert_eq!(metrics.record(&ahead(5), NOW), Ok(()));
    let error = metrics.record(&ahead(6), NOW).expect_err("too far");
    assert_eq!(error, RejectedStat::Future(NOW.as_secs() + 6, 6));
}

#[test]
fn an_empty_window_is_zero_load_only_if_pods_are_not_scraped() {
    // (scraped) -> load of a window without values
    for (scraped, expected) in [(true, Err(Unknown::NoData)), (false, Ok(Load::default()))] {
        let metrics = Metrics::new(&CollectSpec { scrape_target: scraped.then(String::new), ..spec() });
        assert_eq!(metrics.load(ScalingMetric::Concurrency, NOW), expected, "{scraped}");
    }
}

#[test]
fn missing_data_is_never_read_as_zero() {
    let mut metrics = Metrics::new(&spec());
    metrics.record(&stat(10.0, 0.0, 0.0, 0.0), NOW).expect("a sane stat");
    let load = |after| metrics.load(ScalingMetric::Concurrency, NOW + secs(after));
    assert_eq!(load(59), Ok(Load { stable: 10.0, panic: 0.0 }));
    assert_eq!(load(60), Err(Unknown::NoData), "upstream reads 0 here, once");
    assert_eq!(load(61), Err(Unknown::NoData));
}

#[test]
fn a_sleeping_revision_holds_no_windows() {
    let mut metrics = Metrics::new(&spec());
    metrics.record(&stat(1.0, 0.0, 1.0, 0.0), NOW).expect("a sane stat");
    let mut held = |after| {
        metrics.release(NOW + secs(after));
        (metrics.stable.held_slots() > 0, metrics.panic.held_slots() > 0)
    };
    assert_eq!(
        (held(11), held(12), held(119), held(120)),
        ((true, true), (true, false), (true, false), (false, false))
    );
}

#[test]
fn an_edited_spec_keeps_recorded_values() {
    let mut metrics = Metrics::new(&spec());
    (0..60).for_each(|i| metrics.record(&stat(10.0, 0.0, 0.0, 0.0), NOW + secs(i)).expect("a sane stat"));
    let now = NOW + secs(59);
    let edited = CollectSpec { stable_window: secs(30), panic_window: secs(3), scrape_target: None, ..spec() };
    metrics.update(&edited, now);
    assert_eq!(metrics.load(ScalingMetric::Concurrency, now), Ok(Load { stable: 10.0, panic: 10.0 }));
    metrics.update(&CollectSpec { aggregation: Aggregation::WeightedExponential, ..edited }, now);
    let load = metrics.load(ScalingMetric::Concurrency, now).expect("data");
    assert!(load.stable < 10.0 && load.panic < 10.0, "the way of averaging follows at once: {load:?}");
    let later = now + secs(60);
    metrics.release(later);
    assert_eq!(metrics.load(ScalingMetric::Concurrency, later), Ok(Load::default()), "not scraped any more");
}
