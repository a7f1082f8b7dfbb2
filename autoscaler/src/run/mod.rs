//! The whole process: what is started in which order, and how it ends.
//!
//! # Start
//!
//! 1. The stat port is bound, so that a port in use is an error at once and not a process that hangs.
//! 2. The API server's version is checked.
//! 3. Configuration is read and watched from then on; an update that breaks a rule is refused as a whole. A map that
//!    breaks one at the start ends the process in a Knative install, as upstream; standalone takes the defaults and
//!    says so loudly. The map of the leases is the exception: it is read once, as upstream does, since a change that
//!    some replicas know of and others do not would make two owners. For the same reason one that breaks a rule ends
//!    the process: the defaults might not be what its peers go by.
//! 4. Watches, those of the leases too, ticks and scrapes begin; the stat server accepts. It calls the process alive.
//! 5. Reconcilers begin once pods are known, since a decider born without knowing its pods would start from zero.
//! 6. It campaigns for leases once all that it reconciles has been listed: from others, who act, it would take them for
//!    nothing until then. Only now is it ready: an earlier replica that ends for it would leave its leases to nobody.
//!
//! # End
//!
//! 1. Stat connections are closed with 1012, so that activators go elsewhere; ticks and scrapes stop.
//! 2. Reconcilers finish what they are writing.
//! 3. Leases are released, only now: nobody else may write while we still do.
//! 4. The admin port closes last.
//!
//! Spans of wakes ([`crate::scale::trace`]) are standalone's alone: in Knative's autoscaler nothing on the way from a stat to
//! a patch makes spans.

mod buckets;
mod components;
mod configs;
mod seen;
mod tokens;

use crate::explain;
use crate::ingest::stat_server::StatServer;
use crate::options::Options;
use anyhow::Context;
use common_controller::shares::tell_of_edits;
use common_runtime::observe;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::otlp::Who;
use common_runtime::telemetry::traces::Tracing;
use components::Components;
use configs::Configs;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokens::Tokens;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest wait for background tasks at the end; the stat server takes the longest, to close its connections.
const DRAIN: Duration = Duration::from_secs(6);

/// Runs an autoscaler until `shutdown`; returns when all is released.
///
/// # Errors
/// The API server is too old, a port cannot be bound, or a ConfigMap breaks a rule.
pub async fn run(
    options: Options,
    client: Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let tokens = Tokens::new(&shutdown);
    let server = StatServer::bind(options.stat_listen)?;
    let stat_port = server.local_addr()?.port();
    let (server, trust) = match options.stat_tls.clone() {
        Some(tls) => {
            let (tls, trust) = tls.open(&tokens.last).await.context("TLS of the stat port")?;
            let allow_plain = tls.allow_plain;
            (server.encrypted(tls), Some((trust, allow_plain)))
        }
        None => (server, None),
    };
    let server = server.ready_once(tokens.listed.clone());
    if let Some(least) = &options.process.kubernetes_min_version {
        tokio::select! {
            checked = least.check(&client) => checked?,
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    let configs = Configs::read(&client, &options, &tokens.stop).await;
    let profile = options.front_end.profile();
    if !profile.defaults_replace_maps {
        configs.refusals.none()?; // As upstream; else the refusal has been told loudly.
    }
    let election = Result::clone(&configs.election.borrow());
    let election = election.with_context(|| options.process.config_maps.leader_election.clone())?;
    let (shares, released) = buckets::campaign(&client, &options, &election, &tokens.listed, &tokens.leases);
    let who = Who { service: "autoscaler", namespace: options.system_namespace.clone(), pod: options.pod_name.clone() };
    let tracing = match profile.traces {
        true => Tracing::start(&configs.observability.borrow().tracing, &who, &options.process.otel)?,
        false => None,
    };
    let around = (stat_port, tracing.clone());
    let mut components = Components::new(&options, shares, resolver.clone(), around, &configs, &tokens)?;
    configs.refusals.register(&components.metrics);
    tokio::spawn(tell_of_edits(
        options.process.config_maps.leader_election.clone(),
        configs.election.clone(),
        tokens.last.clone(),
    ));
    if let Some((trust, allow_plain)) = trust {
        components.peers.believe(trust, allow_plain);
    }
    let seen = observe::Diagnostics {
        who,
        metrics: components.metrics.clone(),
        config: configs.observability.clone(),
        pages: vec![explain::page(profile.kind, components.multiscaler.clone(), components.shares.clone())],
        admin: options.admin,
    };
    let mut observed = seen.observe(&options.process, tokens.last.clone()).await?;
    let tasks = components.spawn(&client, &options, server, &tokens);

    let (front_end, looks) = (options.front_end.clone(), client.clone());
    let reconcilers =
        front_end.decides().reconcilers(components.wiring(options, client, resolver, configs), &tokens.stop);
    if let Some(objects) = reconcilers.shown() {
        components.show(objects, looks, &tasks, &tokens.stop);
    }
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = components.pods.synced() => reconcilers.run(&tokens.listed, tokens.stop.clone()).await,
    }
    tokens.stop.cancel();
    tokens.leases.cancel();
    if let Err(error) = released.await {
        tracing::error!(%error, "leases were not released; others take over when they expire");
    }
    tokens.last.cancel();
    tasks.close();
    if timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "tasks did not end in time");
    }
    observed.flushed().await;
    if let Some(tracing) = tracing {
        tracing.flushed().await;
    }
    Ok(())
}
