//! Many pods in one process, each with its own address and the metrics of a queue-proxy at port 9090.
//!
//! The load that they report fluctuates, but never requires a second pod. Once per second, the process prints the
//! number of scrapes that it has answered so far.

use super::announce::print;
use super::http1_backend::serve;
use anyhow::Context;
use common::stat::Stat;
use prost::Message;
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

/// Upstream's port for stats.
const PORT: u16 = 9090;

/// Number of pods in a network of 256 addresses.
const PODS_PER_NETWORK: u32 = 250;

/// Returns the address of pod `n`, where `first` is that of pod 0. Each network of 256 addresses has 250 pods:
/// if `first` ends in 1, the last bytes are 1 to 250.
pub(crate) fn address(first: Ipv4Addr, n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first) + n / PODS_PER_NETWORK * 256 + n % PODS_PER_NETWORK)
}

pub(super) async fn run(first: Ipv4Addr, count: u32) -> anyhow::Result<()> {
    let answered = Rc::new(Cell::new(0_u64));
    LocalSet::new()
        .run_until(async {
            for n in 0..count {
                let listen_address = (address(first, n), PORT);
                let listener =
                    TcpListener::bind(listen_address).await.with_context(|| format!("{listen_address:?}"))?;
                spawn_local(accept(listener, n, answered.clone()));
            }
            print("ready")?;
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                print(answered.get())?;
            }
        })
        .await
}

async fn accept(listener: TcpListener, n: u32, answered: Rc<Cell<u64>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let answered = answered.clone();
        spawn_local(async move {
            let counted = || {
                answered.set(answered.get() + 1);
                answer(n, answered.get())
            };
            let _ = serve(stream, counted).await; // The autoscaler has gone.
        });
    }
}

/// Returns the response of a queue-proxy.
fn answer(n: u32, turn: u64) -> Vec<u8> {
    let load = 20.0 + ((u64::from(n) * 31 + turn * 7) % 40) as f64;
    let stat = Stat {
        pod_name: format!("revision-{n:05}-deployment-5c6d7f8b9-x2x4z"),
        average_concurrent_requests: load,
        request_count: load * 2.0,
        process_uptime: 3_600.0 + turn as f64,
        ..Stat::default()
    };
    let body = stat.encode_to_vec();
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/protobuf\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend(body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_addresses_of_their_own() {
        let first = Ipv4Addr::new(127, 200, 0, 1);
        assert_eq!(address(first, 249), Ipv4Addr::new(127, 200, 0, 250));
        assert_eq!(address(first, 250), Ipv4Addr::new(127, 200, 1, 1));
        assert_eq!(address(first, 9_999), Ipv4Addr::new(127, 200, 39, 250));
    }
}
