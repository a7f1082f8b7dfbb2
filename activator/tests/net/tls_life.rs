//! TLS during drains and rotations of certificates, and probes over HTTPS.

use crate::rig::{self, Pod, Rig, full, listen, patient, read_until};
use crate::tls::{
    ANY, Authority, Client, NAMES, QueueProxy, configs, get, http1, http2, internal, knative, to_revision,
};
use common::backend::{Probe, ProbeKind};
use common_runtime::tls::{ClientAuth, Identity, Parameters, TlsAcceptor, server_config};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// Starts a pod that sends `one`, and `two` once the gate has a permit. An upgrade becomes an echo.
async fn gated(gate: Arc<Semaphore>) -> Pod {
    Pod::start(move |request: Request<Incoming>| {
        let gate = gate.clone();
        async move {
            if request.headers().contains_key("upgrade") {
                return rig::echo_tunnel(request, "echo");
            }
            let parts = futures::stream::unfold(0, move |sent| {
                let gate = gate.clone();
                async move {
                    let part = *["one", "two"].get(sent)?;
                    if sent > 0 {
                        gate.acquire().await.expect("open").forget();
                    }
                    Some((Ok(Frame::data(part.into())), sent + 1))
                }
            });
            Response::new(StreamBody::new(parts).boxed_unsync())
        }
    })
    .await
}

/// Goal: a drain treats encrypted connections like plain ones: running requests are completed over both protocols, idle
/// connections are closed, and a tunnel may continue up to the bound.
#[tokio::test]
async fn a_drain_completes_requests_over_tls() {
    let gate = Arc::new(Semaphore::new(0));
    let pod = gated(gate.clone()).await;
    let authority = Authority::new("one");
    let drain = |options: &mut activator::Options| options.drain = Duration::from_secs(4);
    let rig = Rig::start_configured(drain, configs(&internal(&authority, &authority))).await;
    let address = rig.activator.https.expect("TLS is on");
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;

    let mut first = http1(ANY.connect(&authority, address).await.expect("shaken")).await;
    let over_http2 = Client { alpn: &[b"h2"], ..ANY };
    let mut second = http2(over_http2.connect(&authority, address).await.expect("shaken")).await;
    let mut bodies = [
        patient(first.send_request(get("/"))).await.expect("a head").into_body(),
        patient(second.send_request(get("https://app.ns/"))).await.expect("a head").into_body(),
    ];
    for body in &mut bodies {
        let part = patient(body.frame()).await.expect("a frame").expect("whole").into_data().expect("data");
        assert_eq!(&part[..], b"one");
    }
    let mut tunnel = ANY.connect(&authority, address).await.expect("shaken");
    patient(tunnel.write_all(format!("{}early", rig::UPGRADE).as_bytes())).await.expect("open");
    read_until(&mut tunnel, "early").await;
    let mut idle = ANY.connect(&authority, address).await.expect("shaken");

    let stopping = tokio::spawn(rig.activator.stop());
    assert_eq!(patient(idle.read(&mut [0])).await.unwrap_or(0), 0, "idle connections are closed");
    rig::until(|| std::net::TcpStream::connect(address).is_err()).await;
    gate.add_permits(2);
    for body in bodies {
        let rest = patient(body.collect()).await.expect("not cut").to_bytes();
        assert_eq!(&rest[..], b"two");
    }
    rig::until(|| first.is_closed() && second.is_closed()).await;
    patient(tunnel.write_all(b"still here")).await.expect("open");
    read_until(&mut tunnel, "still here").await;
    assert_eq!(patient(tunnel.read(&mut [0])).await.unwrap_or(0), 0, "cut at the bound");
    patient(stopping).await.expect("no panic");
}

/// Goal: no request fails while authorities change one after the other, each in Knative's order (trust both, use the
/// new one, trust only that). Method: a load that needs a new connection for each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_rotate_under_load() {
    const CLIENTS: usize = 4;
    let mut authority = Authority::new("0");
    let pod = QueueProxy::start(authority.signed(&NAMES)).await;
    let tls = internal(&authority, &authority);
    let rig = Arc::new(knative(&tls, &pod).await);
    let (answered, stop) = (Arc::new([(); CLIENTS].map(|()| AtomicUsize::new(0))), Arc::new(AtomicBool::new(false)));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (rig, answered, stop) = (rig.clone(), answered.clone(), stop.clone());
        clients.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let answer = rig.send(to_revision("/last")).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
                answered[client].fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let count = || answered.each_ref().map(|count| count.load(Ordering::SeqCst));
    // Two of each client, because the first may have begun earlier.
    let some_more = async || {
        let before = count();
        rig::until(|| count().iter().zip(before).all(|(now, before)| *now >= before + 2)).await;
    };
    for name in ["1", "2", "3"] {
        let next = Authority::new(name);
        let mut both = authority.roots();
        both.roots.extend(next.roots().roots);
        tls.roots.replace(both).expect("TLS 1.3");
        some_more().await;
        pod.identity.replace(next.signed(&NAMES));
        some_more().await;
        tls.roots.replace(next.roots()).expect("TLS 1.3");
        some_more().await;
        authority = next;
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(client) = patient(clients.join_next()).await {
        client.expect("every answer is right");
    }
}

/// Goal: the probe ignores the pod's certificate. Requests still use the plain port.
#[tokio::test]
async fn a_probe_over_https_decides_when_a_pod_is_used() {
    let ready = Arc::new(AtomicBool::new(false));
    let identity = Identity::new(Authority::new("unknown").signed(&["unknown.example"]));
    let config = server_config(&identity, &Parameters::default(), ClientAuth::None, &[]).expect("valid");
    let is_ready = ready.clone();
    let probed = Pod::raw(listen().await, move |stream, probes| {
        let (acceptor, ready) = (TlsAcceptor::from(config.clone()), is_ready.clone());
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                probes.fetch_add(1, Ordering::SeqCst);
                let good = ready.load(Ordering::SeqCst) && request.uri() == "/ready" && request.method() == "GET";
                let mut response = Response::new(full(""));
                *response.status_mut() = if good { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
                async move { Ok::<_, std::convert::Infallible>(response) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        }
    });
    let pod = Pod::saying("served in plain").await;
    let probe = Probe { kind: ProbeKind::Https, port: Some(probed.address.port()), ..Probe::http("/ready") };
    let rig = Rig::with_pods(&[pod.address], |backend| backend.probe = probe).await;
    let (answer, ()) = tokio::join!(rig.get("app.ns", "/"), async {
        rig.until(|load| load.queued == 1).await;
        rig::until(|| probed.requests() >= 5).await;
        assert_eq!(pod.requests(), 0, "no request before a probe has passed");
        ready.store(true, Ordering::SeqCst);
    });
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "served in plain"));
}
