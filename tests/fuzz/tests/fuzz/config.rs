//! ConfigMaps and annotations: any keys with any values. An error names its key. Accepted values stay within the bounds
//! that the rules rely on.

use common::annotations;
use common::config::{AutoscalerConfig, ConfigError, DeploymentConfig, LeaderElectionConfig, LogLevel, NetworkConfig};
use common::golang;
use fuzz::{INPUTS, Piece, TIME, render_text};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static VALUES: LazyLock<Vec<&str>> = LazyLock::new(|| VALUE_LIST.split('|').collect());
/// Values, separated by `|`.
const VALUE_LIST: &str = "\
    0|1|-1|2|10|100|0.01|0.5|1e9|1e308|-0|NaN|Inf|+Inf|0x1p-2|1_000|true|false|True|| |6s|60s|1h|1h1s|-5s|500ms|\
    1.5s|2540400h|enabled|disabled|auto|concurrency|rps|cpu|2147483648|9223372036854775808|%|{|\u{0}";

/// Keys of all ConfigMaps, and annotations.
static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| KEY_LIST.split(' ').collect());
const KEY_LIST: &str = "\
    enable-scale-to-zero max-scale-up-rate max-scale-down-rate container-concurrency-target-percentage \
    container-concurrency-target-default requests-per-second-target-default target-burst-capacity stable-window \
    panic-window-percentage panic-threshold-percentage pod-autoscaler-class activator-capacity \
    scale-to-zero-grace-period scale-to-zero-pod-retention-period allow-zero-initial-scale initial-scale \
    min-scale max-scale max-scale-limit scale-down-delay _example lease-duration buckets renew-deadline \
    mesh-compatibility-mode enable-mesh-pod-addressability system-internal-tls internal-encryption \
    loglevel.activator zap-logger-config progress-deadline autoscaling.knative.dev/min-scale \
    autoscaling.knative.dev/maxScale autoscaling.knative.dev/max-scale autoscaling.knative.dev/target \
    autoscaling.knative.dev/metric autoscaling.knative.dev/class autoscaling.knative.dev/window \
    autoscaling.knative.dev/target-utilization-percentage autoscaling.knative.dev/panic-window-percentage \
    autoscaling.knative.dev/scale-down-delay autoscaling.knative.dev/initial-scale";

type Pairs = Vec<(u8, u8, Option<Vec<Piece>>)>;

/// Returns a map of existing keys, with values of which most are valid for some key.
fn map(pairs: &Pairs) -> BTreeMap<String, String> {
    let pair = |(key, value, odd): &(u8, u8, Option<Vec<Piece>>)| {
        let value = match odd {
            Some(pieces) => render_text(pieces, &VALUES),
            None => VALUES[usize::from(*value) % VALUES.len()].to_owned(),
        };
        (KEYS[usize::from(*key) % KEYS.len()].to_owned(), value)
    };
    pairs.iter().map(pair).collect()
}

/// Returns the configuration, or `None` after a check of the error.
fn accepted<T>(read: Result<T, ConfigError>, data: &BTreeMap<String, String>) -> Option<T> {
    match read {
        Ok(config) => Some(config),
        Err(error) => {
            assert!(data.contains_key(&error.key) || error.value.is_empty() || !error.rule.is_empty(), "{error}");
            let text = error.to_string();
            assert!(text.contains(&error.key) && text.len() > error.key.len(), "{text}");
            None
        }
    }
}

#[test]
fn any_config_map() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Pairs>().for_each(|pairs| {
        let data = map(pairs);
        accepted(NetworkConfig::from_map(&data), &data);
        if let Some(election) = accepted(LeaderElectionConfig::from_map(&data), &data) {
            assert_eq!(election.timing.lease_duration.subsec_nanos(), 0, "a Lease holds whole seconds: {data:?}");
            assert!(election.timing.renew_deadline < election.timing.lease_duration, "{data:?}");
        }
        accepted(DeploymentConfig::from_map(&data), &data);
        accepted(LogLevel::from_map(&data, "activator"), &data);
        let Some(config) = accepted(AutoscalerConfig::from_map(&data), &data) else { return };
        assert!(config.max_scale_up_rate > 1.0 && config.max_scale_down_rate > 1.0, "{data:?}");
        assert!(config.activator_capacity >= 1.0, "{data:?}");
        check_decider(&data, &config);
    });
}

/// Checks that valid annotations yield a spec and limits within the bounds that the rules rely on.
fn check_decider(data: &BTreeMap<String, String>, config: &AutoscalerConfig) {
    let valid = annotations::is_valid(data, config);
    for (concurrency, reachable) in [(0, true), (1, true), (10, false), (i64::MAX, true)] {
        let spec = annotations::decider_spec(data, config, concurrency, reachable);
        let bounds = annotations::bounds(data, config, reachable);
        if valid {
            assert!(spec.target_value >= 0.01 && spec.total_value > 0.0, "{spec:?} from {data:?}");
            assert!(!spec.stable_window.is_zero() && spec.panic_window <= spec.stable_window, "{spec:?} from {data:?}");
            assert!(bounds.min >= 0 && bounds.max.is_none_or(|max| max >= 0), "{bounds:?} from {data:?}");
        }
    }
}

/// Goal: numbers and durations in Go's syntax: any text is rejected, or parsed to a value that is written and parsed
/// again without a change.
#[test]
fn any_number() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Vec<Piece>>().for_each(|pieces| {
        let text = render_text(pieces, &VALUES);
        if let Ok(number) = golang::parse_integer::<i32>(&text) {
            assert_eq!(golang::parse_integer(&text), Ok(i64::from(number)), "{text:?}");
            assert_eq!(golang::parse_integer(&number.to_string()), Ok(number));
        }
        if let Ok(number) = golang::parse_float(&text) {
            let again = golang::parse_float(&format!("{number:e}")).expect("Go parses Rust's notation");
            assert!(again.to_bits() == number.to_bits() || (again.is_nan() && number.is_nan()), "{text:?}");
        }
        if let Ok(duration) = golang::parse_duration(&text) {
            assert_eq!(golang::parse_duration(&duration.to_string()), Ok(duration), "{text:?}");
        }
        let _ = golang::parse_bool(&text);
    });
}
