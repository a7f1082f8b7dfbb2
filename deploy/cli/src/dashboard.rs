//! Client of the autoscaler's dashboard.
//!
//! The dashboard listens on loopback in each autoscaler pod. The client uses the first address that is known:
//! `--address`, the address in the kubeconfig (`local up` writes it), or a port that the API server forwards to a ready
//! pod. Forwarding needs the right to create `pods/portforward` in that namespace, but no right to run anything in a
//! pod.

use crate::cluster::{Cluster, ClusterArgs, cause};
use crate::forward::Forward;
use crate::model::{Detail, Listing};
use anyhow::{Context, anyhow, bail};
use common::RevisionKey;
use futures::future::OptionFuture;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Maximum size of a response. Ten thousand workloads take about ten MiB.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Timeouts for connecting to the dashboard and for reading from it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A dashboard that can be queried.
pub struct Dashboard {
    /// Address, usable by a browser too.
    pub address: String,
    client: Client,
    token: Option<String>,
    /// Port forwarding to the dashboard, if any.
    forward: Option<Forward>,
}

impl ClusterArgs {
    /// Finds the dashboard. Sends requests only to forward a port. Fails if no address can be used; the error says
    /// which one was tried and how to fix it.
    pub async fn dashboard(&self, cluster: &anyhow::Result<Cluster>) -> anyhow::Result<Dashboard> {
        let (address, forward) = match (&self.address, cluster) {
            (Some(address), _) => (address.clone(), None),
            (None, Err(error)) => bail!("{error:#}"),
            (None, Ok(Cluster { dashboard: Some(address), .. })) => (address.clone(), None),
            (None, Ok(cluster)) => {
                let forward = Forward::begin(&cluster.client, &self.system_namespace).await?;
                (format!("http://{}", forward.local), Some(forward))
            }
        };
        let cannot = |file: &Path| format!("--token-file {}: cannot be read", file.display());
        let token = self.token_file.as_ref().map(|file| std::fs::read_to_string(file).with_context(|| cannot(file)));
        let token = token.transpose()?.map(|token| token.trim().to_owned());
        let uri = address.parse().ok().filter(|uri: &Uri| uri.scheme().is_some() && uri.host().is_some());
        let uri = uri.with_context(|| format!("--address {address:?}: must be a URL such as http://127.0.0.1:8090"))?;
        let mut config = Config::new(uri);
        (config.connect_timeout, config.read_timeout) = (Some(CONNECT_TIMEOUT), Some(READ_TIMEOUT));
        config.default_retry = false;
        let client = Client::try_from(config).with_context(|| format!("dashboard {address}"))?;
        Ok(Dashboard { address, client, token, forward })
    }
}

impl Dashboard {
    /// Lists the workloads of a namespace, or of all namespaces if it is `None`. Fails if the dashboard cannot be
    /// reached.
    pub async fn list(&self, namespace: Option<&str>) -> anyhow::Result<Listing> {
        let query = namespace.map(|namespace| format!("?namespace={namespace}")).unwrap_or_default();
        self.get(&format!("/api/v1/workloads{query}")).await
    }

    /// Returns the full description of one workload. Fails if the dashboard cannot be reached or does not know the
    /// workload.
    pub async fn detail(&self, key: &RevisionKey) -> anyhow::Result<Detail> {
        self.get(&format!("/api/v1/workloads/{key}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let address = &self.address;
        let mut request = Request::get(path).header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request =
            request.body(Body::empty()).context("--token-file: the token has characters that no header can contain")?;
        let answer = match self.client.send(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let failure = OptionFuture::from(self.forward.as_ref().map(Forward::failure)).await.flatten();
                bail!("the dashboard at {address} cannot be reached: {}", failure.unwrap_or_else(|| cause(&error)));
            }
        };
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
        let bytes = body
            .map_err(|error| anyhow!("the response of the dashboard at {address} ended early: {error}"))?
            .to_bytes();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            match self.token {
                Some(_) => bail!("the dashboard at {address} rejects the token in --token-file"),
                None => bail!("the dashboard at {address} requires a token: use --token-file FILE"),
            }
        }
        if status != StatusCode::OK {
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let why = body["error"].as_str().map_or_else(|| status.to_string(), str::to_owned);
            bail!("the dashboard at {address}: {why}");
        }
        serde_json::from_slice(&bytes)
            .with_context(|| format!("the response of the dashboard at {address} cannot be parsed"))
    }
}
