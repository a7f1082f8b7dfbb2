//! Planes against the embedded API server: leases, and configuration that breaks a rule. There is no pod.

use crate::install::site::free_address;
use autoscaler::{Hpa, InstallKind};
use common::ownership::{Holder, bucket_names};
use common_controller::shares::Shares;
use common_runtime::environment::Mode;
use common_runtime::lease::{self, ElectorOptions, Ownership, Timing};
use common_runtime::process::ProcessOptions;
use common_runtime::resolve::Dns;
use e2e::bare::{self, SYSTEM};
use e2e::load::metrics;
use e2e::space::until;
use e2e::stalls::Stalls;
use hpa::options::{ControllerOptions, HpaMode};
use hpa::run::HpaOptions;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use local::api::ApiServer;
use serde_json::{Value, json};
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Upper bound, far beyond the duration of anything here, so that a bug fails a test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn cluster() -> (ApiServer, Client) {
    bare::start("127.200.128.0/17").await.expect("an API server")
}

fn holder(number: u8) -> Holder {
    Holder { pod_name: format!("as-{number}"), pod_ip: [10, 0, 0, number].into() }
}

/// Starts elector number `number` for four buckets, which can act once `ready` is done. Returns what it owns, its task,
/// and a token that ends it.
fn start_elector(
    ready: impl Future<Output = ()> + Send + 'static,
    client: &Client,
    number: u8,
) -> (Ownership, JoinHandle<()>, CancellationToken) {
    let options = ElectorOptions {
        namespace: SYSTEM.into(),
        names: bucket_names(4),
        identity: holder(number).to_string(),
        timing: Timing::STANDALONE,
        balance: true,
    };
    let stop = CancellationToken::new();
    let (ownership, released) = lease::start(client.clone(), options, ready, stop.clone());
    (ownership, released, stop)
}

async fn until_owned(owner: &Ownership, expected: usize) {
    let mut changes = owner.changes();
    let settled = async {
        while (0..4).filter(|bucket| owner.owns(*bucket)).count() != expected {
            changes.changed().await.expect("the elector lives");
        }
    };
    timeout(PATIENCE, settled).await.unwrap_or_else(|_| panic!("never owned {expected} buckets"));
}

/// Returns the error with which a process ends by itself.
async fn refusal(process: impl Future<Output = anyhow::Result<()>>) -> String {
    format!("{:#}", timeout(PATIENCE, process).await.expect("ends").expect_err("refused"))
}

/// Ends a process, which must succeed.
async fn end(process: JoinHandle<anyhow::Result<()>>, stop: &CancellationToken) {
    stop.cancel();
    timeout(PATIENCE, process).await.expect("ends").expect("no panic").expect("no error");
}

async fn create_map(client: &Client, name: &str, data: Value) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    bare::create(client, Some(SYSTEM), map).await.expect("created");
}

/// Goal: on a real API, leases are taken, shared fairly, and taken over within two seconds of an orderly exit, but not
/// while a write is in flight under a claimed lease; upstream's replicas can read them.
#[tokio::test]
async fn leases_are_shared_and_handed_over() {
    let (_server, client) = cluster().await;
    let (first, released, stop) = start_elector(ready(()), &client, 1);
    until_owned(&first, 4).await;
    let writes: Vec<_> = (0..4).map(|bucket| first.begin_write(bucket).expect("held")).collect();
    let (second, _, _stop_second) = start_elector(ready(()), &client, 2);
    // The holder gives up one lease when it is claimed: no write begins, but those in flight continue.
    until_owned(&first, 3).await;
    assert!((0..4).all(|bucket| !second.owns(bucket)), "a write is under way in each of them");
    writes.into_iter().for_each(lease::WriteGuard::answered);
    until_owned(&second, 2).await;
    until_owned(&first, 2).await;

    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM);
    for (bucket, name) in bucket_names(4).iter().enumerate() {
        let spec = leases.get(name).await.expect("lease").spec.expect("spec");
        let owner = if first.owns(bucket) { holder(1) } else { holder(2) };
        assert_eq!(spec.holder_identity, Some(owner.to_string()));
        assert_eq!(spec.lease_duration_seconds, Some(15));
        assert!(spec.acquire_time.is_some() && spec.renew_time.is_some());
        assert_eq!(spec.lease_transitions, Some(i32::from(owner == holder(2))), "{name}");
    }

    let (begun, stalls) = (Instant::now(), Stalls::new());
    stop.cancel();
    timeout(PATIENCE, released).await.expect("released in time").expect("no panic");
    let is_held = |bucket| first.owns(bucket) || first.begin_write(bucket).is_some();
    assert!(!(0..4).any(is_held), "nothing is held after the release");
    until_owned(&second, 4).await;
    assert!(begun.elapsed() < Duration::from_secs(2) + stalls.total(), "taken over after {:?}", begun.elapsed());
}

/// Goal: a process that cannot act yet takes and claims no lease, but knows the holders. As soon as it can act, it gets
/// its share.
#[tokio::test]
async fn an_elector_that_is_not_ready_takes_no_lease() {
    let (_server, client) = cluster().await;
    let (first, _, _stop) = start_elector(ready(()), &client, 1);
    until_owned(&first, 4).await;
    let is_ready = CancellationToken::new();
    let (second, _, _stop_second) = start_elector(is_ready.clone().cancelled_owned(), &client, 2);
    let mut changes = second.changes();
    let knows_holders = async {
        while (0..4).any(|bucket| second.holder(bucket) != Some(holder(1))) {
            changes.changed().await.expect("the elector lives");
        }
    };
    timeout(PATIENCE, knows_holders).await.expect("it watches");
    // If it claimed leases, it would own some before a third process that started later.
    let (third, _, _stop_third) = start_elector(ready(()), &client, 3);
    until_owned(&third, 2).await;
    until_owned(&first, 2).await;
    until_owned(&second, 0).await;
    is_ready.cancel();
    until_owned(&second, 1).await;
}

/// Goal: in the drop-in a bucket's Service and EndpointSlice lead to its holder, and later to the next holder.
#[tokio::test]
async fn the_service_of_a_bucket_leads_to_its_holder() {
    let (_server, client) = cluster().await;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), SYSTEM);
    let name = &bucket_names(1)[0];
    for number in [1, 2] {
        let stop = CancellationToken::new();
        let shares = Shares::new(bucket_names(1), Ownership::alone(1, &holder(number)));
        let ip = holder(number).pod_ip;
        let (client, system) = (client.clone(), SYSTEM.into());
        tokio::spawn(autoscaler::knative::bucket_services::run(client, system, ip, shares, stop.clone()));
        let leads_to_it = |slice: &EndpointSlice| {
            slice.endpoints.iter().flatten().any(|endpoint| endpoint.addresses == [ip.to_string()])
        };
        let mut first = None;
        let is_published = async || {
            first = slices.get(name).await.ok().filter(leads_to_it);
            first.is_some()
        };
        until("the slice to lead to the holder", is_published).await.expect("published");
        let slice = first.expect("published");
        assert_eq!(slice.endpoints.map(|endpoints| endpoints.len()), Some(1), "the former holder is not listed");
        assert_eq!(slice.metadata.labels.expect("labels")["kubernetes.io/service-name"], *name);
        stop.cancel();
    }
    let services: Api<Service> = Api::namespaced(client, SYSTEM);
    let spec = services.get(name).await.expect("Service").spec.expect("spec");
    assert_eq!(spec.selector, None);
    assert_eq!(spec.ports.expect("ports")[0].port, 8080);
}

/// Goal: an invalid ConfigMap ends the processes of a Knative installation, as upstream's. Standalone uses the defaults
/// and reports the map in a metric, except the leases' map: defaults could lead to two owners, so it ends as well.
#[tokio::test]
async fn invalid_configuration_ends_the_drop_in() {
    let (_server, client) = cluster().await;
    let write = async |name: &str, key: &str, value: &str| create_map(&client, name, json!({key: value})).await;
    let error = async |options: autoscaler::Options| {
        refusal(autoscaler::run(options, client.clone(), Arc::new(Dns), CancellationToken::new())).await
    };
    write("config-autoscaler", "stable-window", "1s").await;
    write("config-network", "system-internal-tls", "perhaps").await;
    let text = error(autoscaler::Options { install: InstallKind::Knative, ..options(own_address()) }).await;
    assert!(text.starts_with("ConfigMap config-autoscaler: stable-window = 1s: "), "{text}");

    let mut options_of_activator = activator::Options::new("act-0", [127, 0, 0, 1].into(), Mode::Knative);
    options_of_activator.system_namespace = SYSTEM.into();
    let ended = activator::run(options_of_activator, client.clone(), Arc::new(Dns), CancellationToken::new());
    let text = refusal(ended).await;
    assert!(text.starts_with("ConfigMap config-network: system-internal-tls = perhaps: "), "{text}");

    bare::define_resources(&client).await.expect("the CRDs");
    let (stop, admin) = (CancellationToken::new(), own_address());
    let standalone = autoscaler::Options { admin: Some(admin), ..options(own_address()) };
    let running = tokio::spawn(autoscaler::run(standalone, client.clone(), Arc::new(Dns), stop.clone()));
    until_refused(admin, 1).await;
    end(running, &stop).await;

    write("config-leader-election", "buckets", "11").await;
    assert_eq!(error(options(own_address())).await, "config-leader-election: buckets = 11: must be from 1 to 10");
}

/// Goal: an invalid ConfigMap at the start ends `autoscaler-hpa` if it replaces upstream's, with an error that names
/// map, key and value. In other modes only the leases' map does, since defaults could lead to two owners. Other maps
/// are reported in a metric until they are fixed, without a restart. Once all are fixed it starts and leads.
#[tokio::test]
async fn invalid_configuration_ends_autoscaler_hpa_or_is_reported() {
    const ELECTION: &str = "config-leader-election";
    const AUTOSCALER: &str = "config-autoscaler";
    let (_server, client) = cluster().await;
    bare::define_shared_resources(&client).await.expect("the CRDs");
    for name in [ELECTION, AUTOSCALER] {
        create_map(&client, name, json!({})).await;
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    let write = async |name: &str, key: &str, value: Option<&str>| {
        let patch = Patch::Merge(json!({"data": {key: value}}));
        maps.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    };
    let rows = [
        (HpaMode::Delegate, AUTOSCALER, "stable-window", "1s", "ConfigMap config-autoscaler: stable-window = 1s: "),
        (HpaMode::Delegate, ELECTION, "lease-duration", "soon", "config-leader-election: lease-duration = soon: "),
        (HpaMode::Native, ELECTION, "lease-duration", "soon", "config-leader-election: lease-duration = soon: "),
    ];
    for (mode, name, key, value, expected) in rows {
        write(name, key, Some(value)).await;
        let ended = hpa::run::run(hpa_options(mode, None), client.clone(), CancellationToken::new());
        let error = refusal(ended).await;
        assert!(error.starts_with(expected), "{mode:?}: {error}");
        write(name, key, None).await;
    }

    write(AUTOSCALER, "stable-window", Some("1s")).await;
    let (stop, admin) = (CancellationToken::new(), own_address());
    let native = tokio::spawn(hpa::run::run(hpa_options(HpaMode::Native, Some(admin)), client.clone(), stop.clone()));
    until_refused(admin, 1).await;
    write(AUTOSCALER, "stable-window", Some("60s")).await;
    until_refused(admin, 0).await;
    end(native, &stop).await;

    let stop = CancellationToken::new();
    let delegate = tokio::spawn(hpa::run::run(hpa_options(HpaMode::Delegate, None), client.clone(), stop.clone()));
    let leases: Api<Lease> = Api::namespaced(client, SYSTEM);
    let is_held = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        lease.metadata.name.as_deref().is_some_and(|name| name.starts_with("hpaautoscaler")) && holder == Some(HPA)
    };
    let leads = async || leases.list(&ListParams::default()).await.expect("listed").iter().any(is_held);
    until("it to lead", leads).await.expect("leads");
    end(delegate, &stop).await;
}

/// Identity of `autoscaler-hpa` on leases.
const HPA: &str = "host_uuid";

fn hpa_options(mode: HpaMode, admin: Option<SocketAddr>) -> HpaOptions {
    HpaOptions {
        mode,
        system_namespace: SYSTEM.into(),
        identity: HPA.into(),
        alone: false,
        workers: 1,
        controller: ControllerOptions::default(),
        probes: None,
        admin,
        process: ProcessOptions::default(),
    }
}

/// Waits until `zeroscale_config_refused` of `config-autoscaler` has this value.
async fn until_refused(admin: SocketAddr, value: u8) {
    let expected = format!("zeroscale_config_refused{{config_map=\"config-autoscaler\"}} {value}");
    let is_reported = async || metrics(admin).await.unwrap_or_default().lines().any(|line| line == expected);
    until(&expected, is_reported).await.expect("reported");
}

fn options(listen: SocketAddr) -> autoscaler::Options {
    autoscaler::Options {
        system_namespace: SYSTEM.into(),
        stat_listen: listen,
        ..autoscaler::Options::new("as-0", listen.ip(), InstallKind::standalone(Hpa::Engine))
    }
}

/// Returns an address that no other test uses: a free port of 127.0.0.1 may be taken by a client before it is bound.
fn own_address() -> SocketAddr {
    SocketAddr::new(free_address().expect("an address"), 18_013)
}
