//! The whole process: start and shutdown sequence.
//!
//! # Start
//!
//! 1. The stat port is bound first, so that a port in use is an error at once and not a process that hangs.
//! 2. The API server's version is checked.
//! 3. Configuration is read and watched from then on. An update that breaks a rule is rejected as a whole. If a map
//!    breaks a rule at the start, the process ends in a Knative install, as upstream; in standalone it uses the
//!    defaults and logs that loudly. The leader election map is the exception. It is read once, as upstream does: if
//!    only some replicas applied a change, a revision could have two owners. For the same reason the process ends if
//!    that map breaks a rule: its peers might not use the defaults.
//! 4. Watches (also those of the leases), ticks and scrapes start. The stat server accepts connections and reports the
//!    process alive.
//! 5. Reconcilers start once pods are known. A decider created without known pods would start from zero.
//! 6. The process campaigns for leases once everything it reconciles has been listed. If it took leases from active
//!    replicas earlier, it could not act on them. Only then is it ready: a replica that ends in its favour would
//!    otherwise leave its leases without a holder.
//!
//! # Shutdown
//!
//! 1. Stat connections are closed with 1012, so that activators connect elsewhere; ticks and scrapes stop.
//! 2. Reconcilers finish their pending writes.
//! 3. Leases are released only then, because no other replica may write while this one still does.
//! 4. The admin port closes last.
//!
//! Spans of wakes ([`crate::scale::trace`]) exist only in standalone. Knative's autoscaler records no spans between a
//! stat and a patch.

mod buckets;
mod components;
mod configs;
mod process_metrics;
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

/// Longest wait for background tasks at shutdown. The stat server takes longest, to close its connections.
const DRAIN: Duration = Duration::from_secs(6);

/// Runs an autoscaler until `shutdown`; returns when everything is released.
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
        configs.refusals.none()?; // As upstream. Otherwise the error has already been logged.
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
    let components = Components::new(&options, shares, resolver.clone(), around, &configs, &tokens);
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
    let wiring = components.wiring(&options, client.clone(), resolver, configs);
    let reconcilers = options.front_end.decides().reconcilers(wiring, &tokens.stop);
    let dashboard = components.dashboard(&options, reconcilers.displayed_objects(), &client)?;
    let tasks = components.spawn(&client, &options, (server, dashboard), &tokens);
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
