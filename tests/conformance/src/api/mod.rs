//! Scenarios of kind `api`: requests to a Kubernetes API server, and what they must answer.
//!
//! Without `--api` a server is started for the run, with the controllers that scenarios need; `--api URL --token T`
//! sends the same scenarios to any other, TLS included (its certificate is not checked). Scenarios run one after
//! another, each in a namespace of its own.
//!
//! [`template`] says what a placeholder stands for, [`matching`] when an answer is the wanted one, [`scenario`] walks
//! the steps, and [`exchange`] speaks HTTP.

mod exchange;
mod matching;
mod scenario;
mod template;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config};
use local::api::{ApiOptions, ApiServer};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::Mismatch;
use crate::suite::{Suite, Target};

/// Where Services of the embedded server get their addresses; scenarios name addresses in and outside it.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Namespaces of this process, so that no two scenarios share one.
static SCENARIOS: AtomicU32 = AtomicU32::new(0);

/// What the scenarios of a run share.
struct Session {
    runtime: Runtime,
    exchange: exchange::Exchange,
    embedded: Option<ApiServer>,
    shutdown: CancellationToken,
    run: u32,
}

/// Connects to the server that scenarios are sent to.
///
/// # Errors
/// If the embedded server does not start, or `--api` is not a URL.
pub(crate) fn open(target: &Target) -> anyhow::Result<Box<dyn Suite>> {
    let runtime = Runtime::new().context("a runtime")?;
    let shutdown = CancellationToken::new();
    let guard = runtime.enter();
    let (url, token, embedded) = match target {
        Target::Running { url, token } => (url.clone(), token.clone(), None),
        Target::Embedded => {
            let server = runtime.block_on(ApiServer::start(ApiOptions::new(SERVICE_RANGE.parse()?)))?;
            let (url, token) = (server.url(), server.token().to_string());
            let mut config = Config::new(url.parse()?);
            config.auth_info.token = Some(token.clone().into());
            runtime.spawn(local::controllers::run(Client::try_from(config)?, shutdown.clone()));
            (url, token, Some(server))
        }
    };
    let exchange = exchange::Exchange::new(&url, token)?;
    drop(guard);
    Ok(Box::new(Session { runtime, exchange, embedded, shutdown, run: rand::random() }))
}

/// How long a scenario may take, whatever the server does.
pub(crate) fn bound(case: &Value) -> Duration {
    scenario::bound_of(case)
}

impl Suite for Session {
    fn check(&mut self, case: &Value) -> Result<(), Mismatch> {
        let number = SCENARIOS.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("t-{:08x}-{number}", self.run);
        self.runtime.block_on(scenario::run(&self.exchange, case, &namespace))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(server) = self.embedded.take() {
            self.runtime.block_on(server.shutdown());
        }
    }
}
