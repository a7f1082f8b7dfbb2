//! Runs scenarios of kind `api`: requests to a Kubernetes API server, and the expected responses.
//!
//! Without `--api` a server is started for the run, with the controllers that scenarios need. `--api URL --token T`
//! sends the same scenarios to any other server, including TLS (its certificate is not checked). Scenarios run one
//! after another, each in its own namespace.
//!
//! [`template`] defines placeholders, [`matching`] compares responses, [`scenario`] runs the steps, and [`exchange`]
//! speaks HTTP.

mod exchange;
mod matching;
mod scenario;
mod template;

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use kube::{Client, Config};
use local::api::{ApiOptions, ApiServer};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::Mismatch;
use crate::suite::{Suite, Target};

/// Address range for Services of the embedded server. Scenarios name addresses inside and outside of it.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Counter for the namespaces of this process, so that no two scenarios share one.
static SCENARIOS: AtomicU32 = AtomicU32::new(0);

/// State shared by the scenarios of a run.
struct Session {
    runtime: Runtime,
    exchange: exchange::Exchange,
    embedded: Option<ApiServer>,
    shutdown: CancellationToken,
    run: u32,
}

/// Connects to the server that scenarios are sent to. Fails if the embedded server does not start, or `--api` is not a
/// URL.
pub(crate) fn open(target: &Target) -> anyhow::Result<Suite> {
    let runtime = Runtime::new().context("a runtime")?;
    let shutdown = CancellationToken::new();
    let guard = runtime.enter();
    let (url, token, embedded) = match target {
        Some((url, token)) => (url.clone(), token.clone(), None),
        None => {
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
    let session = Session { runtime, exchange, embedded, shutdown, run: rand::random() };
    Ok(Box::new(move |case: &Value| session.check(case)))
}

impl Session {
    fn check(&self, case: &Value) -> Result<(), Mismatch> {
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
