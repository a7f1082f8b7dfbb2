//! Memory of waiting requests: bounded for the process, shared among workloads, and charged realistically.

use crate::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, block, frame};
use crate::hostile::{GET, POST};
use crate::rig::{self, Pod, Rig, patient, read_to_end, write};
use activator::Options;
use activator::discovery::{Event, Spec};
use common::backend::Protocol;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Starts an activator that also knows `ns/other`, and whose requests and connections may use `bytes` of memory.
async fn holding(bytes: u64) -> Rig {
    let rig = limited(2 * bytes, Protocol::Http1).await;
    rig.emit(Event::Revision(std::sync::Arc::new(Spec::standalone("ns", "other", rig::backend("other"))))).await;
    rig.until_named("other.ns").await;
    rig::until(|| rig.activator.held() == (0, 0)).await;
    rig
}

/// Starts an activator with this memory limit. Requests and connections may use a half of it.
pub(crate) async fn limited(memory: u64, protocol: Protocol) -> Rig {
    let options = |options: &mut Options| {
        (options.memory_limit, options.admin) = (Some(memory), Some(rig::free()));
    };
    Rig::with_options(options, |backend| backend.protocol = protocol).await
}

/// Goal: a workload may use all the memory while no other needs it, and requests beyond that get an error that names
/// the bound. If another workload needs its share, the youngest requests of the first are refused with the same reason.
/// Metrics count them.
#[tokio::test]
async fn one_workloads_flood_gives_way_to_others() {
    let rig = holding(400_000).await;
    let mut held = Vec::new();
    let mut refused = 0;
    while refused < 100 {
        let before = rig.activator.held().0;
        let client = rig.send_raw(rig::GET).await;
        let mut first = [0];
        tokio::select! {
            () = rig::until(|| rig.activator.held().0 > before) => held.push(client),
            answered = client.peek(&mut first) => {
                assert_eq!(answered.expect("open"), 1);
                refused += 1;
            }
        }
    }
    let (requests, bytes) = rig.activator.held();
    assert_eq!(requests, held.len() as u64);
    assert!((380_000..=400_000).contains(&bytes), "{requests} requests: {bytes} bytes");
    let full = rig.get("app.ns", "/").await;
    assert_eq!((full.status, full.header("x-zeroscale-reason")), (StatusCode::SERVICE_UNAVAILABLE, "memory-share"));
    assert_eq!((full.header("x-zeroscale-origin"), full.header("retry-after")), ("activator", "1"));
    assert!(full.body.contains("share of 400000"), "{}", full.body);

    let queued = |name: &str| rig.activator.load(&rig::key(name)).map_or(0, |load| load.queued);
    let all = queued("app");
    let large = format!("/{}", "p".repeat(60_000));
    for (n, target) in (1..).zip(["/", "/", "/", "/", large.as_str()]) {
        held.push(rig.send_raw(&format!("GET {target} HTTP/1.1\r\nhost: other.ns\r\n\r\n")).await);
        rig::until(|| queued("other") == n).await;
    }
    rig::until(|| rig.activator.held().1 <= 400_000).await;
    rig::until(|| (all - 14..=all - 8).contains(&queued("app"))).await; // Memory is returned first.
    let youngest = rig::read_until(&mut held[all as usize - 1], "\r\n\r\n").await;
    assert!(youngest.starts_with("HTTP/1.1 503 ") && youngest.contains("memory-share"), "{youngest}");
    let page = rig.admin_page("/metrics").await;
    assert!(page.contains("zeroscale_refused_total{reason=\"memory-share\"} 1"), "{page}");
    held.into_iter().for_each(rig::reset);
    rig::until(|| rig.activator.held() == (0, 0)).await;
}

/// Returns a field that adds an entry with a value of `size` bytes to the client's table.
fn table_entry(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x40, 3, b'x', b'-', b'a', 0x7f];
    let mut rest = size - 0x7f;
    while rest >= 0x80 {
        bytes.push(0x80 | u8::try_from(rest % 0x80).expect("seven bits"));
        rest /= 0x80;
    }
    bytes.push(u8::try_from(rest).expect("seven bits"));
    bytes.extend(vec![b'v'; size]);
    bytes
}

/// Goal: fields that repeatedly refer to an entry of the client's table are charged with their full size, regardless of
/// their size on the wire.
#[tokio::test]
async fn references_to_a_table_are_charged_in_full() {
    const REQUESTS: u32 = 50;
    const REFERENCES: usize = 60;
    let rig = holding(16 << 20).await;
    let mut client = Frames::open(&rig).await;
    let mut bytes = Vec::new();
    for n in 0..REQUESTS {
        let mut fields = block(&GET);
        if n == 0 {
            fields.extend(table_entry(1000));
        }
        fields.extend([0xbe; REFERENCES]);
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &fields));
    }
    client.send(&bytes).await;
    rig.until(|load| load.queued == REQUESTS).await;
    // A request is queued before it is charged.
    rig::until(|| rig.activator.held().0 == u64::from(REQUESTS)).await;
    let (requests, held) = rig.activator.held();
    let each = held / requests;
    assert!((REFERENCES as u64 * 1000..80_000).contains(&each), "{each} bytes for each");
    let _waiting = rig.send_raw("GET / HTTP/1.1\r\nhost: other.ns\r\n\r\n").await;
    rig::until(|| rig.activator.held().0 > u64::from(REQUESTS)).await;

    // A request that would become much larger when sent on is not held.
    let mut greedy = Frames::open(&rig).await;
    let fields = [block(&GET), table_entry(4000), vec![0xbe; 250]].concat();
    greedy.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields)).await;
    assert_eq!(greedy.verdict(1).await, None, "answered at once");
}

/// Goal: the request is not refused for lack of memory.
#[tokio::test]
async fn a_single_request_with_a_large_head_is_held() {
    let rig = holding(4 << 20).await;
    let fields = format!("x-large: {}\r\n", "v".repeat(50_000)).repeat(7);
    let request = format!("GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n{fields}\r\n");
    let mut client = rig.send_raw(&request).await;
    rig::until(|| rig.activator.held().0 == 1).await;
    let (_, bytes) = rig.activator.held();
    assert!((350_000..450_000).contains(&bytes), "{bytes}");
    let _pod = rig.only_pod(Pod::saying("hello").await).await;
    assert!(read_to_end(&mut client).await.starts_with("HTTP/1.1 "));
    rig::until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: the memory of unfinished heads is bounded for the process. Beyond the bound the connections that have been
/// idle for longest are closed, and a connection that needs more than the bound is closed itself.
#[tokio::test]
async fn unfinished_heads_share_a_bound() {
    let rig = holding(1_000_000).await;
    // HTTP/1: each head of 200 KB is charged with 3 steps of 64 KiB; there is room for five.
    const HEAD: u64 = 3 * (64 << 10);
    let mut open = Vec::new();
    for n in 1..=8 {
        let mut client = rig.send_raw("GET / HTTP/1.1\r\nhost: app.ns\r\n").await;
        for _ in 0..20 {
            write(&mut client, &format!("x-a: {}\r\n", "v".repeat(10_000))).await;
        }
        rig::until(|| rig.activator.input() == n.min(5) * HEAD).await;
        open.push(client);
    }
    let mut end = [0];
    for client in open.iter_mut().take(3) {
        assert_eq!(patient(client.read(&mut end)).await.unwrap_or(0), 0, "idle for longest");
    }
    // HTTP/2, where a block may expand to a multiple of its size.
    let mut client = Frames::open(&rig).await;
    let piece = frame(CONTINUATION, 0, 1, &block(&[(&b"x-a"[..], &[b'v'; 100][..]); 100]));
    client.send(&[frame(HEADERS, END_STREAM, 1, &block(&GET)), piece.repeat(20)].concat()).await;
    assert_eq!(client.next().await.map(|frame| frame.kind), Some(SETTINGS));
    assert!(client.verdict(1).await.is_some(), "closed");
}

/// Goal: DATA frames of one byte each, for a sleeping revision, end their connection before they use more than its
/// share. If a pod reads as many in time, all their memory is returned.
#[tokio::test]
async fn small_frames_share_a_bound() {
    let rig = limited(2 * 10_000_000, Protocol::Http1).await;
    let mut client = Frames::open(&rig).await;
    client.send(&frame(HEADERS, END_HEADERS, 1, &block(&POST))).await;
    rig.until(|load| load.queued == 1).await;
    let piece = frame(DATA, 0, 1, b"x").repeat(100);
    // Fewer than h2 allows itself.
    for _ in 0..300 {
        client.send(&piece).await;
    }
    while client.next().await.is_some() {}
    rig.until(|load| load.queued == 0).await;
    rig::until(|| rig.activator.input() == 0).await;

    // For a pod that reads them.
    let _pod = rig.only_pod(Pod::measuring().await).await;
    let mut client = Frames::open(&rig).await;
    client.send(&frame(HEADERS, END_HEADERS, 1, &block(&POST))).await;
    for _ in 0..100 {
        client.send(&piece).await;
    }
    client.send(&frame(DATA, END_STREAM, 1, b"x")).await;
    assert_eq!(client.verdict(1).await, None, "answered");
    rig::until(|| rig.activator.input() == 0).await;
}

/// Goal: the memory of a connection's stream tables is charged. A connection that needs more than its share ends, and
/// one that needs little is served.
#[tokio::test]
async fn many_streams_share_a_bound() {
    const STREAMS: u32 = 200;
    let rig = limited(8 * 1_000_000, Protocol::Http1).await;
    let get = |n| frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&GET));
    let mut open = Vec::new();
    let mut ended = 0;
    while ended < 3 {
        let mut client = Frames::open(&rig).await;
        client.send(&(0..STREAMS).flat_map(get).collect::<Vec<u8>>()).await;
        // The tables are checked when the next bytes are read; those of the first PING may have been read before.
        if client.is_open().await && client.is_open().await {
            open.push(client)
        } else {
            ended += 1
        }
        assert!(open.len() < 6, "{} bytes", rig.activator.input());
    }
    assert!(!open.is_empty(), "some are within the share");
    let mut modest = Frames::open(&rig).await;
    let nobody = block(&[GET[0], GET[1], GET[2], (b":authority", b"nobody.ns")]);
    modest.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &nobody)).await;
    assert_eq!(modest.verdict(1).await, None, "answered");
    drop(open);
    rig::until(|| rig.activator.input() == 0).await;
}

/// Starts a pod that accepts no byte of any body, and never responds.
async fn without_room() -> Pod {
    Pod::raw(rig::listen().await, |mut stream, _| async move {
        // SETTINGS_INITIAL_WINDOW_SIZE: 0.
        stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    })
}

/// Goal: bodies for a pod that accepts nothing end their client's connection before they use more than its share, and
/// are freed then. Other connections continue. Method: the body of each stream is complete, so that all of it has moved
/// from the client's connection to the pod's.
#[tokio::test]
async fn bodies_for_a_pod_without_room_share_a_bound() {
    const FRAME: usize = 16 << 10;
    let rig = limited(2 * 1_000_000, Protocol::H2c).await;
    let _pod = rig.only_pod(without_room().await).await;
    rig.until_open().await;
    let (mut modest, mut greedy) = (Frames::open(&rig).await, Frames::open(&rig).await);
    let post = |n: u32| {
        let head = frame(HEADERS, END_HEADERS, 2 * n + 1, &block(&POST));
        [head, frame(DATA, END_STREAM, 2 * n + 1, &[7; FRAME])].concat()
    };
    modest.send(&post(0)).await;
    let mut sent = 0;
    while greedy.is_open().await {
        greedy.send(&post(sent)).await;
        sent += 1;
        assert!(sent as usize * FRAME < 1_000_000, "{} bytes are charged", rig.activator.input());
        rig.until(|load| load.in_flight == sent + 1 || load.in_flight == 1).await;
    }
    assert!(sent as usize * FRAME > 300_000, "{sent} bodies");
    rig.until(|load| load.in_flight == 1).await;
    assert!(modest.is_open().await);
    drop((greedy, modest));
    rig::until(|| rig.activator.input() == 0).await;
}

/// Number of DATA frames of 16 KiB in an upload: less than a stream's window.
const FRAMES: u32 = 3;

/// Returns a POST with a part of its body.
fn begun_upload(n: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, 2 * n + 1, &block(&POST));
    [head, frame(DATA, 0, 2 * n + 1, &[7; 16 << 10]).repeat(FRAMES as usize)].concat()
}

/// Goal: unread bytes of uploads that a pod does not accept are charged, and end their connection before they use more
/// than its share. Held uploads, which are charged to their workload, are not affected.
#[tokio::test]
async fn uploads_that_no_pod_accepts_share_a_bound() {
    const BUDGET: u32 = 2_000_000;
    let rig = limited(2 * u64::from(BUDGET), Protocol::H2c).await;
    let mut held = Frames::open(&rig).await;
    // Nearly the whole budget.
    const HELD: u32 = 25;
    for n in 0..HELD {
        held.send(&begun_upload(n)).await;
        rig.until(|load| load.queued == n + 1).await;
    }
    assert!(held.is_open().await, "{} bytes are charged", rig.activator.input());
    drop(held);
    rig.until(|load| load.queued == 0).await;

    let _pod = rig.only_pod(without_room().await).await;
    rig.until_open().await;
    let mut greedy = Frames::open(&rig).await;
    let mut sent = 0;
    while greedy.is_open().await {
        greedy.send(&begun_upload(sent)).await;
        sent += 1;
        assert!(sent * (FRAMES << 14) < BUDGET, "{} bytes are charged", rig.activator.input());
        rig.until(|load| load.in_flight == sent || load.in_flight == 0).await;
    }
    assert!(sent * (FRAMES << 14) > BUDGET / 4, "{sent} uploads");
    drop(greedy);
    rig.until(|load| load.in_flight == 0).await;
    rig::until(|| rig.activator.input() == 0).await;
}
