//! What each side sees of the other, once they are one connection.

use crate::rig::{Rig, patient, until};
use activator_net::Ended;
use socket2::SockRef;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TCP: Option<Duration> = Some(Duration::from_millis(100));

/// A client and a pod that have exchanged a word each.
async fn joined(rig: &Rig) -> (TcpStream, TcpStream) {
    let mut client = rig.client().await;
    client.write_all(b"ping").await.expect("open");
    let mut pod = rig.accepted().await;
    says(&mut pod, b"ping").await;
    pod.write_all(b"pong").await.expect("open");
    says(&mut client, b"pong").await;
    (client, pod)
}

/// The next bytes are these.
async fn says(stream: &mut TcpStream, expected: &[u8]) {
    let mut read = vec![0; expected.len()];
    patient(stream.read_exact(&mut read)).await.expect("open");
    assert_eq!(read, expected);
}

/// The connection ends in order.
async fn ends(stream: &mut TcpStream) {
    assert_eq!(patient(stream.read(&mut [0; 16])).await.expect("in order"), 0);
}

/// It is reset.
async fn is_reset(stream: &mut TcpStream) {
    let read = patient(stream.read(&mut [0; 16])).await;
    assert_eq!(read.expect_err("not in order").kind(), ErrorKind::ConnectionReset);
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("open");
    drop(stream);
}

/// Goal: an end is passed on as such, and the other direction goes on, whoever ends first.
#[tokio::test]
async fn a_half_close_is_passed_on_both_ways() {
    let mut rig = Rig::start(TCP).await;
    for client_first in [true, false] {
        let (client, pod) = joined(&rig).await;
        let (mut one, mut other) = if client_first { (client, pod) } else { (pod, client) };
        one.write_all(b"the last word").await.expect("open");
        one.shutdown().await.expect("open");
        says(&mut other, b"the last word").await;
        ends(&mut other).await;
        other.write_all(b"an answer").await.expect("open");
        says(&mut one, b"an answer").await;
        other.shutdown().await.expect("open");
        ends(&mut one).await;
        let passed = if client_first { [17, 13] } else { [13, 17] };
        assert_eq!(rig.ended().await, (Ended::Closed, passed));
    }
}

/// Goal: a reset is a reset on the other side, not an end.
#[tokio::test]
async fn a_reset_is_passed_on_both_ways() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, pod) = joined(&rig).await;
    reset(pod);
    is_reset(&mut client).await;
    assert_eq!(rig.ended().await.0, Ended::Pod);

    let (client, mut pod) = joined(&rig).await;
    reset(client);
    is_reset(&mut pod).await;
    assert_eq!(rig.ended().await.0, Ended::Client);
}

/// Goal: a side that has ended its direction, and is reset while the other says nothing, is noticed all the same.
#[tokio::test]
async fn a_reset_after_a_half_close_is_noticed() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, mut pod) = joined(&rig).await;
    client.shutdown().await.expect("open");
    ends(&mut pod).await;
    reset(client);
    assert_eq!(rig.ended().await.0, Ended::Client);
    // Where the end has been read, a reset is told by writes alone.
    patient(async { while pod.write_all(b"anybody there?").await.is_ok() {} }).await;

    // What a pod has said before its end arrives, whatever becomes of it then.
    let (mut client, mut pod) = joined(&rig).await;
    pod.write_all(b"bye").await.expect("open");
    pod.shutdown().await.expect("open");
    reset(pod);
    says(&mut client, b"bye").await;
    ends(&mut client).await;
    assert_eq!(rig.ended().await.0, Ended::Pod);
}

/// Goal: much is passed on whole and in order, both ways at once, also where the reader is slower than the writer.
#[tokio::test]
async fn much_is_passed_on_as_it_is() {
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
                return; // Dropped, it ends its direction.
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

/// Goal: nothing more is read from a side than the other has room for.
#[tokio::test]
async fn a_reader_that_pauses_holds_up_the_writer() {
    let rig = Rig::start(TCP).await;
    let (client, mut pod) = joined(&rig).await;
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    // Until nothing moves for as long as nothing that moves would take.
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

/// Goal: a connection on which nothing moves ends after its bound, and one on which something moves does not.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_by_a_reset() {
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

/// Goal: a drain lets connections go on for as long as it may, and then cuts them, so that both sides know.
#[tokio::test]
async fn a_drain_cuts_what_is_left() {
    let mut rig = Rig::start(TCP).await;
    let (mut client, mut pod) = joined(&rig).await;
    let (mut done, mut done_pod) = joined(&rig).await;
    let mut silent = rig.client().await;
    until(|| rig.server.connections().open() == 3).await;
    let server = rig.server.clone();
    let draining = tokio::spawn(async move { server.drain(Duration::from_secs(3)).await });
    ends(&mut silent).await;
    client.write_all(b"still").await.expect("open");
    says(&mut pod, b"still").await;
    done.shutdown().await.expect("open");
    ends(&mut done_pod).await;
    drop(done_pod);
    ends(&mut done).await;
    is_reset(&mut client).await;
    is_reset(&mut pod).await;
    assert_eq!(draining.await.expect("no panic"), 1);
    assert_eq!([rig.ended().await.0, rig.ended().await.0], [Ended::Closed, Ended::Cut]);
}
