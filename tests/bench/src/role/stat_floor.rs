//! Minimal reader of stats: a server with the autoscaler's WebSocket library that decodes frames and answers pings.

use super::announce::serve_each;
use futures::StreamExt;
use tokio_tungstenite::tungstenite::Message;

pub(super) async fn run() -> anyhow::Result<()> {
    serve_each(|stream| async move {
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(frame) = message {
                let messages = common::wire::decode(&frame).map(|decoded| decoded.messages);
                std::hint::black_box(messages.unwrap_or_default());
            }
        }
    })
    .await
}
