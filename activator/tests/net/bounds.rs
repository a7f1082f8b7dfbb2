//! Bounds: no request waits forever, and a refusal names its bound. Also Knative's contract, drains and the admin port.

use crate::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, WINDOW_UPDATE, block, frame, read_frame,
};
use crate::hostile::GET;
use crate::protocols::{Upload, streamed};
use crate::rig::{self, Pod, Rig, UPGRADE, connect_and_write, http2_client, patient, read_until, write};
use activator::Options;
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common_runtime::environment::Mode;
use common_runtime::telemetry::catalog;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::client::conn::http2::SendRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

/// Kubelet's probe.
const PROBE: &str = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1\r\n\r\n";

#[tokio::test]
async fn held_requests_are_bounded_by_count_and_time() {
    let rig = Rig::with_revision(|backend| (backend.max_held, backend.timeout_ms) = (1, 3_000)).await;
    let (timed_out, full) = tokio::join!(rig.get("app.ns", "/"), async {
        rig.until(|load| load.queued == 1).await;
        rig.get("app.ns", "/").await
    });
    assert_eq!((full.status, full.header("x-zeroscale-reason")), (StatusCode::SERVICE_UNAVAILABLE, "max-held"));
    assert_eq!((full.header("x-zeroscale-origin"), full.header("retry-after")), ("activator", "1"));
    assert!(full.body.contains("1 requests"), "{}", full.body);
    assert_eq!((timed_out.status, timed_out.header("x-zeroscale-reason")), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    assert!(timed_out.body.contains("timeout of 3s"), "{}", timed_out.body);
}

#[tokio::test]
async fn a_failing_revision_refuses_held_and_new_requests_at_once() {
    let rig = Rig::with_revision(|_| {}).await;
    let (held, ()) = tokio::join!(rig.get("app.ns", "/"), async {
        rig.until(|load| load.queued == 1).await;
        rig.revision(|backend| backend.failing = Some("CrashLoopBackOff: exit code 3".into())).await;
    });
    let later = rig.get("app.ns", "/").await;
    for answer in [held, later] {
        assert_eq!((answer.status, answer.header("x-zeroscale-reason")), (StatusCode::SERVICE_UNAVAILABLE, "failing"));
        assert!(answer.body.contains("CrashLoopBackOff: exit code 3"), "{}", answer.body);
    }
    rig.revision(|_| {}).await;
    let _pod = rig.only_pod(Pod::saying("recovered").await).await;
    assert_eq!(rig.get("app.ns", "/").await.body, "recovered");
}

/// Goal: in either protocol the client notices that its response is incomplete. Over HTTP/2 only its stream ends. An
/// HTTP/1 connection outlives the timeouts of its earlier responses.
#[tokio::test]
async fn a_client_that_stops_reading_is_cut_off_at_the_timeout() {
    let pod = Pod::start(|request| async move {
        if request.uri().path() == "/hello" {
            return Response::new(rig::full("hello"));
        }
        let parts = futures::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[0; 64 * 1024]))));
        Response::new(StreamBody::new(parts).boxed_unsync())
    })
    .await;
    let rig = Rig::with_pods(&[pod.address], |backend| backend.timeout_ms = 4_000).await;
    let small = |method: &str| format!("{method} /hello HTTP/1.1\r\nhost: app.ns\r\n\r\n");
    let mut persistent = rig.send_raw(&small("GET")).await;
    read_until(&mut persistent, "hello").await;
    write(&mut persistent, &small("HEAD")).await;
    read_until(&mut persistent, "\r\n\r\n").await;
    let mut client = rig.send_raw(rig::GET).await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    rig.until(|load| load.in_flight == 0).await;
    assert!(!rig::read_to_end(&mut client).await.ends_with("0\r\n\r\n"), "cut, not complete");

    let client = http2_client(rig.address).await;
    let ask = async || {
        let request = Request::get("http://app.ns/").body(Empty::<Bytes>::new()).expect("valid");
        patient(client.clone().send_request(request)).await.expect("an answer")
    };
    let unread = ask().await;
    rig.until(|load| load.in_flight == 0).await;
    assert_eq!(ask().await.status(), StatusCode::OK, "the connection serves other streams");
    assert!(patient(unread.into_body().collect()).await.is_err(), "reset, not complete");
    write(&mut persistent, &small("GET")).await;
    read_until(&mut persistent, "hello").await;
}

/// Goal: the activator can replace Knative's, with the same headers, forms of hosts and texts.
#[tokio::test]
async fn knative_mode_follows_the_headers_and_the_inbound_protocol() {
    use activator::discovery::{Event, Spec};
    let pod = Pod::echoing().await;
    let rig = Rig::start_with(|options| options.mode = Mode::Knative).await;
    let mut backend = rig::backend("app");
    backend.queue_proxy = true;
    let spec = Spec { contract: activator::Contract::Knative, ..Spec::standalone("ns", "app", backend) };
    rig.emit(Event::Revision(Arc::new(spec.clone()))).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let named = Request::get("/").header("host", "client.example.com");
    let named = named.header("knative-serving-revision", "app").header("knative-serving-namespace", "ns");
    let answer = rig.send(named).await;
    let expected = format!(
        "http/1.1 GET /\nhost: {}\nk-original-host: client.example.com\nk-proxy-request: activator\nx-forwarded-for: 127.0.0.1",
        pod.address
    );
    assert_eq!(answer.body, expected);
    assert_eq!(rig.get("app.ns.svc.cluster.local", "/").await.status, StatusCode::OK);
    let unknown = rig.get("app.ns", "/").await;
    let text = "Error getting active endpoint: revision.serving.knative.dev \"\" not found\n";
    assert_eq!((unknown.status, unknown.body.as_str()), (StatusCode::NOT_FOUND, text));

    let answer = rig::ask_http2(rig.address, Request::get("http://app.ns.svc.cluster.local/"), "").await;
    assert!(answer.body.starts_with(&format!("h2 GET http://{}/", pod.address)), "{}", answer.body);

    // In a mesh in which pods are addressable, requests carry what it routes by.
    let host = Some(Box::new(http::HeaderValue::from_static("app-private.ns")));
    rig.emit(Event::Revision(Arc::new(Spec { passthrough: host, ..spec }))).await;
    rig.settled().await;
    let answer = rig.get("app.ns.svc.cluster.local", "/").await;
    let is_routed =
        answer.body.contains("\nhost: app-private.ns\n") && answer.body.contains("\nk-passthrough-lb: true\n");
    assert!(is_routed, "{}", answer.body);
}

/// Goal: a drain does not cut off an HTTP/2 client that is still reading its last response. Method: a client with a
/// small receive buffer, so that most of the response is in our kernel when the connection ends. The window updates
/// that it sends while reading must not reset the connection.
#[tokio::test]
async fn a_drain_lets_a_client_read_its_last_answer() {
    const LENGTH: usize = 256 << 10;
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let pod = Pod::start(move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.expect("never closed").forget();
            Response::new(rig::full(vec![b'x'; LENGTH]))
        }
    })
    .await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("permitted");
    let mut client = socket.connect(rig.address).await.expect("connected");
    let window = |stream: u32, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    let mut hello = PREFACE.to_vec();
    hello.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0])); // A stream may send 1 MiB,
    hello.extend(window(0, 1 << 20)); // and so may the whole connection.
    hello.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&GET)));
    client.write_all(&hello).await.expect("open");
    rig::until(|| pod.requests() == 1).await;

    let stopping = tokio::spawn(rig.activator.stop());
    let (mut length, mut is_complete) = (0, false);
    while !is_complete {
        let received = patient(read_frame(&mut client)).await;
        let received = received.unwrap_or_else(|error| panic!("{error} after {length} bytes"));
        match received.kind {
            PING => {
                // The activator checks that its GOAWAY was read; after that only the response follows.
                client.write_all(&frame(PING, ACK, 0, &received.payload)).await.expect("open");
                opened.add_permits(1);
            }
            DATA => {
                let size = received.payload.len();
                length += size;
                is_complete = received.flags & END_STREAM != 0;
                if size > 0 {
                    let size = size as u32;
                    client.write_all(&[window(0, size), window(1, size)].concat()).await.expect("open");
                }
                tokio::time::sleep(Duration::from_millis(5)).await; // A slow reader.
            }
            _ => {}
        }
    }
    assert_eq!(length, LENGTH);
    drop(client);
    patient(stopping).await.expect("no panic");
}

/// Starts a pod that echoes the body of a request, or the bytes of a tunnel.
async fn echoing() -> Pod {
    Pod::start(|request: Request<hyper::body::Incoming>| async move {
        match request.headers().contains_key("upgrade") {
            true => rig::echo_tunnel(request, "echo"),
            false => Response::new(request.into_body().boxed_unsync()),
        }
    })
    .await
}

/// Goal: an upload, its response and a tunnel outlive the wake timeout, whether the workload was asleep or not. A
/// request that finds no pod in that time gets an error.
#[tokio::test]
async fn the_wake_timeout_does_not_limit_a_running_exchange() {
    const WAIT: Duration = Duration::from_secs(3);
    let pod = echoing().await;
    for asleep in [true, false] {
        let rig = Rig::with_revision(|backend| (backend.timeout_ms, backend.wake_timeout_ms) = (0, 3_000)).await;
        if !asleep {
            rig.pods(&[pod.address]).await;
            rig.until_open().await;
        }
        let mut tunnel = rig.send_raw(UPGRADE).await;
        let streams = http2_client(rig.address).await;
        let (upload, mut running) = streaming(&streams).await;
        if asleep {
            rig.until(|load| load.queued == 2).await;
            rig.pods(&[pod.address]).await;
        }
        rig.until(|load| load.in_flight == 2).await;
        tokio::time::sleep(WAIT + Duration::from_millis(500)).await;
        write(&mut tunnel, "late").await;
        read_until(&mut tunnel, "late").await;
        upload.send(Frame::data(Bytes::from_static(b"late"))).await.expect("open");
        drop(upload);
        let echoed = patient(&mut running).await.expect("no panic").collect().await.expect("not cut").to_bytes();
        assert!(echoed.ends_with(b"late"), "asleep: {asleep}");

        drop(tunnel);
        rig.pods(&[]).await;
        rig.until(|load| load.capacity == Capacity::CLOSED).await;
        let late = rig.get("app.ns", "/").await;
        assert_eq!((late.status.as_u16(), late.header("x-zeroscale-reason")), (504, "timeout"));
        assert_eq!(late.body, "no pod was ready within the workload's wake timeout of 3s\n");
    }
}

/// Sends a request with a streamed body. Returns the body's sender, and a task that returns the response body.
async fn streaming(
    streams: &SendRequest<Upload>,
) -> (tokio::sync::mpsc::Sender<Frame<Bytes>>, tokio::task::JoinHandle<hyper::body::Incoming>) {
    let (upload, body) = streamed();
    let mut streams = streams.clone();
    upload.send(Frame::data(Bytes::from_static(b"one"))).await.expect("open");
    let request = Request::post("http://app.ns/").body(body).expect("valid");
    let running = async move { patient(streams.send_request(request)).await.expect("a head").into_body() };
    (upload, tokio::spawn(running))
}

/// Goal: a drain runs its steps in order. First readiness fails while all requests are served, and each HTTP/1 response
/// is the last of its connection. Then the port is closed, HTTP/2 connections get GOAWAY, and their streams are
/// completed. Tunnels may continue up to the bound, and are then cut. Idle connections are closed.
#[tokio::test]
async fn a_drain_runs_its_steps_in_order() {
    let pod = echoing().await;
    // Each step must be observed in time, even on a busy machine.
    let steps = |options: &mut Options| {
        (options.linger, options.drain) = (Duration::from_secs(5), Duration::from_secs(10));
    };
    let rig = Rig::with_options(steps, |_| {}).await;
    rig.pods(&[pod.address]).await;
    let (mut idle, mut unused) = (rig.send_raw(PROBE).await, rig.raw().await);
    read_until(&mut idle, "\r\n\r\n").await;
    let mut tunnel = rig.send_raw(&format!("{UPGRADE}early")).await;
    read_until(&mut tunnel, "early").await;
    let streams = http2_client(rig.address).await;
    let (upload, running) = streaming(&streams).await;
    let mut running = patient(running).await.expect("no panic");

    let address = rig.address;
    let stopping = tokio::spawn(rig.activator.stop());
    // Uses a new connection each time: a response may be the last of its connection before readiness fails.
    let probe = async || read_until(&mut connect_and_write(address, PROBE).await, "\r\n\r\n").await;
    let mut answer = probe().await;
    while answer.starts_with("HTTP/1.1 200") {
        answer = probe().await; // The stopping task may not have run yet.
    }
    assert!(answer.starts_with("HTTP/1.1 500"), "readiness fails first: {answer}");
    let last = rig::read_to_end(&mut connect_and_write(address, rig::GET).await).await;
    assert!(last.starts_with("HTTP/1.1 200"), "requests are served meanwhile: {last}");
    assert!(last.contains("\r\nconnection: close\r\n"), "the connection ends with its response: {last}");

    // The listeners close; HTTP/2 connections get GOAWAY.
    rig::until(|| streams.is_closed() || std::net::TcpStream::connect(address).is_err()).await;
    for word in ["two", "three"] {
        upload.send(Frame::data(Bytes::from(word))).await.expect("the stream goes on");
    }
    drop(upload);
    let mut received = Vec::new();
    while let Some(frame) = patient(running.frame()).await {
        received.extend(frame.expect("not cut").into_data().expect("data"));
    }
    assert_eq!(received, b"onetwothree");
    rig::until(|| streams.is_closed()).await;

    write(&mut tunnel, "still here").await;
    read_until(&mut tunnel, "still here").await;
    assert_eq!(rig::read_to_end(&mut tunnel).await, "", "cut at the bound");
    for connection in [&mut idle, &mut unused] {
        assert_eq!(rig::read_to_end(connection).await, "");
    }
    patient(stopping).await.expect("no panic");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
}

/// Goal: the admin port shows metrics under Knative's names, and no longer shows a deleted revision.
#[tokio::test]
async fn the_admin_port_shows_metrics_and_revisions() {
    let pod = Pod::saying("hello").await;
    let rig = Rig::with_options(|options| options.admin = Some(rig::free()), |_| {}).await;
    let (answer, ()) = tokio::join!(rig.get("app.ns", "/"), async {
        rig.until(|load| load.queued == 1).await;
        rig.pods(&[pod.address]).await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    rig.until(|load| load.in_flight == 0).await;
    let metrics = rig.admin_page("/metrics").await;
    for name in [
        "kn_revision_request_concurrency{",
        "kn_revision_request_queued{k8s_namespace_name=\"ns\",kn_revision_name=\"app\"} 0",
        "kn_revision_request_active{k8s_namespace_name=\"ns\",kn_revision_name=\"app\"} 0",
        "kn_activator_stats_conn_reachable{peer=\"autoscaler\"} 1",
        "kn_activator_stats_conn_errors_total{peer=\"autoscaler\"} 0",
        "http_server_response_body_size_bytes_sum{k8s_namespace_name=\"ns\",kn_revision_name=\"app\",kn_configuration_name=\"app\",\
         kn_service_name=\"app\",http_request_method=\"GET\",http_response_status_code=\"200\",network_protocol_name=\"http\",\
         network_protocol_version=\"1.1\",url_scheme=\"http\"} 5.0",
        "zeroscale_held_seconds_count{k8s_namespace_name=\"ns\",kn_revision_name=\"app\"} 1",
        "target_info{service_name=\"activator\"",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    let series = "{k8s_namespace_name=\"ns\",kn_revision_name=\"app\",";
    for name in [
        "http_server_request_duration_seconds",
        "http_server_request_body_size_bytes",
        "http_server_response_body_size_bytes",
        "http_client_request_duration_seconds",
        "http_client_request_body_size_bytes",
    ] {
        assert!(metrics.contains(&format!("# TYPE {name} histogram\n")), "{name} is missing in\n{metrics}");
        assert!(metrics.contains(&format!("{name}_count{series}")), "{name} has no series in\n{metrics}");
        let bounds: Vec<&str> = metrics
            .lines()
            .filter(|line| line.starts_with(&format!("{name}_bucket{{")))
            .filter_map(|line| line.split("le=\"").nth(1)?.split('"').next())
            .collect();
        let expected = match name.ends_with("seconds") {
            true => "0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 +Inf",
            false => "0.0 5.0 10.0 25.0 50.0 75.0 100.0 250.0 500.0 750.0 1000.0 2500.0 5000.0 7500.0 10000.0 +Inf",
        };
        assert_eq!(bounds.join(" "), expected, "{name}");
    }
    for phase in ["signal", "pod", "probe", "forward"] {
        let line = format!("zeroscale_cold_start_phase_seconds_count{series}phase=\"{phase}\"}} 1");
        assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
    }
    assert_eq!(catalog::differences(&metrics), <[String; 0]>::default());
    for line in [
        "zeroscale_refused_total{reason=\"pod\"} 0",
        "zeroscale_answered_total{kind=\"page\"} 0",
        "\nzeroscale_client_connections ",
        "zeroscale_client_connections_ended_total{reason=\"limit\"} 0",
        "zeroscale_client_connections_ended_total{reason=\"room\"} 0",
        "zeroscale_client_connections_ended_total{reason=\"idle\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is exported from the start: {metrics}");
    }
    // Requests for unknown revisions are counted without a revision.
    assert_eq!(rig.get("nobody.ns", "/").await.status, StatusCode::NOT_FOUND);
    let unknown =
        "http_server_request_duration_seconds_count{http_request_method=\"GET\",http_response_status_code=\"404\"";
    assert!(rig.admin_page("/metrics").await.contains(unknown));
    let revisions: serde_json::Value = serde_json::from_str(&rig.admin_page("/revisions").await).expect("JSON");
    assert_eq!(revisions[0]["name"], "app");
    assert_eq!(revisions[0]["pods"][0]["address"], pod.address.to_string());
    rig.emit(activator::discovery::Event::Deleted(rig::key("app"))).await;
    rig::until(|| rig.activator.load(&rig::key("app")).is_none()).await;
    rig::until_async(async || !rig.admin_page("/metrics").await.contains("kn_revision_name=\"app\"")).await;
}
