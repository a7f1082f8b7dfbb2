//! Propagation between the two sides of a relayed connection.

use crate::rig::{Rig, assert_reads, assert_reset, patient, reset, until};
use activator_net::Ended;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TCP: Option<Duration> = Some(Duration::from_millis(100));

/// Returns a client and a pod that have exchanged a word each.
async fn joined(rig: &Rig) -> (TcpStream, TcpStream) {
    let mut client = rig.client().await;
    client.write_all(b"ping").await.expect("open");
    let mut pod = rig.accepted().await;
    assert_reads(&mut pod, b"ping").await;
    pod.write_all(b"pong").await.expect("open");
    assert_reads(&mut client, b"pong").await;
    (client, pod)
}

/// Checks that the connection ends in order.
async fn assert_end(stream: &mut TcpStream) {
    assert_eq!(patient(stream.read(&mut [0; 16])).await.expect("in order"), 0);
}

/// Goal: FIN is forwarded, and the other direction continues, whichever side ends first.
#[tokio::test]
async fn a_half_close_is_forwarded_in_both_directions() {
    let mut rig = Rig::start(TCP).await;
    for client_first in [true, false] {
        let (client, pod) = joined(&rig).await;
        let (mut one, mut other) = if client_first { (client, pod) } else { (pod, client) };
        one.write_all(b"the last word").await.expect("open");
        one.shutdown().await.expect("open");
        assert_reads(&mut other, b"the last word").await;
        assert_end(&mut other).await;
        other.write_all(b"an answer").await.expect("open");
        assert_reads(&mut one, b"an answer").await;
        other.shutdown().await.expect("open");
        assert_end(&mut one).await;
        let passed = if client_first { [17, 13] } else { [13, 17] };
        assert_eq!(rig.ended().await, (Ended::Closed, passed));
    }
}

#[tokio::test]
async fn a_reset_is_forwarded_in_both_directions() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, pod) = joined(&rig).await;
    reset(pod);
    assert_reset(&mut client).await;
    assert_eq!(rig.ended().await.0, Ended::Pod);

    let (client, mut pod) = joined(&rig).await;
    reset(client);
    assert_reset(&mut pod).await;
    assert_eq!(rig.ended().await.0, Ended::Client);
}

/// Goal: a side that has sent FIN, and is reset while the other is silent, is noticed.
#[tokio::test]
async fn a_reset_after_a_half_close_is_detected() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, mut pod) = joined(&rig).await;
    client.shutdown().await.expect("open");
    assert_end(&mut pod).await;
    reset(client);
    assert_eq!(rig.ended().await.0, Ended::Client);
    // After FIN was read, only writes report a reset.
    patient(async { while pod.write_all(b"anybody there?").await.is_ok() {} }).await;

    // Bytes that a pod sent before its FIN arrive, even if it resets afterwards.
    let (mut client, mut pod) = joined(&rig).await;
    pod.write_all(b"bye").await.expect("open");
    pod.shutdown().await.expect("open");
    reset(pod);
    assert_reads(&mut client, b"bye").await;
    assert_end(&mut client).await;
    assert_eq!(rig.ended().await.0, Ended::Pod);
}

/// Goal: large amounts are forwarded completely and in order, in both directions at once, even if the reader is slower
/// than the writer.
#[tokio::test]
async fn large_amounts_are_forwarded_unchanged() {
    const LENGTH: usize = 32 << 20;
    let mut rig = Rig::start(TCP).await;
    let (client, pod) = joined(&rig).await;
    let byte = |at: usize| ((at * 31) >> 7) as u8;
    let write = async |mut half: tokio::net::tcp::OwnedWriteHalf| {
        let mut at = 0;
        for piece in [1, 100, 16 * 1024, 1 << 20].into_iter().cycle() {
            let bytes: Vec<u8> = (at..(at + piece).min(LENGTH)).map(byte).collect();
            patient(half.write_all(&bytes)).await.expect("open");
            at += bytes.len();
            if at == LENGTH {
                return; // Dropping it ends its direction.
            }
        }
    };
    let read = async |mut half: tokio::net::tcp::OwnedReadHalf| {
        let (mut at, mut piece) = (0, vec![0; 50_000]);
        loop {
            let read = patient(half.read(&mut piece)).await.expect("open");
            assert!(piece[..read].iter().enumerate().all(|(n, got)| *got == byte(at + n)), "at {at}");
            at += read;
            if read == 0 {
                return at;
            }
        }
    };
    let ((client_reads, client_writes), (pod_reads, pod_writes)) = (client.into_split(), pod.into_split());
    let ((), (), down, up) = tokio::join!(write(client_writes), write(pod_writes), read(client_reads), read(pod_reads));
    assert_eq!((up, down), (LENGTH, LENGTH));
    let passed = LENGTH as u64 + 4;
    assert_eq!(rig.ended().await, (Ended::Closed, [passed, passed]));
}

/// Goal: a side is not read faster than the other side has room.
#[tokio::test]
async fn a_reader_that_pauses_stops_the_writer() {
    let rig = Rig::start(TCP).await;
    let (client, mut pod) = joined(&rig).await;
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    // Until nothing moves for longer than any move would take.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), pod.write(&piece)).await {
        sent += written.expect("open");
        assert!(sent < 64 << 20, "somebody takes what the client does not read");
    }
    let (mut client, mut read) = (client, 0);
    let mut buffer = vec![0; 1 << 20];
    while read < sent {
        read += patient(client.read(&mut buffer)).await.expect("open");
    }
    assert_eq!(read, sent);
}

/// Goal: a connection without bytes ends after its idle timeout, and one with bytes does not.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_reset() {
    const IDLE: Duration = Duration::from_secs(10);
    let mut rig = Rig::start_with(TCP, Some(IDLE), 9).await;
    let (mut client, mut pod) = joined(&rig).await;
    for _ in 0..4 {
        tokio::time::sleep(IDLE * 3 / 4).await;
        pod.write_all(b"tick").await.expect("open");
        client.read_exact(&mut [0; 4]).await.expect("open");
    }
    let start = tokio::time::Instant::now();
    assert_eq!(client.read(&mut [0; 4]).await.expect_err("cut").kind(), ErrorKind::ConnectionReset);
    assert!((IDLE..IDLE * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(rig.ended.recv().await, Some((Ended::Idle, [4, 20])));
}

#[tokio::test]
async fn a_drain_resets_connections_at_its_deadline() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, mut pod) = joined(&rig).await;
    let (mut done, mut done_pod) = joined(&rig).await;
    let mut silent = rig.client().await;
    until(|| rig.server.connections.open() == 3).await;
    let server = rig.server.clone();
    let draining = tokio::spawn(async move { server.drain(Duration::from_secs(3)).await });
    assert_end(&mut silent).await;
    client.write_all(b"still").await.expect("open");
    assert_reads(&mut pod, b"still").await;
    done.shutdown().await.expect("open");
    assert_end(&mut done_pod).await;
    drop(done_pod);
    assert_end(&mut done).await;
    assert_reset(&mut client).await;
    assert_reset(&mut pod).await;
    assert_eq!(draining.await.expect("no panic"), 1);
    assert_eq!([rig.ended().await.0, rig.ended().await.0], [Ended::Closed, Ended::Cut]);
}
