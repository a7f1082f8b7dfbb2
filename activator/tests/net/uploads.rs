//! Uploads with an early response, and bodies of requests that usually have none.

use crate::rig::{self, Pod, Rig, listen, patient, read_until, write};
use crate::scripted::{Scripted, read_head};
use common::backend::{Backend, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Goal: the response reaches the client even if the pod then closes its connection, regardless of the remaining
/// length.
#[tokio::test]
async fn a_refusal_in_the_middle_of_an_upload_is_passed_on() {
    const LENGTH: usize = 8 << 20;
    let (mut pods, rig) = Scripted::with_rig().await;
    for taken in [0, 1, 100_000] {
        let (mut read, mut write) = rig.raw().await.into_split();
        let uploading = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: {LENGTH}\r\n\r\n");
            // Until the peer accepts no more.
            let _ = write.write_all(head.as_bytes()).await;
            let _ = write.write_all(&vec![b'x'; LENGTH]).await;
            write
        });
        let (_, mut pod) = pods.next_request().await;
        patient(pod.read_exact(&mut vec![0; taken])).await.expect("the upload has begun");
        pod.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nless").await.expect("open");
        drop(pod); // With unread data: its kernel resets the connection.
        let answer = read_until(&mut read, "less").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{taken} taken: {answer}");
        drop(read);
        uploading.abort();
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: a client that sends its whole upload before it reads gets the activator's error response, and no reset.
#[tokio::test]
async fn our_own_refusal_reaches_a_client_that_keeps_sending() {
    const LENGTH: usize = 6 << 20;
    let rig = Rig::with_revision(|backend| backend.timeout_ms = 200).await;
    let rows = [
        ("an unknown host", "host: nobody.ns", 404),
        ("no pod in time", "host: app.ns", 504),
        ("a head that is refused", "host: app.ns\r\nexpect: a-coin", 417),
        ("a head that is not understood", "host: app.ns\r\nx y: z", 400),
    ];
    for (name, fields, status) in rows {
        let head = format!("POST / HTTP/1.1\r\n{fields}\r\ncontent-length: {LENGTH}\r\n\r\n");
        let mut client = rig.send_raw(&head).await;
        patient(client.write_all(&vec![b'x'; LENGTH])).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut answer = Vec::new();
        patient(client.read_to_end(&mut answer)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
    }
}

/// Goal: upload and response do not wait for each other.
#[tokio::test]
async fn an_upload_continues_after_its_response_has_begun() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let begun = "POST / HTTP/1.1\r\nhost: app.ns\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
    let (mut client, head, mut pod) = pods.request(&rig, begun).await;
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert_eq!(read_until(&mut pod, "a\r\n").await, "1\r\na\r\n");
    write(&mut pod, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nearly\r\n").await;
    read_until(&mut client, "early").await;
    write(&mut client, "1\r\nb\r\n").await;
    assert_eq!(read_until(&mut pod, "b\r\n").await, "1\r\nb\r\n");
    write(&mut pod, "4\r\nmore\r\n").await;
    read_until(&mut client, "more").await;
    write(&mut client, "0\r\n\r\n").await;
    assert_eq!(read_until(&mut pod, "0\r\n\r\n").await, "0\r\n\r\n");
    write(&mut pod, "0\r\n\r\n").await;
    read_until(&mut client, "0\r\n\r\n").await;
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: the client gets the response.
#[tokio::test]
async fn an_upload_that_the_pod_stops_reading_ends_with_its_response() {
    const LENGTH: usize = 32 << 20;
    let (mut pods, rig) = Scripted::with_rig().await;
    for answer in ["content-length: 2\r\n\r\nok", "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
        let (mut read, mut write) = rig.raw().await.into_split();
        let uploading = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: {LENGTH}\r\n\r\n");
            write.write_all(head.as_bytes()).await?;
            write.write_all(&vec![b'x'; LENGTH]).await
        });
        let (_, mut pod) = pods.next_request().await;
        rig::write(&mut pod, &format!("HTTP/1.1 200 OK\r\n{answer}")).await;
        read_until(&mut read, "ok").await;
        pod.shutdown().await.expect("open");
        assert!(patient(uploading).await.expect("no panic").is_err(), "the rest is not accepted");
        // The activator closes the connection behind the bytes that it has written.
        let rest = rig::read_to_end(&mut pod).await;
        assert!(rest.len() < LENGTH, "{}", rest.len());
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Starts a pod that sends every response at once and completely, and then reads the upload to its end, which it
/// reports.
async fn answering(protocol: Protocol) -> (Pod, mpsc::UnboundedReceiver<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let pod = Pod::raw(listen().await, move |mut stream, _| {
        let sender = sender.clone();
        async move {
            if protocol == Protocol::Http1 {
                if read_head(&mut stream).await.is_some() {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                    let _ = sender.send(());
                }
                return Ok(());
            }
            let mut connection = h2::server::handshake(stream).await?;
            while let Some((request, mut respond)) = connection.accept().await.transpose()? {
                let mut answer = respond.send_response(http::Response::new(()), false)?;
                answer.send_data("ok".into(), true)?;
                let (sender, mut body) = (sender.clone(), request.into_body());
                tokio::spawn(async move {
                    while let Some(Ok(data)) = body.data().await {
                        let _ = body.flow_control().release_capacity(data.len());
                    }
                    sender.send(())
                });
            }
            Ok::<_, h2::Error>(())
        }
    });
    (pod, receiver)
}

/// Goal: after a complete response the activator ends the upload: at the pod, where it would run beside the next
/// request, and for the client, whose response stays complete. Nothing is counted or held afterwards.
#[tokio::test]
async fn an_upload_that_neither_side_ends_ends_with_its_response() {
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let (pod, mut ended) = answering(protocol).await;
        let change = |backend: &mut Backend| (backend.protocol, backend.container_concurrency) = (protocol, 1);
        let rig = Rig::with_pods(&[pod.address], change).await;

        for framing in ["content-length: 100000000", "transfer-encoding: chunked"] {
            let (mut read, mut write) = rig.raw().await.into_split();
            let head = format!("POST / HTTP/1.1\r\nhost: app.ns\r\n{framing}\r\n\r\n5f5e100\r\n");
            write.write_all(head.as_bytes()).await.expect("open");
            let answer = read_until(&mut read, "ok").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{protocol:?}: {answer}");
            patient(ended.recv()).await.expect("the pod runs");
            rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
            // The client may send a little longer, and the bytes are dropped.
            let mut sent = 0_usize;
            while patient(write.write_all(&[b'x'; 64 * 1024])).await.is_ok() {
                sent += 64 * 1024;
                assert!(sent < 64 << 20, "{protocol:?}, {framing}: still accepted");
            }
        }

        let (sender, connection) = h2::client::handshake(rig.raw().await).await.expect("settings");
        tokio::spawn(connection);
        let request = http::Request::post("http://app.ns/").body(()).expect("a request");
        let (answer, mut upload) = sender.ready().await.expect("open").send_request(request, false).expect("open");
        upload.send_data("more is to come".into(), false).expect("open");
        let mut answer = patient(answer).await.expect("an answer").into_body();
        assert_eq!(patient(answer.data()).await.expect("data").expect("whole"), "ok", "{protocol:?}");
        assert!(patient(answer.data()).await.is_none() && patient(answer.trailers()).await.expect("ended").is_none());
        let reset = patient(std::future::poll_fn(|cx| upload.poll_reset(cx))).await.expect("open");
        assert_eq!(reset, h2::Reason::NO_ERROR, "{protocol:?}");
        patient(ended.recv()).await.expect("the pod runs");
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}

/// Goal: an HTTP/2 connection on which many uploads got early responses accepts no more streams, and no request on it
/// is lost. Method: a request is held on it while uploads beside it are refused.
#[tokio::test]
async fn a_connection_with_many_early_responses_is_replaced() {
    let (pod, _ended) = answering(Protocol::Http1).await;
    let rig = Rig::with_revision(|backend| backend.protocol = Protocol::Http1).await;
    let (sender, connection) = h2::client::handshake(rig.raw().await).await.expect("settings");
    let served = tokio::spawn(connection);
    let held = http::Request::get("http://app.ns/").body(()).expect("a request");
    let (held, _) = sender.clone().ready().await.expect("open").send_request(held, true).expect("open");
    rig.until(|load| load.queued == 1).await;
    let mut refused = 0;
    while let Ok(mut open) = patient(sender.clone().ready()).await {
        let request = http::Request::post("http://nobody.ns/").body(()).expect("a request");
        let (answer, mut upload) = open.send_request(request, false).expect("open");
        upload.send_data("more is to come".into(), false).expect("open");
        assert_eq!(patient(answer).await.expect("an answer").status(), http::StatusCode::NOT_FOUND);
        refused += 1;
        assert!(refused < 100, "it is not replaced");
    }
    rig.pods(&[pod.address]).await;
    assert_eq!(patient(held).await.expect("it is still served").status(), http::StatusCode::OK);
    drop(sender);
    patient(served).await.expect("no panic").expect("an orderly end");
    assert!(refused >= 50, "already replaced after {refused}");
}

/// Goal: after a complete early response the client's connection is not reset, although the client is still sending. If
/// the close is known when the head is sent, the head announces it.
#[tokio::test]
async fn an_early_response_ends_its_connection_in_order() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let whole = ("content-length: 2\r\n\r\nok", "", true);
    let in_parts = ("content-length: 2\r\n\r\n", "ok", false);
    for (first, rest, closes) in [whole, in_parts] {
        let upload = "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 6\r\n\r\nabc";
        let (mut client, _, mut pod) = pods.request(&rig, upload).await;
        write(&mut pod, &format!("HTTP/1.1 200 OK\r\n{first}")).await;
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert_eq!(head.contains("connection: close\r\n"), closes, "{head}");
        write(&mut pod, rest).await;
        patient(pod.read_to_end(&mut Vec::new())).await.expect("closed by the activator");
        write(&mut client, "de").await;
        let answer = head + &rig::read_to_end(&mut client).await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: a body of a request that usually has none is neither lost nor left for the next request.
#[tokio::test]
async fn a_get_may_have_a_body() {
    let (mut pods, rig) = Scripted::with_rig().await;
    for (framing, sent, expected) in [
        ("content-length: 2", "hi", "hi"),
        ("transfer-encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", "2\r\nhi\r\n0\r\n\r\n"),
    ] {
        let request = format!("GET / HTTP/1.1\r\nhost: app.ns\r\n{framing}\r\n\r\n{sent}");
        let (mut client, head, mut pod) = pods.request(&rig, &request).await;
        assert!(head.starts_with("GET / HTTP/1.1\r\n") && head.contains(framing), "{head}");
        assert_eq!(read_until(&mut pod, expected).await, expected);
        write(&mut pod, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 204 "));
    }
}
