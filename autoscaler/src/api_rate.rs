//! Rate limit of writes to the API server, from upstream's flags and variables over a default.
//!
//! Upstream's autoscaler overwrites its `--kube-api-qps` and `--kube-api-burst` (`KUBE_API_QPS`, `KUBE_API_BURST`).
//! Here they take effect, for the whole process: it has one client where upstream has four client sets.

use common::write_rate::Rate;
use common_runtime::environment::{EnvironmentError, optional, parsed};

/// Rule reported with a rejected number.
const RULE: &str = "must be a number between 0 and a million; 0: the default";

/// Reads `KUBE_API_QPS` and `KUBE_API_BURST`. Unset or 0: the value of `default`.
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
    fn limits_override_the_default_unless_they_are_zero() {
        assert_eq!((read("", ""), read("0", "0")), (Ok(Rate::AUTOSCALER), Ok(Rate::AUTOSCALER)));
        assert_eq!(read("7.5", ""), Ok(Rate { qps: 7.5, ..Rate::AUTOSCALER }));
        assert_eq!(read("", "3"), Ok(Rate { burst: 3, ..Rate::AUTOSCALER }));
        let set = read("7.5", "3").expect("a rate");
        assert_eq!(with(set, None, Some(9)), Rate { qps: 7.5, burst: 9 });
        assert_eq!(with(Rate::WITH_CONTROLLER, None, Some(9)), Rate { burst: 9, ..Rate::WITH_CONTROLLER });
        for qps in ["-1", "NaN", "inf"] {
            assert_eq!(read(qps, "").expect_err(qps).variable, "KUBE_API_QPS", "{qps}");
        }
        assert_eq!(read("", "-1").expect_err("negative").variable, "KUBE_API_BURST");
        assert!(parse_qps("-0.5").is_err() && parse_qps("x").is_err() && parse_qps("2").is_ok());
    }
}
