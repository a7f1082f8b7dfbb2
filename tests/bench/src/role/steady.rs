//! Steady load: 64 connections that send at fixed times, whether or not responses arrive in time.
//!
//! All share one thread, which costs about as much as wrk does, so that half of wrk's throughput is half load here,
//! too. A thread for each connection would cost more than a proxy and saturate the machine. The send times of the
//! connections are evenly spread, and kept by a kernel timer. If a late response delays the next request, that
//! request's time counts from when it should have been sent.
#![allow(clippy::disallowed_methods, reason = "a thread of its own reads the clock for itself")]

use super::http1_backend::head_length;
use crate::settings::quantile;
use anyhow::ensure;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 64;

/// Maximum time to wait for any response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Token of the timer. The tokens of connections are their numbers.
const TIMER: Token = Token(usize::MAX);

/// Sends `rate` requests per second for `seconds`, and prints the 99th percentile of the response times in
/// microseconds.
pub(crate) fn run(address: SocketAddr, host: &str, rate: f64, seconds: f64) -> anyhow::Result<()> {
    println!("{}", quantile(&measure(address, host, rate, seconds)?, 0.99));
    Ok(())
}

/// Returns the response times in microseconds.
fn measure(address: SocketAddr, host: &str, rate: f64, seconds: f64) -> anyhow::Result<Vec<f64>> {
    let period = Duration::from_secs_f64(f64::from(CONNECTIONS) / rate);
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let (mut poll, mut alarm) = (Poll::new()?, Alarm::new()?);
    poll.registry().register(&mut SourceFd(&alarm.fd.as_raw_fd()), TIMER, Interest::READABLE)?;
    let mut connections = Vec::new();
    for n in 0..CONNECTIONS {
        let mut connection = Connection::open(address)?;
        poll.registry().register(&mut connection.stream, Token(n as usize), Interest::READABLE)?;
        connections.push(connection);
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    for (connection, n) in connections.iter_mut().zip(0..) {
        connection.due = begin + period * n / CONNECTIONS;
    }
    let mut times = Vec::new();
    let mut events = Events::with_capacity(1 + CONNECTIONS as usize);
    loop {
        let now = Instant::now();
        let mut next = None;
        let mut waiting = false;
        for connection in &mut connections {
            let due = connection.due;
            if connection.is_idle() && due <= now && due < end {
                connection.send(now, request.as_bytes())?;
            }
            waiting |= !connection.is_idle();
            if connection.is_idle() && due < end && next.is_none_or(|next| due < next) {
                next = Some(due);
            }
        }
        if next.is_none() && !waiting {
            return Ok(times);
        }
        alarm.set(next, now)?;
        match poll.poll(&mut events, Some(RESPONSE_TIMEOUT)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        ensure!(!events.is_empty(), "no response within {RESPONSE_TIMEOUT:?}");
        for event in &events {
            let Some(connection) = connections.get_mut(event.token().0) else { continue }; // The event is the timer's.
            if let Some(took) = connection.read_answer()? {
                times.push(took.as_secs_f64() * 1e6);
                connection.schedule_next(period);
            }
        }
    }
}

/// A timer that can be polled together with sockets. It is more precise than the poll's timeout, which has
/// milliseconds.
struct Alarm {
    fd: OwnedFd,
    at: Option<Instant>,
}

impl Alarm {
    fn new() -> anyhow::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fd, at: None })
    }

    /// Sets the timer to `at`, or disarms it.
    fn set(&mut self, at: Option<Instant>, now: Instant) -> anyhow::Result<()> {
        if self.at != at {
            let left = at.map(|at| at.saturating_duration_since(now).max(Duration::from_nanos(1)));
            let it_value = Timespec::try_from(left.unwrap_or_default())?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
            self.at = at;
        }
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    /// Time at which the next request is due.
    due: Instant,
    /// Set if the next request could not be sent in time because the previous response was late.
    overdue: bool,
    /// Time from which the request in flight counts.
    since: Option<Instant>,
    buffer: [u8; 2048],
    filled: usize,
}

impl Connection {
    fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Self { stream, due: Instant::now(), overdue: false, since: None, buffer: [0; 2048], filled: 0 })
    }

    fn is_idle(&self) -> bool {
        self.since.is_none()
    }

    fn send(&mut self, now: Instant, request: &[u8]) -> anyhow::Result<()> {
        // If this thread itself is late, the request counts from now.
        self.since = Some(if self.overdue { self.due } else { now });
        self.filled = 0;
        ensure!(self.stream.write(request)? == request.len(), "a small request did not fit the send buffer");
        Ok(())
    }

    /// Schedules the next request after a response: one period after the previous one was due.
    fn schedule_next(&mut self, period: Duration) {
        self.due += period;
        self.overdue = self.due <= Instant::now();
    }

    /// Reads a response. Returns its duration once it is complete. The response is the backend's, possibly with other
    /// header fields.
    fn read_answer(&mut self) -> anyhow::Result<Option<Duration>> {
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(n) => {
                    ensure!(n > 0, "closed before the answer was complete");
                    self.filled += n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            let answer = &self.buffer[..self.filled];
            if head_length(answer).is_some_and(|head| answer.len() >= head + super::announce::BODY.len()) {
                ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(answer));
                return Ok(self.since.take().map(|since| since.elapsed()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Goal: each connection sends a request per period. If a late response delays a request, the request counts from
    /// its due time. Method: a server responds to the first request of each connection after four periods, and to all
    /// others at once.
    #[test]
    fn every_due_request_is_sent_and_counts_from_its_due_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let period = Duration::from_millis(20);
        let answer = super::super::http1_backend::answer();
        let serving = std::thread::spawn(move || {
            let serve = |mut stream: std::net::TcpStream| {
                let mut buffer = [0; 1024];
                let mut pause = period * 4;
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                    std::thread::sleep(std::mem::take(&mut pause));
                    stream.write_all(answer.as_bytes()).expect("open");
                }
            };
            std::thread::scope(|scope| {
                for stream in listener.incoming().take(CONNECTIONS as usize) {
                    scope.spawn(|| serve(stream.expect("accepted")));
                }
            });
        });
        let (periods, rate) = (10, f64::from(CONNECTIONS) / period.as_secs_f64());
        let times = measure(address, "a", rate, period.as_secs_f64() * f64::from(periods)).expect("answered");
        serving.join().expect("no panic");
        assert_eq!(times.len() as u32, CONNECTIONS * periods);
        // The first response takes four periods. The next three requests were due three, two and one periods before
        // they could be sent.
        for (behind, least) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
            let late = times.iter().filter(|took| **took >= (period * least).as_secs_f64() * 1e6).count();
            assert!(late >= (CONNECTIONS * (behind + 1)) as usize, "{late} took {least} periods");
        }
    }
}
