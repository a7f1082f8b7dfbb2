//! Short runs of all faults, which assert what must hold on any machine, even a busy one.

use common::backend::{Probe, ProbeKind, Protocol};
use e2e::stalls::Stalls;
use faults::far;
use faults::pod::PodServer;
use faults::pod_failure::{Fault, Plan, run};
use faults::rig::{Rig, key};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

/// Maximum time of a request. The intended bound is 1.5 s if only keep-alive can detect the failure, and 1 s otherwise;
/// the rest is a reserve for other work of the machine.
const SOON: Duration = Duration::from_millis(2500);

/// Maximum number of threads that a request passes through. A busy machine may delay each.
const THREADS: u32 = 10;

/// Goal: if one of three pods fails, no GET fails. A POST fails only if it was on its way to the pod that failed, and
/// its response names the activator. All other requests succeed. The same holds if every request needs its own
/// connection, and all sent bytes are acknowledged when the pod fails.
#[test]
fn only_posts_on_their_way_to_a_failed_pod_fail() {
    let (short, long) = (Duration::from_millis(50), Duration::from_millis(1500));
    let faults = [Fault::LinkGone, Fault::Unreachable, Fault::BlackHole, Fault::Reset];
    let rows = faults.into_iter().flat_map(|fault| [Protocol::Http1, Protocol::H2c].map(|one| (fault, one, short)));
    let start = |(fault, protocol, work)| {
        let plan = Plan { fault, protocol, work, after: Duration::from_secs(3) };
        std::thread::spawn(move || run(plan))
    };
    let runs: Vec<_> = rows.chain([(Fault::BlackHole, Protocol::Http1, long)]).map(start).collect();
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, and iproute2");
        println!("{figures}");
        assert_eq!((figures.gets_failed, figures.unnamed), (0, 0), "{figures}");
        let soon = SOON + THREADS * figures.late + figures.stalled;
        assert!(figures.get_worst < soon && figures.post_worst < soon, "{figures}");
        assert!(figures.last_failed_sent < soon, "{figures}");
        assert_eq!(figures.streams_whole, figures.streams, "{figures}");
        assert!(figures.stream_broken.is_some_and(|after| after < soon), "{figures}");
    }
}

/// Goal: a pod wakes at any distance, even if the round trip takes over a second and no probe connects within its own
/// timeout.
#[test]
fn a_far_pod_wakes() {
    let rows = [
        (200, Protocol::Http1, ProbeKind::Tcp.into()),
        (200, Protocol::H2c, Probe::http("/")),
        (1200, Protocol::Http1, Probe::http("/")),
        (1200, Protocol::H2c, ProbeKind::Tcp.into()),
    ];
    let runs = rows.map(|(millis, protocol, probe)| {
        let plan = far::Plan { round_trip: Duration::from_millis(millis), protocol, probe };
        std::thread::spawn(move || far::run(plan))
    });
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, iproute2 and /dev/net/tun; and that the pod wakes");
        println!("{figures}");
    }
}

/// Sends a request with 100 ms of work and waits for its response, up to a second. Every third request has a body,
/// which is not read while the request waits. Reports whether the response arrived.
async fn impatient_client(activator: SocketAddr, number: usize) -> bool {
    let request: &[u8] = match number % 3 {
        0 => b"POST /?work=100 HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 5\r\n\r\nhello",
        _ => b"GET /?work=100 HTTP/1.1\r\nhost: app.ns\r\n\r\n",
    };
    let exchange = async {
        let mut stream = TcpStream::connect(activator).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"done") {
            (stream.read_buf(&mut answer).await.ok()? > 0).then_some(())?;
        }
        Some(())
    };
    timeout(Duration::from_secs(1), exchange).await.ok().flatten().is_some()
}

/// Goal: clients that time out leave nothing behind: no waiting request, and no bytes or tasks. Method: 200 requests
/// per second to one pod that takes two at a time. Under such a load, upstream's activator grew without bound (upstream
/// issue 13583).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_time_out_leave_nothing_behind() {
    // Requests of one second, and a reserve for a busy machine.
    const WAITING_MAX: f64 = 600.0;
    let stalls = Stalls::new();
    let pod = PodServer::start(IpAddr::from(Ipv4Addr::LOCALHOST)).expect("a pod");
    let rig = Rig::start(|backend| backend.container_concurrency = 2).await.expect("an activator");
    rig.serve(&[pod.address]).await.expect("ready");
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (before, start) = (tasks(), Instant::now());
    let (mut clients, mut requests, mut samples) =
        (JoinSet::new(), interval(Duration::from_millis(5)), interval(Duration::from_secs(1)));
    let (mut sent, mut answered, mut queued_max) = (0, 0, 0);
    while start.elapsed() < Duration::from_secs(6) {
        tokio::select! {
            _ = requests.tick() => {
                clients.spawn(impatient_client(rig.activator.http1, sent));
                sent += 1;
            }
            Some(done) = clients.join_next() => answered += usize::from(done.expect("no panic")),
            _ = samples.tick() => {
                let load = rig.activator.load(&key()).expect("the revision is known");
                assert!(load.in_flight <= 2, "the pod takes two at a time: {load:?}");
                queued_max = queued_max.max(load.queued);
            }
        }
    }
    answered += clients.join_all().await.into_iter().map(usize::from).sum::<usize>();
    rig.until("nothing waits or runs", |load| (load.queued, load.in_flight) == (0, 0)).await.expect("in time");
    println!("{sent} sent, {answered} answered in time, {} reached the pod, {queued_max} waited", pod.requests());
    assert!(answered > 0 && pod.requests() > answered / 2, "{answered} answered");
    // 200 more requests arrive in each second in which no client can time out.
    let waiting_max = WAITING_MAX + 200.0 * stalls.total().as_secs_f64();
    assert!(f64::from(queued_max) <= waiting_max, "{queued_max} waited; threads stalled {:?}", stalls.total());
    assert_eq!(rig.activator.held(), (0, 0));
    // Idle connections to the pod aside.
    let ended = timeout(Duration::from_secs(10), async {
        while tasks() > before + 2 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(ended.await.is_ok(), "{} tasks, {before} before", tasks());
}
