//! HTTP/2 pods that wear down their clients: each kind responds to every request in its own way.
//!
//! All run in one thread, so that they take no time from the pod of the warm workload.

use super::frames::{ACK, END_STREAM, HEADERS, NEWEST, SETTINGS, entry, field, frame, head, window_of_streams};
use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Response of a pod to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostileResponse {
    /// The largest head that the activator relays: 400 KiB decoded, in 1 020 fields.
    Heads,
    /// A head of 400 KiB when decoded, but 4 KiB on the wire: references to one field of the table.
    References,
    /// A head of 10 MiB.
    Huge,
    /// No response at all; the pod also reads no byte of a request's body.
    Silent,
}

impl HostileResponse {
    /// All kinds.
    pub(super) const ALL: [Self; 4] = [Self::Heads, Self::References, Self::Huge, Self::Silent];

    /// Returns the name of the workload whose pods respond this way.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Heads => "heads",
            Self::References => "references",
            Self::Huge => "huge",
            Self::Silent => "silent",
        }
    }

    /// Returns the workload's host.
    pub(super) fn host(self) -> String {
        format!("{}.ns", self.name())
    }

    /// Returns the header block of every response, or `None` if the pod never responds.
    fn block(self) -> Option<Vec<u8>> {
        // The size of a field is its name, its value and 32 bytes (RFC 9113, 6.5.2).
        let fields = |number: usize, value: usize| {
            (0..number).flat_map(|n| field(&format!("x-{n:04}"), &vec![b'v'; value])).collect::<Vec<u8>>()
        };
        let fields = match self {
            Self::Heads => fields(1020, 362),
            // The entry is so long that a proxy cannot keep it beside another one in a table of the usual 4 KiB.
            Self::References => [entry(3500), vec![NEWEST; 114]].concat(),
            Self::Huge => fields(1020, 10_250),
            Self::Silent => return None,
        };
        Some([field(":status", b"200"), fields].concat())
    }
}

/// Running pods. They end when dropped.
pub(super) struct HostilePods {
    /// Address of each pod.
    pub(super) addresses: Vec<(HostileResponse, SocketAddr)>,
    end: CancellationToken,
}

impl HostilePods {
    /// Starts one pod of each kind.
    pub(super) fn start() -> anyhow::Result<Self> {
        let end = CancellationToken::new();
        let (bound, started) = mpsc::channel();
        let ended = end.clone();
        std::thread::Builder::new().name("hostile".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async move {
                let mut pods = JoinSet::new();
                for kind in HostileResponse::ALL {
                    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await else { return };
                    let _ = bound.send(listener.local_addr().map(|address| (kind, address)));
                    pods.spawn(serve(listener, kind));
                }
                drop(bound);
                ended.cancelled().await;
            });
        })?;
        let addresses = started.iter().collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(addresses.len() == HostileResponse::ALL.len(), "a hostile pod could not be started");
        Ok(Self { addresses, end })
    }
}

impl Drop for HostilePods {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn serve(listener: TcpListener, kind: HostileResponse) {
    let block = kind.block().map(Arc::new);
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(respond(stream, block.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Event that needs a frame in return. The frame is built when it is sent.
enum ClientFrame {
    Settings,
    /// Request on this stream.
    Request(u32),
}

/// Responds to every request of a connection with `block`.
async fn respond(mut stream: TcpStream, block: Option<Arc<Vec<u8>>>) -> anyhow::Result<()> {
    const PREFACE: usize = 24;
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&window_of_streams(0)).await?;
    let (mut read, mut write) = stream.into_split();
    let (sender, mut to_answer) = tokio::sync::mpsc::unbounded_channel();
    // Writing is separate from reading, so that requests are read while the client does not read responses.
    let answering = async {
        while let Some(event) = to_answer.recv().await {
            let answer = match (event, &block) {
                (ClientFrame::Settings, _) => frame(SETTINGS, ACK, 0, &[]),
                (ClientFrame::Request(id), Some(block)) => head(END_STREAM, id, block),
                (ClientFrame::Request(_), None) => continue,
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
                SETTINGS if flags & ACK == 0 => ClientFrame::Settings,
                HEADERS => ClientFrame::Request(u32::from_be_bytes(id)),
                _ => continue,
            };
            sender.send(what).context("the connection has ended")?;
        }
    };
    tokio::select! {
        ended = answering => ended,
        ended = reading => ended,
    }
}
