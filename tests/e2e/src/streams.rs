//! A workload with responses that do not end by themselves: an event stream that waits for a request, and WebSockets.
//!
//! | path | response |
//! |---|---|
//! | `/events` | `text/event-stream`: `first`, and `second` once `/release` was requested |
//! | `/upload` | number and sum of the uploaded bytes, after the last one |
//! | `/ws` | a WebSocket that echoes messages |
//! | others | `ok` |

use crate::server;
use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

type Body = BoxBody<Bytes, Infallible>;

/// Serves until the process is killed.
pub fn main() -> ExitCode {
    let released = Arc::new(Notify::new());
    server::run("8080", move |stream| {
        let released = released.clone();
        let service = hyper::service::service_fn(move |request| {
            let released = released.clone();
            async move { Ok::<_, Infallible>(answer(request, released).await) }
        });
        async move {
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.with_upgrades().await; // The client has disconnected.
        }
    })
}

async fn answer(request: Request<Incoming>, released: Arc<Notify>) -> Response<Body> {
    match request.uri().path() {
        "/events" => events(released),
        "/release" => {
            released.notify_one();
            text_response("ok\n")
        }
        "/upload" => upload(request.into_body()).await,
        "/ws" => websocket(request),
        _ => text_response("ok\n"),
    }
}

fn text_response(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).boxed())
}

async fn upload(mut body: Incoming) -> Response<Body> {
    let (mut count, mut sum) = (0, 0);
    while let Some(Ok(frame)) = body.frame().await {
        for byte in frame.into_data().unwrap_or_default() {
            (count, sum) = (count + 1, sum + u64::from(byte));
        }
    }
    text_response(format!("{count} {sum}"))
}

fn events(released: Arc<Notify>) -> Response<Body> {
    let first = stream::iter([Bytes::from_static(b"data: first\n\n")]);
    let second = stream::once(async move {
        released.notified().await;
        Bytes::from_static(b"data: second\n\n")
    });
    let frames = first.chain(second).map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    let kind = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn websocket(mut request: Request<Incoming>) -> Response<Body> {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(accept) = key.and_then(|key| header::HeaderValue::try_from(key).ok()) else {
        let mut refusal = text_response("no WebSocket handshake\n");
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return refusal;
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut response = text_response("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}
