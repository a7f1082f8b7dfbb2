//! Workloads whose autoscaler was removed first: `kubectl zeroscale release` restores them, and nothing hangs forever.

use anyhow::{Context, ensure};
use autoscaler::release::{Scope, release};
use bytes::Bytes;
use common::names;
use common_api::ZeroScaler;
use e2e::test_env::{SOON, program};
use e2e::{Entry, TestEnv, Workload};
use futures::StreamExt;
use http::Request;
use http::header::{CONNECTION, HOST};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}, "annotations": {"note": "mine"}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "web", "port": 80, "targetPort": 8080}]}})
}

fn scaler(name: &str, create: bool) -> Value {
    let services = if create { json!([{"name": name, "create": true}]) } else { json!([]) };
    json!({"metadata": {"name": name}, "spec": {
        "target": {"kind": "Deployment", "name": name}, "services": services, "scale": {"window": "6s"}}})
}

/// Returns the parts of a Service that its owner could have written.
pub(crate) fn essence(mut service: Service) -> anyhow::Result<String> {
    service.metadata.resource_version = None;
    service.metadata.managed_fields = None;
    Ok(serde_json::to_string(&service)?)
}

async fn until_ready(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    env.until(SOON, "Ready", async || Ok(env.api::<ZeroScaler>().get(name).await?.is_ready())).await
}

async fn until_gone(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    env.until(SOON, "the ZeroScaler to go", async || Ok(env.api::<ZeroScaler>().get_opt(name).await?.is_none())).await
}

/// Returns the names of Zeroscale's slices.
async fn slices(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let ours = ListParams::default().labels(&format!("endpointslice.kubernetes.io/managed-by={}", names::MANAGED_BY));
    Ok(env.api::<EndpointSlice>().list(&ours).await?.iter().map(ResourceExt::name_any).collect())
}

/// Releases a scope and returns the performed steps, line by line.
async fn released(env: &TestEnv, scope: Scope) -> anyhow::Result<String> {
    let mut said = String::new();
    release(&env.client, &scope, |step| said.push_str(&format!("{step}\n"))).await?;
    Ok(said)
}

/// Observes the minimum number of ready addresses in a Service's slices, from now on until it is cancelled.
async fn fewest(env: &TestEnv, service: &str, until: CancellationToken) -> anyhow::Result<JoinHandle<usize>> {
    let slices: Api<EndpointSlice> = env.api();
    let asked = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let listed = slices.list(&asked).await?;
    let ready = |slice: &EndpointSlice| {
        let is_ready = |e: &&Endpoint| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
        slice.endpoints.iter().flatten().filter(is_ready).count()
    };
    let mut now: BTreeMap<String, usize> = listed.items.iter().map(|s| (s.name_any(), ready(s))).collect();
    let asked = WatchParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let version = listed.metadata.resource_version.unwrap_or_default();
    let events = slices.watch(&asked, &version).await?.take_until(until.cancelled_owned());
    Ok(tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        let mut fewest: usize = now.values().sum();
        while let Some(event) = events.next().await {
            match event.expect("the watch goes on") {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    _ = now.insert(slice.name_any(), ready(&slice))
                }
                WatchEvent::Deleted(slice) => _ = now.remove(&slice.name_any()),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => panic!("{error}"),
            }
            fewest = fewest.min(now.values().sum());
        }
        fewest
    }))
}

/// Goal: objects that are deleted after the autoscaler was removed hang until they are released. Then replicas,
/// Services and slices equal their former state byte for byte, and the Service has an endpoint all the time. Objects
/// that are not deleted are restored as well, and the next autoscaler takes them over again.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_autoscaler_left_behind_is_released_without_one() -> anyhow::Result<()> {
    let env = TestEnv::sleeping_soon(UpOptions::default()).await?;
    let workload = |name: &str, replicas| Workload::new(name).replicas(replicas);
    for (name, replicas) in [("going", 2), ("staying", 1), ("orphan", 1)] {
        env.create::<Deployment>(workload(name, replicas).deployment(&program()?)).await?;
    }
    let mut before = Vec::new();
    for name in ["going", "staying", "orphan"] {
        before.push(essence(env.create::<Service>(service(name)).await?)?);
        env.create::<ZeroScaler>(scaler(name, false)).await?;
    }
    env.create::<Deployment>(workload("made", 0).deployment(&program()?)).await?;
    env.create::<ZeroScaler>(scaler("made", true)).await?;
    for name in ["going", "staying", "orphan", "made"] {
        until_ready(&env, name).await?;
        env.until_asleep(name).await?;
    }
    env.cluster.kill_plane(PlaneId::Autoscaler(0));

    let scalers = env.api::<ZeroScaler>();
    for name in ["going", "made"] {
        scalers.delete(name, &DeleteParams::default()).await?;
        assert!(scalers.get(name).await?.metadata.deletion_timestamp.is_some(), "it hangs");
    }
    // The least that kubectl can do: the object goes, and nothing is restored.
    let least = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scalers.patch("orphan", &PatchParams::default(), &least).await?;
    scalers.delete("orphan", &DeleteParams::default()).await?;
    until_gone(&env, "orphan").await?;

    let ends = CancellationToken::new();
    let fewest = fewest(&env, "going", ends.clone()).await?;
    let said = released(&env, Scope::Named(env.namespace.clone(), vec!["going".to_owned()])).await?;
    assert!(
        said.contains("Deployment going was scaled from 0 to 2") && said.contains("service/going was given back"),
        "{said}"
    );
    until_gone(&env, "going").await?;
    env.until(SOON, "nobody but Kubernetes to lead to it", async || {
        Ok(!slices(&env).await?.iter().any(|slice| slice.starts_with("going")))
    })
    .await?;
    ends.cancel();
    assert!(fewest.await? >= 1, "its clients always find somebody");
    assert!(scalers.get("made").await?.metadata.deletion_timestamp.is_some(), "nobody has named it");
    let said = released(&env, Scope::Namespace(env.namespace.clone())).await?;
    assert!(
        said.contains("service/orphan in namespace") && said.contains("belonged to a ZeroScaler that is gone"),
        "{said}"
    );
    until_gone(&env, "made").await?;
    for (name, before) in ["going", "staying", "orphan"].into_iter().zip(&before) {
        assert_eq!(essence(env.api::<Service>().get(name).await?)?, *before, "{name}");
    }
    assert_eq!((env.replicas("going").await?, env.replicas("staying").await?, env.replicas("made").await?), (2, 1, 1));
    env.until(SOON, "no slice and no Service of ours", async || {
        let services = env.api::<Service>().list(&ListParams::default()).await?;
        let left: Vec<_> = services.iter().map(ResourceExt::name_any).collect();
        Ok(slices(&env).await?.is_empty() && left == ["going", "orphan", "staying"])
    })
    .await?;
    let said = released(&env, Scope::All).await?;
    assert!(!said.contains("was scaled") && !said.contains("service/"), "nothing is left to do: {said}");
    let unknown = Scope::Named(env.namespace.clone(), vec!["nobody".to_owned()]);
    let error = released(&env, unknown).await.expect_err("unknown").to_string();
    assert!(error.contains("ZeroScaler \"nobody\" does not exist"), "{error}");

    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.cluster.ready_planes(2).await;
    env.until_asleep("staying").await?;
    assert_eq!(env.load(Entry::Activator, "staying").get("/").await?.status, 200, "taken up again");
    env.end().await;
    Ok(())
}

/// Sends a request every 50 ms until `ends`, on one connection while it lasts. Counts each response in `answered`, and
/// returns the number of connections that a response closed. If a slow machine lets a connection idle for a second, it
/// may be closed without a response while the next request is in flight. That request is sent again, and the close
/// counts.
///
/// # Errors
/// Fails if a request is refused or broken off.
async fn keeps_asking(at: SocketAddr, answered: Arc<AtomicUsize>, ends: CancellationToken) -> anyhow::Result<usize> {
    let (mut kept, mut ended): (Option<SendRequest<Empty<Bytes>>>, _) = (None, 0);
    let mut last = Instant::now();
    while !ends.is_cancelled() {
        let idled = kept.is_some() && last.elapsed() >= Duration::from_secs(1);
        let mut client = match kept.take() {
            Some(client) if !client.is_closed() => client,
            _ => {
                let (client, connection) = http1::handshake(TokioIo::new(TcpStream::connect(at).await?)).await?;
                tokio::spawn(connection);
                client
            }
        };
        let request = Request::get("/").header(HOST, "kept").body(Empty::new())?;
        let asked = async {
            client.ready().await?;
            let (head, body) = client.send_request(request).await?.into_parts();
            Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
        };
        let (head, body) = match timeout(SOON, asked).await? {
            Err(error) if idled && (error.is_incomplete_message() || error.is_canceled()) => {
                ended += 1;
                continue;
            }
            answer => answer.context("on a connection that nobody had ended")?,
        };
        last = Instant::now();
        ensure!(head.status == 200, "{}: {}", head.status, String::from_utf8_lossy(&body));
        match head.headers.get(CONNECTION).is_some_and(|said| said == "close") {
            true => ended += 1,
            false => kept = Some(client),
        }
        answered.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(50)).await;
    }
    Ok(ended)
}

/// Goal: a client with a persistent connection to an activator loses no request when the workload is restored: a
/// response closes the connection while the workload is still known, and the next connection leads to the pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_ends_before_its_workload_is_given_back() -> anyhow::Result<()> {
    let env = TestEnv::sleeping_soon(UpOptions::default()).await?;
    env.create::<Deployment>(Workload::new("kept").replicas(1).deployment(&program()?)).await?;
    let cluster_ip = env.create::<Service>(service("kept")).await?.spec.and_then(|spec| spec.cluster_ip);
    let address = SocketAddr::new(cluster_ip.context("a cluster IP")?.parse()?, 80);
    env.create::<ZeroScaler>(scaler("kept", false)).await?;
    until_ready(&env, "kept").await?;
    env.until_asleep("kept").await?;
    let (answered, ends) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
    let asking = tokio::spawn(keeps_asking(address, answered.clone(), ends.clone()));
    let ten_more = async |when: &str| {
        let enough = answered.load(Ordering::Relaxed) + 10;
        let is_enough = async || Ok(answered.load(Ordering::Relaxed) >= enough || asking.is_finished());
        env.until(SOON, when, is_enough).await
    };
    ten_more("answers by an activator").await?;
    env.api::<ZeroScaler>().delete("kept", &DeleteParams::default()).await?;
    until_gone(&env, "kept").await?;
    ten_more("answers by pods").await?;
    ends.cancel();
    assert!(asking.await?? >= 1, "an activator has ended it");
    env.end().await;
    Ok(())
}

/// Goal: an edit of the target restores the former workload with its Service, byte for byte, and takes over the new
/// one; also if the edit is made while no autoscaler runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_target_gives_the_former_one_back() -> anyhow::Result<()> {
    let env = TestEnv::sleeping_soon(UpOptions::default()).await?;
    let mut before = Vec::new();
    for (name, replicas) in [("former", 2), ("latter", 1)] {
        env.create::<Deployment>(Workload::new(name).replicas(replicas).deployment(&program()?)).await?;
        before.push(essence(env.create::<Service>(service(name)).await?)?);
    }
    env.create::<ZeroScaler>(scaler("former", false)).await?;
    until_ready(&env, "former").await?;
    env.until_asleep("former").await?;
    let scalers = env.api::<ZeroScaler>();
    let edit = async |to: &str| -> anyhow::Result<()> {
        let target = Patch::Merge(json!({"spec": {"target": {"name": to}}}));
        scalers.patch("former", &PatchParams::default(), &target).await?;
        Ok(())
    };
    let moved = async |to: &str, from: &str, replicas: i32, before: &str| -> anyhow::Result<()> {
        env.until(SOON, "the other one to be served", async || {
            let object = scalers.get("former").await?;
            let served = object.status.as_ref().and_then(|status| status.service.as_deref());
            Ok(object.is_ready() && served == Some(to))
        })
        .await?;
        assert_eq!(env.replicas(from).await?, replicas, "as {from} was found");
        assert_eq!(essence(env.api::<Service>().get(from).await?)?, before);
        env.until(SOON, "slices of ours for the other one alone", async || {
            let ours = slices(&env).await?; // Those of the former one stay until Kubernetes' own slices exist.
            Ok(!ours.is_empty() && ours.iter().all(|slice| slice.starts_with(to)))
        })
        .await?;
        assert_eq!(env.load(Entry::Service, to).get("/").await?.status, 200, "{to} is served");
        let load = env.load(Entry::Service, from);
        env.until(SOON, "the former one by its own pods", async || Ok(load.get("/").await?.status == 200)).await
    };
    edit("latter").await?;
    moved("latter", "former", 2, &before[0]).await?;
    env.cluster.kill_plane(PlaneId::Autoscaler(0));
    edit("former").await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    moved("former", "latter", 1, &before[1]).await?;
    env.end().await;
    Ok(())
}

/// Goal: an edit that cannot be served leaves the former configuration in force, even if it was made while no
/// autoscaler ran.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_in_force_is_so_after_a_restart() -> anyhow::Result<()> {
    let env = TestEnv::sleeping_soon(UpOptions::default()).await?;
    env.create::<Deployment>(Workload::new("kept").replicas(1).deployment(&program()?)).await?;
    env.create::<Service>(service("kept")).await?;
    env.create::<ZeroScaler>(scaler("kept", false)).await?;
    until_ready(&env, "kept").await?;
    env.until_asleep("kept").await?;
    env.cluster.kill_plane(PlaneId::Autoscaler(0));
    let wrong = Patch::Merge(json!({"spec": {"target": {"name": "nobody"}}}));
    env.api::<ZeroScaler>().patch("kept", &PatchParams::default(), &wrong).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.until(SOON, "the mistake to be named", async || {
        let object = env.api::<ZeroScaler>().get("kept").await?;
        Ok(object.condition("Ready").is_some_and(|ready| ready.reason == "TargetNotFound"))
    })
    .await?;
    assert_eq!(env.load(Entry::Service, "kept").get("/").await?.status, 200, "it wakes");
    env.until_asleep("kept").await?;
    env.end().await;
    Ok(())
}

/// Goal: a namespace whose workloads are at zero ends soon after it is deleted; without an autoscaler it hangs until it
/// is released.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_namespace_waits_for_the_autoscaler_alone() -> anyhow::Result<()> {
    let env = TestEnv::sleeping_soon(UpOptions::default()).await?;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let fill = async |space: &e2e::Space, name: &str| -> anyhow::Result<()> {
        space.create::<Deployment>(Workload::new(name).deployment(&program()?)).await?;
        space.create::<Service>(service(name)).await?;
        space.create::<ZeroScaler>(scaler(name, false)).await?;
        space.until(SOON, "Ready", async || Ok(space.api::<ZeroScaler>().get(name).await?.is_ready())).await
    };
    let is_gone = async |name: &str| -> anyhow::Result<bool> { Ok(namespaces.get_opt(name).await?.is_none()) };
    let (first, second) =
        (e2e::Space::create_in(env.client.clone()).await?, e2e::Space::create_in(env.client.clone()).await?);
    fill(&first, "hello").await?;
    fill(&second, "hello").await?;
    // Kubernetes waits five seconds before it deletes the contents, and eight more once it has found a finalizer.
    namespaces.delete(&first.namespace, &DeleteParams::default()).await?;
    env.until(SOON, "the ZeroScaler to be asked to go", async || {
        let left = first.api::<ZeroScaler>().get_opt("hello").await?;
        Ok(left.is_none_or(|object| object.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    let (begun, stalled) = (Instant::now(), env.stalls.total());
    first.until_gone("hello").await?;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5) + (env.stalls.total() - stalled), "{took:?}");
    env.until(SOON, "the end of the first", async || is_gone(&first.namespace).await).await?;
    eprintln!("a ZeroScaler that slept was given back in {took:?}, and its namespace has ended");

    env.cluster.kill_plane(PlaneId::Autoscaler(0));
    namespaces.delete(&second.namespace, &DeleteParams::default()).await?;
    env.until(SOON, "nothing but the ZeroScaler", async || {
        Ok(second.api::<Deployment>().list(&ListParams::default()).await?.items.is_empty())
    })
    .await?;
    assert!(!is_gone(&second.namespace).await?, "it hangs");
    release(&env.client, &Scope::Namespace(second.namespace.clone()), |_| ()).await?;
    env.until(SOON, "the end of the second", async || is_gone(&second.namespace).await).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.cluster.ready_planes(2).await;
    env.end().await;
    Ok(())
}
