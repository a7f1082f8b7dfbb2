//! `config-deployment`, limited to the keys that scaling uses.
//!
//! Not here: the sidecar's image and resources, which only Knative's controller needs. Upstream rejects a map without
//! an image; this parser does not require one.

use super::{ConfigError, Reader, ensure};
use crate::golang::GoDuration;
use std::collections::BTreeMap;
use std::time::Duration;

/// Times in `config-deployment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentConfig {
    /// `progress-deadline`: time in which a revision must become ready; positive, whole seconds, default 600 s.
    pub progress_deadline: Duration,
}

impl Default for DeploymentConfig {
    fn default() -> Self {
        Self { progress_deadline: Duration::from_secs(600) }
    }
}

impl DeploymentConfig {
    /// Reads and checks the map's data. Fails if the deadline is not a duration, not positive or not in whole seconds.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let key = "progress-deadline";
        let deadline = Reader(data).duration(&[key, "progressDeadline"], Self::default().progress_deadline.into())?;
        ensure(deadline > GoDuration::ZERO, key, deadline, "must be positive")?;
        ensure(deadline.is_whole_seconds(), key, deadline, "must be specified with at most second precision")?;
        Ok(Self { progress_deadline: deadline.to_std() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn the_deadline_is_positive_and_in_whole_seconds() {
        let read = |entries: &[(&str, &str)]| DeploymentConfig::from_map(&map(entries)).map(|c| c.progress_deadline);
        assert_eq!(read(&[]), Ok(Duration::from_secs(600)));
        assert_eq!(read(&[("progressDeadline", "2m")]), Ok(Duration::from_secs(120)));
        assert_eq!(read(&[("progressDeadline", "2m"), ("progress-deadline", "1s")]), Ok(Duration::from_secs(1)));
        for text in ["0s", "-1s", "1500ms", "x"] {
            assert!(read(&[("progress-deadline", text)]).is_err(), "{text}");
        }
    }
}
