//! Checks `config-autoscaler` key by key: upstream's result for each value, and the values that upstream rejects.

#![allow(missing_docs, reason = "tests")]

use common::config::AutoscalerConfig;
use std::collections::BTreeMap;
use std::time::Duration;

fn read(entries: &[(&str, &str)]) -> Result<AutoscalerConfig, String> {
    let data: BTreeMap<_, _> = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    AutoscalerConfig::from_map(&data).map_err(|error| error.key)
}

/// Keys and values, and a predicate on the resulting configuration.
type Good<'a> = (&'a [(&'a str, &'a str)], fn(&AutoscalerConfig) -> bool);

#[test]
fn what_upstream_accepts() {
    let rows: [Good<'_>; 24] = [
        (&[], |config| *config == AutoscalerConfig::default()),
        (&[("_example", "anything: at all")], |config| *config == AutoscalerConfig::default()),
        (&[("tick-interval", "2s"), ("panic-window", "10s")], |config| *config == AutoscalerConfig::default()),
        (&[("container-concurrency-target-percentage", "0.71")], |c| fraction(c, 0.71)),
        (&[("container-concurrency-target-percentage", "55")], |c| fraction(c, 0.55)),
        (&[("container-concurrency-target-percentage", "0.5")], |c| fraction(c, 0.5)),
        (&[("container-concurrency-target-percentage", "1")], |c| fraction(c, 1.0)),
        (&[("container-concurrency-target-percentage", "1.01")], |c| fraction(c, 0.0101)),
        (&[("target-burst-capacity", "-1")], |c| c.target_burst_capacity == -1.0),
        (&[("target-burst-capacity", "0")], |c| c.target_burst_capacity == 0.0),
        (&[("target-burst-capacity", "12345")], |c| c.target_burst_capacity == 12345.0),
        (&[("max-scale-up-rate", "1.001")], |c| c.max_scale_up_rate == 1.001),
        (&[("max-scale-up-rate", "1.01")], |c| c.max_scale_up_rate == 1.01),
        (&[("max-scale-down-rate", "3.0")], |c| c.max_scale_down_rate == 3.0),
        (&[("stable-window", "5m")], |c| c.stable_window == Duration::from_secs(300)),
        (&[("scale-down-delay", "15m")], |c| c.scale_down_delay == Duration::from_secs(900)),
        (&[("scale-to-zero-pod-retention-period", "2m3s")], |c| {
            c.scale_to_zero_pod_retention_period == Duration::from_secs(123)
        }),
        (&[("scale-to-zero-grace-period", "33s")], |c| c.scale_to_zero_grace_period == Duration::from_secs(33)),
        (&[("panic-window-percentage", "10")], |c| c.panic_window_percentage == 10.0),
        (&[("activator-capacity", "905")], |c| c.activator_capacity == 905.0),
        (&[("requests-per-second-target-default", "10.11")], |c| c.rps_target_default == 10.11),
        (&[("enable-scale-to-zero", "TRUE")], |c| c.enable_scale_to_zero),
        (&[("max-scale", "10"), ("max-scale-limit", "11")], |c| (c.max_scale, c.max_scale_limit) == (10, 11)),
        (&[("min-scale", "1"), ("max-scale", "2")], |c| (c.min_scale, c.max_scale) == (1, 2)),
    ];
    for (entries, holds) in rows {
        let config = read(entries).unwrap_or_else(|key| panic!("{entries:?}: {key} refused"));
        assert!(holds(&config), "{entries:?}: {config:?}");
    }
    for entries in [
        &[("activator-capacity", "1")][..],
        &[("max-scale", "10")],
        &[("min-scale", "4"), ("max-scale", "0")],
        &[("initial-scale", "0"), ("allow-zero-initial-scale", "true")],
    ] {
        assert_eq!(read(entries).err(), None, "{entries:?}");
    }
}

fn fraction(config: &AutoscalerConfig, expected: f64) -> bool {
    (config.container_concurrency_target_fraction - expected).abs() < 1e-12
}

/// Keys and values, and the key that the error names.
#[test]
fn what_upstream_refuses() {
    type Bad<'a> = (&'a [(&'a str, &'a str)], &'a str);
    let rows: [Bad<'_>; 31] = [
        (&[("container-concurrency-target-percentage", "142.4")], "container-concurrency-target-percentage"),
        (&[("container-concurrency-target-percentage", "-42")], "container-concurrency-target-percentage"),
        (&[("target-burst-capacity", "-11")], "target-burst-capacity"),
        (&[("max-scale-up-rate", "1")], "max-scale-up-rate"),
        (&[("max-scale-up-rate", "not a float")], "max-scale-up-rate"),
        (&[("max-scale-down-rate", "1")], "max-scale-down-rate"),
        (&[("max-scale-down-rate", "-55")], "max-scale-down-rate"),
        (&[("stable-window", "1s")], "stable-window"),
        (&[("stable-window", "1h1s")], "stable-window"),
        (&[("stable-window", "61984ms")], "stable-window"),
        (&[("stable-window", "not a duration")], "stable-window"),
        (&[("scale-down-delay", "-1m23s")], "scale-down-delay"),
        (&[("scale-down-delay", "61984ms")], "scale-down-delay"),
        (&[("scale-to-zero-pod-retention-period", "-4m11s")], "scale-to-zero-pod-retention-period"),
        (&[("scale-to-zero-grace-period", "0s")], "scale-to-zero-grace-period"),
        (&[("panic-window-percentage", "0.1")], "panic-window-percentage"),
        (&[("panic-window-percentage", "110")], "panic-window-percentage"),
        (&[("activator-capacity", "0.95")], "activator-capacity"),
        (&[("requests-per-second-target-default", "-5.25")], "requests-per-second-target-default"),
        (&[("initial-scale", "0")], "initial-scale"),
        (&[("initial-scale", "0"), ("allow-zero-initial-scale", "false")], "initial-scale"),
        (&[("initial-scale", "-1")], "initial-scale"),
        (&[("initial-scale", "invalid")], "initial-scale"),
        (&[("allow-zero-initial-scale", "invalid")], "allow-zero-initial-scale"),
        (&[("max-scale", "-1")], "max-scale"),
        (&[("max-scale", "10"), ("max-scale-limit", "9")], "max-scale"),
        (&[("max-scale", "0"), ("max-scale-limit", "11")], "max-scale"),
        (&[("max-scale-limit", "-9")], "max-scale-limit"),
        (&[("min-scale", "-1")], "min-scale"),
        (&[("min-scale", "4"), ("max-scale", "3")], "min-scale"),
        (&[("enable-scale-to-zero", "yes")], "enable-scale-to-zero"),
    ];
    for (entries, key) in rows {
        assert_eq!(read(entries).err().as_deref(), Some(key), "{entries:?}");
    }
    let least = [("container-concurrency-target-percentage", "1"), ("container-concurrency-target-default", "0.001")];
    let both = "container-concurrency-target-percentage and container-concurrency-target-default";
    assert_eq!(read(&least).err().as_deref(), Some(both), "0.001 is less than the least target");
}
