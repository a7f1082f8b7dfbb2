//! Pods whose responses the test writes.

use crate::rig::{Pod, Rig, listen, patient};
use std::net::SocketAddr;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Pod that passes each connection to the test once it has read the head of a request.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    pub(crate) requests: UnboundedReceiver<(String, TcpStream)>,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let (sender, requests) = unbounded_channel();
        let pod = Pod::raw(listen().await, move |mut stream, _| {
            let sender = sender.clone();
            async move {
                // Connections without a head are probes.
                if let Some(head) = read_head(&mut stream).await {
                    let _ = sender.send((head, stream));
                }
            }
        });
        Self { address: pod.address, requests }
    }

    /// Also starts an activator that knows `ns/app` with this pod.
    pub(crate) async fn with_rig() -> (Self, Rig) {
        let pods = Self::start().await;
        let rig = Rig::with_pods(&[pods.address], |_| {}).await;
        (pods, rig)
    }

    /// Sends a request. Returns the client's connection, the head that the pod received, and the pod's connection.
    pub(crate) async fn request(&mut self, rig: &Rig, text: &str) -> (TcpStream, String, TcpStream) {
        let client = rig.send_raw(text).await;
        let (head, pod) = self.next_request().await;
        (client, head, pod)
    }

    /// Returns the head of the next request, and its connection.
    pub(crate) async fn next_request(&mut self) -> (String, TcpStream) {
        patient(self.requests.recv()).await.expect("a request")
    }
}

/// Reads a head to its end. Returns `None` if the connection ends before.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}
