//! Uploads whose answer does not wait for their end, and bodies where none is usual.

use crate::rig::{self, Rig, patient, read_until, write};
use common::backend::Protocol;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A pod that hands over each connection over which a request comes, with all of the head read.
async fn scripted() -> (SocketAddr, mpsc::UnboundedReceiver<(String, TcpStream)>) {
    let listener = rig::listen().await;
    let address = listener.local_addr().expect("bound");
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return, // A probe.
                    }
                }
                let _ = sender.send((String::from_utf8_lossy(&head).into_owned(), stream));
            });
        }
    });
    (address, receiver)
}

async fn warm(address: SocketAddr) -> Rig {
    let rig = Rig::start().await;
    rig.revision(|backend| backend.protocol = Protocol::Http1).await;
    rig.pods(&[address]).await;
    rig
}

/// Goal: a pod that refuses an upload before it is complete, and closes, is heard, however much was still to come.
#[tokio::test]
async fn a_refusal_in_the_middle_of_an_upload_is_passed_on() {
    const LENGTH: usize = 8 << 20;
    let (address, mut pods) = scripted().await;
    let rig = warm(address).await;
    for taken in [0, 1, 100_000] {
        let (mut read, mut write) = rig.raw().await.into_split();
        let uploading = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: {LENGTH}\r\n\r\n");
            // Until nobody takes any more.
            let _ = write.write_all(head.as_bytes()).await;
            let _ = write.write_all(&vec![b'x'; LENGTH]).await;
            write
        });
        let (_, mut pod) = patient(pods.recv()).await.expect("the head came");
        patient(pod.read_exact(&mut vec![0; taken])).await.expect("the upload has begun");
        pod.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nless").await.expect("open");
        drop(pod); // With the rest unread: its kernel resets the connection.
        let mut answer = Vec::new();
        while !answer.ends_with(b"less") {
            let mut part = [0; 1024];
            match patient(read.read(&mut part)).await {
                Ok(n) if n > 0 => answer.extend_from_slice(&part[..n]),
                ended => panic!("{ended:?} after {:?}, {taken} taken", String::from_utf8_lossy(&answer)),
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&answer));
        drop(read);
        uploading.abort();
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: an answer that has begun does not stop its upload, and neither waits for the other.
#[tokio::test]
async fn an_upload_goes_on_after_its_answer_has_begun() {
    let (address, mut pods) = scripted().await;
    let rig = warm(address).await;
    let mut client = rig.raw().await;
    write(&mut client, "POST / HTTP/1.1\r\nhost: app.ns\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n").await;
    let (head, mut pod) = patient(pods.recv()).await.expect("the head came");
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

/// Goal: an upload that the pod does not read any further ends when a pod that has answered ends its side, and its
/// client is told.
#[tokio::test]
async fn an_upload_that_nobody_reads_ends_with_its_answer() {
    const LENGTH: usize = 32 << 20;
    let (address, mut pods) = scripted().await;
    let rig = warm(address).await;
    for answer in ["content-length: 2\r\n\r\nok", "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
        let (mut read, mut write) = rig.raw().await.into_split();
        let uploading = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: {LENGTH}\r\n\r\n");
            write.write_all(head.as_bytes()).await?;
            write.write_all(&vec![b'x'; LENGTH]).await
        });
        let (_, mut pod) = patient(pods.recv()).await.expect("the head came");
        rig::write(&mut pod, &format!("HTTP/1.1 200 OK\r\n{answer}")).await;
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("ok") {
            assert_ne!(patient(read.read_buf(&mut seen)).await.expect("open"), 0);
        }
        pod.shutdown().await.expect("open");
        assert!(patient(uploading).await.expect("no panic").is_err(), "nobody takes it");
        // The activator closes: there is an end behind what it had written.
        let mut rest = Vec::new();
        let _ = patient(pod.read_to_end(&mut rest)).await;
        assert!(rest.len() < LENGTH, "{}", rest.len());
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: a body that comes where none is usual is not lost, nor left behind for the next request.
#[tokio::test]
async fn a_get_may_have_a_body() {
    let (address, mut pods) = scripted().await;
    let rig = warm(address).await;
    for (framing, sent, expected) in [
        ("content-length: 2", "hi", "hi"),
        ("transfer-encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", "2\r\nhi\r\n0\r\n\r\n"),
    ] {
        let mut client = rig.raw().await;
        write(&mut client, &format!("GET / HTTP/1.1\r\nhost: app.ns\r\n{framing}\r\n\r\n{sent}")).await;
        let (head, mut pod) = patient(pods.recv()).await.expect("the head came");
        assert!(head.starts_with("GET / HTTP/1.1\r\n") && head.contains(framing), "{head}");
        assert_eq!(read_until(&mut pod, expected).await, expected);
        write(&mut pod, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 204 "));
    }
}
