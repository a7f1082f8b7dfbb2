//! Connections before they have a pod.

use crate::rig::{Rig, assert_reads, assert_reset, patient, reset, until};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const WAKE_AFTER: Duration = Duration::from_millis(100);
const TCP: Option<Duration> = Some(WAKE_AFTER);
const AUTO: Option<Duration> = None;

/// Goal: a silent connection wakes the workload once it has stayed open for a while, and not before; a byte wakes it at
/// once. Method: a paused clock, which advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_wakes_the_workload_after_a_while_and_a_byte_at_once() {
    let rig = Rig::start(TCP).await;
    let start = Instant::now();
    let mut client = rig.client().await;
    let (mut pod, _) = rig.pod.accept().await.expect("a connection");
    assert!((WAKE_AFTER..WAKE_AFTER * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    pod.write_all(b"5.7.44-log").await.expect("open"); // The server speaks first.
    let mut greeting = [0; 10];
    client.read_exact(&mut greeting).await.expect("open");
    assert_eq!(&greeting, b"5.7.44-log");
    let rig = Rig::start(Some(Duration::from_secs(3600))).await;
    let start = Instant::now();
    let mut client = rig.client().await;
    client.write_all(b"x").await.expect("open");
    rig.pod.accept().await.expect("a connection");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// Goal: connections that only check the port never wake the workload, a thousand times, by FIN or by reset.
#[tokio::test]
async fn connections_that_close_without_a_byte_wake_nothing() {
    for wake_after in [Some(Duration::from_secs(3600)), AUTO] {
        let rig = Rig::start(wake_after).await;
        for n in 0..1000 {
            let client = rig.client().await;
            if n % 2 == 0 {
                reset(client);
            }
        }
        until(|| rig.server.connections.open() == 0).await;
        assert_eq!(rig.woken(), 0, "{wake_after:?}");
    }
}

/// Goal: on a port with any protocol, a silent connection does not wake the workload. It ends after the head timeout.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_to_a_port_with_any_protocol_wakes_nothing() {
    let rig = Rig::start(AUTO).await;
    let start = Instant::now();
    let mut client = rig.client().await;
    assert_eq!(client.read(&mut [0; 1]).await.expect("in order"), 0);
    assert!((59..70).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(rig.woken(), 0);
}

/// Goal: HTTP goes to the chain, everything else to a pod, with all its bytes.
#[tokio::test]
async fn other_protocols_are_relayed_with_all_their_bytes() {
    let rig = Rig::start(AUTO).await;
    let hello: &[u8] = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03";
    let postgres: &[u8] = b"\x00\x00\x00\x08\x04\xd2\x16\x2f";
    let without_version: &[u8] = b"\0\0\0\x08 / HTTP\r\nHost: a\r\n";
    let redis: &[u8] = b"SET key value\r\nGET key\r\nGET other\r\n";
    let irc: &[u8] = b"NICK a\r\nUSER a 0 * :A\r\n";
    for sent in [hello, postgres, b"PING\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", without_version, redis, irc] {
        let mut client = rig.client().await;
        for byte in sent {
            client.write_all(&[*byte]).await.expect("open");
            tokio::task::yield_now().await;
        }
        assert_reads(&mut rig.accepted().await, sent).await;
    }
    let woken = rig.woken();
    let mut client = rig.client().await;
    client.write_all(b"GET / HTTP/1.1\r\nhost: anybody\r\nconnection: close\r\n\r\n").await.expect("open");
    let mut answer = String::new();
    patient(client.read_to_string(&mut answer)).await.expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
    assert_eq!(rig.woken(), woken);
}

/// Goal: a client that disconnects while it is held returns its resources: a silent one, one that resets, and one that
/// uses TLS.
#[tokio::test]
async fn a_held_client_that_disconnects_is_released() {
    let rig = Rig::start_with(Some(Duration::ZERO), None, 0).await;
    for (sent, resets) in [(b"".as_slice(), false), (b"", true), (b"query", true), (b"\x16\x03\x01", false)] {
        let mut client = rig.client().await;
        client.write_all(sent).await.expect("open");
        until(|| rig.held() == 1).await;
        if resets {
            reset(client)
        } else {
            drop(client)
        }
        until(|| rig.held() == 0).await;
    }
}

/// Goal: a half-closed client is held, and its bytes and its FIN arrive.
#[tokio::test]
async fn a_half_closed_client_stays_held() {
    let rig = Rig::start_with(TCP, None, 0).await;
    let mut client = rig.client().await;
    client.write_all(b"half of ").await.expect("open");
    until(|| rig.held() == 1).await;
    client.write_all(b"a query").await.expect("open");
    client.shutdown().await.expect("open");
    rig.connector.pods.add_permits(1);
    let mut pod = rig.accepted().await;
    let mut query = String::new();
    patient(pod.read_to_string(&mut query)).await.expect("text");
    assert_eq!(query, "half of a query");
    pod.write_all(b"answer").await.expect("open");
    drop(pod);
    let mut answer = String::new();
    patient(client.read_to_string(&mut answer)).await.expect("in order");
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn a_drain_resets_held_connections_at_its_deadline() {
    let rig = Rig::start_with(TCP, None, 0).await;
    let mut client = rig.client().await;
    client.write_all(b"query").await.expect("open");
    until(|| rig.held() == 1).await;
    assert_eq!(rig.server.drain(Duration::from_millis(50)).await, 1);
    assert_reset(&mut client).await;
}

/// Goal: bytes that a lenient server reads as a request are rejected, or cut off before the end of the line, however
/// they are sent. Method: a pod that keeps all bytes; each row is sent whole, in two parts and byte by byte. The parser's
/// own test has all forms.
#[tokio::test]
async fn no_request_reaches_a_pod_as_bytes() {
    let rig = Rig::start(AUTO).await;
    let second = "GET /admin HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n";
    let keep = "Host: a\r\nConnection: keep-alive\r\n\r\n";
    let firsts: [&[u8]; 7] = [
        b"G@T /\r\n",
        b"\r\n \0\r\nGET / FOO/1.1\r\n",
        b"GET / HTTP/1.1\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 /\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f / HTTP/1.1\r\n",
        b"GET\xe2\x80\x83/\xe2\x80\x83HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nG@T / HTTP/1.1\r\n",
    ];
    for first in firsts {
        let bytes = [first, keep.as_bytes(), second.as_bytes()].concat();
        for size in [bytes.len(), first.len() - 2, 1] {
            let case = format!("{:?} by {size}", first.escape_ascii().to_string());
            let mut client = rig.client().await;
            client.set_nodelay(true).expect("open");
            let sends = async {
                for piece in bytes.chunks(size) {
                    if client.write_all(piece).await.is_err() {
                        break; // The connection was reset.
                    }
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                let mut answer = Vec::new();
                let _ = client.read_to_end(&mut answer).await; // A reset counts as an end too.
                answer
            };
            let pods = async {
                loop {
                    let (mut pod, _) = rig.pod.accept().await.expect("a connection");
                    let mut read = Vec::new();
                    let _ = pod.read_to_end(&mut read).await;
                    let blanks = read.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0).count();
                    let lines = read[blanks..].iter().filter(|byte| **byte == b'\n').count();
                    // A line without a version or a following field forges nothing.
                    assert!(lines <= 1 && !read.contains(&b':'), "{case}: {}", read.escape_ascii());
                }
            };
            let answer = patient(async {
                tokio::select! {
                    answer = sends => answer,
                    () = pods => Vec::new(),
                }
            });
            let answer = String::from_utf8_lossy(&answer.await).into_owned();
            assert!(answer.matches("HTTP/1.1 200").count() <= 1, "{case}: {answer}");
        }
    }
}
