//! Checks at the start that the API server is new enough.
//!
//! The minimum version is `KUBERNETES_MIN_VERSION`. Its default is the oldest version on which the end-to-end tests of
//! the mode have run: v1.31.0 in standalone, and Knative's v1.34.0 in the drop-in. A pre-release of the minimum version
//! passes, since clusters run such versions, unless the minimum itself names a pre-release. The check runs every
//! second. It waits for a server without a response for as long as necessary ([`crate::api_server`] logs it). It waits
//! a minute for a server that is too old, since the cluster may be in the middle of an upgrade.

use crate::api_server::is_reported;
use crate::environment::Mode;
use crate::failure_log::FailureLog;
use kube::Client;
use semver::{Prerelease, Version};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Name of the variable.
pub const VARIABLE: &str = "KUBERNETES_MIN_VERSION";
/// Rule for the variable's value.
pub const RULE: &str = "must be a version such as v1.34.0";

/// Time between two checks, and the longest wait for a response.
const EVERY: Duration = Duration::from_secs(1);
/// Longest wait for a server that is too old.
const PATIENCE: Duration = Duration::from_secs(60);

/// Oldest supported version of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumVersion(Version);

impl MinimumVersion {
    /// Returns the default of a mode.
    pub fn for_mode(mode: Mode) -> Self {
        match mode {
            Mode::Standalone => Self(Version::new(1, 31, 0)),
            Mode::Knative => Self(Version::new(1, 34, 0)),
        }
    }

    /// Waits until the API server of `client` is new enough. Fails if the server is too old for a minute.
    pub async fn check(&self, client: &Client) -> anyhow::Result<()> {
        let mut until = None;
        let mut failures = FailureLog::for_operation("the version of the API server");
        loop {
            match timeout(EVERY, client.apiserver_version()).await {
                Ok(Ok(version)) => match self.judge(&version.git_version) {
                    Ok(()) => return Ok(()),
                    Err(problem) if Instant::now() >= *until.get_or_insert(Instant::now() + PATIENCE) => {
                        anyhow::bail!("{problem}");
                    }
                    Err(problem) => failures.failed(&problem),
                },
                Ok(Err(error)) if !is_reported(&error) => failures.failed(&error),
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(EVERY).await;
        }
    }

    fn judge(&self, version: &str) -> Result<(), String> {
        let server = parse(version).map_err(|error| format!("the API server's version {version:?}: {error}"))?;
        let mut minimum = self.0.clone();
        if minimum.pre.is_empty() {
            minimum.pre = Prerelease::new("0").unwrap_or_default(); // Sorts before every other pre-release.
        }
        if server.cmp_precedence(&minimum).is_lt() {
            return Err(format!(
                "Kubernetes {version} is too old: {self} or newer is required (to lower that at your own risk, set the \
                 environment variable {VARIABLE})"
            ));
        }
        Ok(())
    }
}

impl FromStr for MinimumVersion {
    type Err = semver::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self)
    }
}

impl fmt::Display for MinimumVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

fn parse(text: &str) -> Result<Version, semver::Error> {
    Version::parse(text.strip_prefix('v').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::mock_api;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn versions_are_compared_with_the_minimum() {
        let rows = [
            ("v1.34.0", "v1.34.0", true),
            ("v1.34.0", "v1.34.0-rc.1", true),
            ("v1.34.0", "v1.34.2+k3s1", true),
            ("1.34.0", "v1.35.0", true),
            ("v1.34.0", "v1.33.9", false),
            ("v1.34.0", "v1.34.0-0", true),
            ("v1.34.0-rc.2", "v1.34.0-rc.1", false),
            ("v1.34.0", "new", false),
        ];
        for (minimum, server, passes) in rows {
            let minimum: MinimumVersion = minimum.parse().expect("a version");
            assert_eq!(minimum.judge(server).is_ok(), passes, "{minimum} {server}");
        }
        let error = MinimumVersion::for_mode(Mode::Knative).judge("v1.30.1").expect_err("too old");
        assert!(error.contains("v1.30.1") && error.contains("v1.34.0") && error.contains(VARIABLE), "{error}");
        assert!("1.34".parse::<MinimumVersion>().is_err());
    }

    fn server(version: impl Fn(usize) -> &'static str + Send + 'static) -> Client {
        let requests = AtomicUsize::new(0);
        mock_api(move |_| {
            let version = version(requests.fetch_add(1, Ordering::Relaxed));
            let body = serde_json::json!({
                "major": "1", "minor": "0", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            });
            Some((200, body))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_server_fails_the_check_after_a_minute() {
        let minimum = MinimumVersion::for_mode(Mode::Knative);
        let upgraded = server(|attempt| if attempt < 3 { "v1.33.0" } else { "v1.34.1" });
        minimum.check(&upgraded).await.expect("new enough in the end");
        let start = Instant::now();
        let error = minimum.check(&server(|_| "v1.33.0")).await.expect_err("too old").to_string();
        assert!(error.contains("v1.33.0"), "{error}");
        assert!((PATIENCE..PATIENCE + 3 * EVERY).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
