//! A steady load: 64 connections that send by the clock, whether or not the answers come in time.
//!
//! One thread for each connection, so that the kernel's own timers pace them; their beats are spread evenly. A request
//! that could not be sent in time, since the answer before it was late, counts from when it should have been sent.
#![allow(clippy::disallowed_methods, reason = "threads read the clock for themselves")]

use super::http1_backend::head_length;
use crate::lab::quantile;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 64;

/// Sends `rate` requests a second for `seconds`, and prints the 99th percentile of the answers' times in microseconds.
pub(crate) fn run(address: SocketAddr, host: &str, rate: f64, seconds: f64) -> anyhow::Result<()> {
    let period = Duration::from_secs_f64(f64::from(CONNECTIONS) / rate);
    // Later than it takes to connect.
    let begin = Instant::now() + Duration::from_millis(200);
    let end = begin + Duration::from_secs_f64(seconds);
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let all: anyhow::Result<Vec<f64>> = std::thread::scope(|scope| {
        let one = |n| {
            let request = request.as_bytes();
            scope.spawn(move || connection(address, request, begin + period * n / CONNECTIONS, period, end))
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(one).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().ok().context("a thread panicked")??);
        }
        Ok(all)
    });
    println!("{}", quantile(&all?, 0.99));
    Ok(())
}

/// The times of one connection's answers.
fn connection(
    address: SocketAddr,
    request: &[u8],
    first: Instant,
    period: Duration,
    end: Instant,
) -> anyhow::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut times = Vec::new();
    let mut due = first;
    while due < end {
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        let start = if early.is_zero() { due } else { Instant::now() };
        stream.write_all(request)?;
        read_answer(&mut stream)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        due += period;
    }
    Ok(times)
}

/// An answer of the backend's, or the same with other fields.
fn read_answer(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut buffer = [0; 2048];
    let mut filled = 0;
    loop {
        let n = stream.read(&mut buffer[filled..])?;
        ensure!(n > 0, "closed before the answer was complete");
        filled += n;
        if head_length(&buffer[..filled]).is_some_and(|head| filled >= head + super::BODY.len()) {
            ensure!(buffer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&buffer[..filled]));
            return Ok(());
        }
    }
}
