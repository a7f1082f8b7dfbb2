//! Limits of writes to the API server: upstream's flags and variables, and the defaults.
//!
//! Upstream's autoscaler overwrites its `--kube-api-qps` and `--kube-api-burst` (`KUBE_API_QPS`, `KUBE_API_BURST`).
//! Here they take effect, for the whole process: it has one client where upstream has four client sets.

use common::write_rate::Rate;
use common_runtime::environment::{EnvironmentError, optional, parsed};

/// Rule reported with a rejected number.
const RULE: &str = "must be a number that is not negative; 0: the default";

/// Reads the environment, over `default`.
///
/// # Errors
/// A variable is no number, or negative.
pub fn from_env(get: &impl Fn(&str) -> Option<String>, default: Rate) -> Result<Rate, EnvironmentError> {
    const QPS: &str = "KUBE_API_QPS";
    let qps = optional(get, QPS).map(|text| parse_qps(&text).map_err(|rule| EnvironmentError::new(QPS, text, rule)));
    let burst = parsed(get, "KUBE_API_BURST", 0, RULE)?;
    Ok(with(default, qps.transpose()?, Some(burst)))
}

/// Returns `rate` with these overrides; 0 overrides nothing.
pub fn with(rate: Rate, qps: Option<f64>, burst: Option<u32>) -> Rate {
    let (qps, burst) = (qps.filter(|qps| *qps > 0.0), burst.filter(|burst| *burst > 0));
    Rate { qps: qps.unwrap_or(rate.qps), burst: burst.unwrap_or(rate.burst) }
}

/// Parses a number of writes per second: at most a million, a practical upper bound.
///
/// # Errors
/// It is no number, or negative.
pub fn parse_qps(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|qps| (0.0..=1e6).contains(qps)).ok_or_else(|| RULE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(qps: &str, burst: &str) -> Result<Rate, EnvironmentError> {
        let get = |name: &str| Some(if name == "KUBE_API_QPS" { qps } else { burst }.to_owned());
        from_env(&get, Rate::AUTOSCALER)
    }

    #[test]
    fn the_rate_is_upstreams_unless_it_is_set() {
        assert_eq!((read("", ""), read("0", "0")), (Ok(Rate::AUTOSCALER), Ok(Rate::AUTOSCALER)));
        assert_eq!(read("7.5", ""), Ok(Rate { qps: 7.5, ..Rate::AUTOSCALER }));
        assert_eq!(read("", "3"), Ok(Rate { burst: 3, ..Rate::AUTOSCALER }));
        let set = read("7.5", "3").expect("a rate");
        assert_eq!(with(set, None, Some(9)), Rate { qps: 7.5, burst: 9 });
        assert_eq!(with(Rate::WITH_CONTROLLER, None, Some(9)), Rate { burst: 9, ..Rate::WITH_CONTROLLER });
        for (qps, burst, wrong) in [
            ("-1", "", "KUBE_API_QPS"),
            ("NaN", "", "KUBE_API_QPS"),
            ("inf", "", "KUBE_API_QPS"),
            ("", "-1", "KUBE_API_BURST"),
        ] {
            assert_eq!(read(qps, burst).expect_err("refused").variable, wrong, "{qps} {burst}");
        }
        assert!(parse_qps("-0.5").is_err() && parse_qps("x").is_err() && parse_qps("2").is_ok());
    }
}
