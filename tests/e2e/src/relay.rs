//! A TCP relay that can be cut, in place of the network between two components.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections while it is joined. Ends when dropped.
pub struct Relay {
    /// Address at which it listens.
    pub address: SocketAddr,
    target: Arc<watch::Sender<Option<SocketAddr>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Listens on a free loopback port; initially cut.
    pub async fn start() -> anyhow::Result<Self> {
        Self::bind(([127, 0, 0, 1], 0).into(), false).await
    }

    /// Listens at `address`; initially cut. While cut, the relay refuses connections, or with `holds` accepts them and
    /// holds them until it is joined.
    pub async fn bind(address: SocketAddr, holds: bool) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let target = Arc::new(watch::Sender::new(None));
        let task = tokio::spawn(accept(listener, target.clone(), holds));
        Ok(Self { address, target, task })
    }

    /// Connects the relay to `target`.
    pub fn join(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }

    /// Cuts every connection, and refuses or holds new ones.
    pub fn cut(&self) {
        self.target.send_replace(None);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: Arc<watch::Sender<Option<SocketAddr>>>, holds: bool) {
    while let Ok((mut inbound, _)) = listener.accept().await {
        let mut changes = target.subscribe();
        let now = *changes.borrow_and_update();
        if now.is_none() && !holds {
            continue;
        }
        tokio::spawn(async move {
            let Ok(address) = changes.wait_for(Option::is_some).await.map(|target| *target) else { return };
            let Some(address) = address else { return };
            let Ok(mut outbound) = TcpStream::connect(address).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound) => {}
                _ = changes.changed() => {}
            }
        });
    }
}
