//! Pods that wear down whoever asks them: over HTTP/2, each answers every request in its own way.
//!
//! All are in one thread, so that they take no time from the pod of the warm workload.

use super::frames::{ACK, END_STREAM, HEADERS, NEWEST, SETTINGS, entry, field, frame, head, window_of_streams};
use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A pod's way to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With the largest head that is passed on: 400 KiB decoded, in 1 020 fields.
    Heads,
    /// With a head of 400 KiB, decoded, that has 4 KiB on the wire: a field of its table again and again.
    References,
    /// With a head of 10 MiB.
    Huge,
    /// Never, and it takes no byte of a request's body.
    Silent,
}

impl Way {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Heads, Self::References, Self::Huge, Self::Silent];

    /// The workload whose pods answer so.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Heads => "heads",
            Self::References => "references",
            Self::Huge => "huge",
            Self::Silent => "silent",
        }
    }

    /// The workload's host.
    pub(super) fn host(self) -> String {
        format!("{}.ns", self.name())
    }

    /// The header block of every answer; none if there is no answer.
    fn block(self) -> Option<Vec<u8>> {
        // A field counts as its name, its value and 32 bytes (RFC 9113, 6.5.2).
        let fields = |number: usize, value: usize| {
            (0..number).flat_map(|n| field(&format!("x-{n:04}"), &vec![b'v'; value])).collect::<Vec<u8>>()
        };
        let fields = match self {
            Self::Heads => fields(1020, 362),
            // So long that whoever passes it on cannot have it in a table of the usual 4 KiB beside another.
            Self::References => [entry(3500), vec![NEWEST; 114]].concat(),
            Self::Huge => fields(1020, 10_250),
            Self::Silent => return None,
        };
        Some([field(":status", b"200"), fields].concat())
    }
}

/// Running pods; they end when dropped.
pub(super) struct HostilePods {
    /// Where they listen.
    pub(super) addresses: Vec<(Way, SocketAddr)>,
    end: CancellationToken,
}

impl HostilePods {
    /// Starts one of each.
    ///
    /// # Errors
    /// No port is free.
    pub(super) fn start() -> anyhow::Result<Self> {
        let end = CancellationToken::new();
        let (bound, told) = mpsc::channel();
        let ended = end.clone();
        std::thread::Builder::new().name("hostile".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async move {
                let mut pods = JoinSet::new();
                for way in Way::ALL {
                    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await else { return };
                    let _ = bound.send(listener.local_addr().map(|address| (way, address)));
                    pods.spawn(serve(listener, way));
                }
                drop(bound);
                ended.cancelled().await;
            });
        })?;
        let addresses = told.iter().collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(addresses.len() == Way::ALL.len(), "a hostile pod could not be started");
        Ok(Self { addresses, end })
    }
}

impl Drop for HostilePods {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn serve(listener: TcpListener, way: Way) {
    let block = way.block().map(Arc::new);
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(meet(stream, block.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// What calls for an answer. It is made when its turn comes.
enum Asked {
    Settings,
    /// On this stream.
    Request(u32),
}

/// Answers every request of a connection with this header block.
async fn meet(mut stream: TcpStream, block: Option<Arc<Vec<u8>>>) -> anyhow::Result<()> {
    const PREFACE: usize = 24;
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&window_of_streams(0)).await?;
    let (mut read, mut write) = stream.into_split();
    let (asked, mut to_answer) = tokio::sync::mpsc::unbounded_channel();
    // Apart, so that requests are read while an answer waits for whoever reads it.
    let answering = async {
        while let Some(asked) = to_answer.recv().await {
            let answer = match (asked, &block) {
                (Asked::Settings, _) => frame(SETTINGS, ACK, 0, &[]),
                (Asked::Request(id), Some(block)) => head(END_STREAM, id, block),
                (Asked::Request(_), None) => continue,
            };
            write.write_all(&answer).await?;
        }
        anyhow::Ok(())
    };
    let reading = async {
        let mut payload = Vec::new();
        loop {
            let mut start = [0; 9];
            read.read_exact(&mut start).await?;
            let [a, b, c, kind, flags, id @ ..] = start;
            payload.resize(u32::from_be_bytes([0, a, b, c]) as usize, 0);
            read.read_exact(&mut payload).await?;
            let what = match kind {
                SETTINGS if flags & ACK == 0 => Asked::Settings,
                HEADERS => Asked::Request(u32::from_be_bytes(id)),
                _ => continue,
            };
            asked.send(what).context("the connection has ended")?;
        }
    };
    tokio::select! {
        ended = answering => ended,
        ended = reading => ended,
    }
}
