//! The dashboard's own HTTP server: read-only, on its own port.
//!
//! # Bounds
//!
//! [`LIMITS`] on connections, [`HEAD_TIMEOUT`] for a request's head. A connection carries one request, and ends after
//! [`CONNECTION_MAX`] even if the client has not read the response. A list of ten thousand workloads has some MiB, so at
//! most [`LISTS_MAX`] are created and sent at a time.

use super::access::{Access, FORM_BYTES_MAX, is_public, judge, judge_form};
use super::containers;
use super::list::{Scope, list};
use super::local::LocalReplica;
use super::replicas::no_such;
use super::routes::{ErrorResponse, Route, route};
use super::settings::Settings;
use anyhow::Context;
use bytes::Bytes;
use common::RevisionKey;
use common::text::printable_document;
use common_controller::shares::Owner;
use common_runtime::bounded_accept::{Acceptor, Limits};
use common_runtime::credential::TokenFile;
use common_runtime::listen::listen;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Limits of concurrent connections: a few for each browser.
const LIMITS: Limits = Limits { total: 256, per_address: 128 };
/// Maximum number of lists created and sent at a time.
const LISTS_MAX: usize = 4;
/// Longest wait for a permit to create a list.
const LIST_PATIENCE: Duration = Duration::from_secs(5);
/// Longest duration of a connection, with the time in which a client must have read a list.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// Size of a chunk of a list, in bytes.
const PIECE: usize = 32 * 1024;
/// Longest wait for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer of a connection for unread data.
const BUFFER: usize = 64 * 1024;

/// Sign-in form; an error message replaces [`SAID`].
const ENTER: &str = include_str!("page/enter.html");
const SAID: &str = "<!-- said -->";

/// Security headers of every response: no foreign or inline content, no framing by other pages, no caching.
const SECURITY: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Body of any response.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Server bound to its address.
pub(super) struct Server {
    listener: TcpListener,
    token: Option<TokenFile>,
}

#[derive(Clone)]
struct Serving {
    own: Arc<LocalReplica>,
    token: Option<TokenFile>,
    turns: Arc<Semaphore>,
}

impl Server {
    /// Binds the configured address.
    ///
    /// # Errors
    /// The address cannot be bound; the error names it and the variable.
    pub(super) fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let listener = match &settings.listener {
            Some(bound) => bound.try_clone().and_then(|bound| {
                bound.set_nonblocking(true)?;
                TcpListener::from_std(bound)
            }),
            None => listen(settings.listen),
        };
        let listener = listener.with_context(|| {
            format!("the dashboard's address {} cannot be bound; see ZEROSCALE_DASHBOARD_ADDRESS", settings.listen)
        })?;
        Ok(Self { listener, token: settings.token.clone() })
    }

    /// Returns the address it listens on.
    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`.
    pub(super) async fn serve(self, own: Arc<LocalReplica>, shutdown: CancellationToken) {
        let serving = Serving { own, token: self.token, turns: Arc::new(Semaphore::new(LISTS_MAX)) };
        let acceptor = Acceptor::new(self.listener, "dashboard", LIMITS);
        let tasks = acceptor.serve(shutdown.clone(), |stream, _| serving.clone().connection(stream, shutdown.clone()));
        tasks.await.wait().await;
    }
}

impl Serving {
    async fn connection(self, stream: TcpStream, shutdown: CancellationToken) {
        let _ = stream.set_nodelay(true); // Not needed for correctness.
        let service = hyper::service::service_fn(move |request| {
            let serving = self.clone();
            async move { Ok::<_, Infallible>(serving.answer(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            _ = timeout(CONNECTION_MAX, served) => {} // An error is the client's: a truncated request, or a reset.
            () = shutdown.cancelled() => {}
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, ());
        let mut response = match self.admit(&request, body).await {
            Ok(()) => self.find(&request).await.unwrap_or_else(nothing),
            Err(refused) => *refused,
        };
        for (name, value) in SECURITY {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn admit(&self, request: &Request<()>, body: Incoming) -> Result<(), Box<Response<Body>>> {
        let token = match &self.token {
            None => None,
            Some(file) => match file.read().await {
                Ok(token) => Some(token),
                Err(error) => {
                    tracing::warn!(%error, "dashboard: nobody is let in");
                    let nobody = ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, "the token cannot be read here");
                    return Err(Box::new(nothing(nobody)));
                }
            },
        };
        let path = request.uri().path();
        let access = match token.as_deref() {
            Some(_) if is_public(path) => Access::Granted,
            Some(token) if path == "/" && request.method() == Method::POST => judge_form(&form(body).await, token),
            token => judge(request.uri(), request.headers(), token),
        };
        match access {
            Access::Granted => Ok(()),
            Access::Enter { cookie } => {
                let mut response = whole(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
                let headers = response.headers_mut();
                headers.insert(header::LOCATION, HeaderValue::from_static("/"));
                if let Ok(cookie) = HeaderValue::try_from(cookie) {
                    headers.insert(header::SET_COOKIE, cookie);
                }
                Err(Box::new(response))
            }
            Access::Refused(StatusCode::UNAUTHORIZED, reason) if path == "/" && reads_html(request) => {
                // A first visit gets the form without an error.
                let is_new = request.method() != Method::POST && request.uri().query().is_none();
                let page = ENTER.replace(SAID, if is_new { "" } else { reason });
                Err(Box::new(whole(StatusCode::UNAUTHORIZED, "text/html; charset=utf-8", page.into())))
            }
            Access::Refused(status, reason) => {
                let mut response = nothing(ErrorResponse::new(status, reason));
                if status == StatusCode::UNAUTHORIZED {
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                Err(Box::new(response))
            }
        }
    }

    async fn find(&self, request: &Request<()>) -> Result<Response<Body>, ErrorResponse> {
        const JSON: &str = "application/json";
        let (method, uri) = (request.method(), request.uri());
        match route(method, uri.path(), uri.query())? {
            Route::File(file) => Ok(whole(StatusCode::OK, file.content_type, Bytes::from_static(file.text.as_bytes()))),
            Route::Workload(key) => {
                let (status, body) = self.workload(&key).await;
                Ok(whole(status, JSON, body))
            }
            Route::Pods(key) => {
                let own = &self.own;
                let Some(looked) = own.parts.objects.look(&key) else {
                    return Ok(whole(StatusCode::NOT_FOUND, JSON, no_such(&key).to_string().into()));
                };
                let pods = containers::document(&own.parts.client, key.namespace(), &looked.object.spec.target).await;
                Ok(whole(StatusCode::OK, JSON, pods.to_string().into()))
            }
            Route::List(_) if method == Method::HEAD => Ok(whole(StatusCode::OK, JSON, Bytes::new())),
            Route::List(scope) => Ok(typed(StatusCode::OK, JSON, self.list(&scope).await?)),
        }
    }

    /// Returns a list, which occupies one of [`LISTS_MAX`] permits until it is sent or the connection ends.
    async fn list(&self, scope: &Scope) -> Result<Body, ErrorResponse> {
        let Ok(Ok(turn)) = timeout(LIST_PATIENCE, self.turns.clone().acquire_owned()).await else {
            let error = "too many lists are asked for at the moment; try again in a few seconds";
            return Err(ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, error));
        };
        let text = list(&self.own, scope).await;
        let text = Bytes::from(printable_document(&text).into_owned());
        let pieces = futures::stream::unfold((text, turn), async |(mut text, turn)| {
            let piece = text.split_to(text.len().min(PIECE));
            (!piece.is_empty()).then(|| (Ok::<_, Infallible>(Frame::data(piece)), (text, turn)))
        });
        Ok(StreamBody::new(pieces).boxed_unsync())
    }

    /// Returns the details of one workload from its owner. If the owner does not respond, they come from the object.
    async fn workload(&self, key: &RevisionKey) -> (StatusCode, Bytes) {
        let own = &self.own;
        let mut unanswered = None;
        if let Owner::Other(owner) = own.parts.shares.owner(key) {
            match own.detail_of(&owner, key).await {
                Ok((status @ (StatusCode::OK | StatusCode::NOT_FOUND), body)) => return (status, body),
                Ok((status, _)) => unanswered = Some(format!("its owner {owner} answers {status}")),
                Err(error) => unanswered = Some(format!("its owner {owner} cannot be asked: {error}")),
            }
        }
        match own.detail(key) {
            Some(mut detail) => {
                if let Some(error) = unanswered {
                    detail["error"] = json!(error);
                }
                (StatusCode::OK, detail.to_string().into())
            }
            None => (StatusCode::NOT_FOUND, no_such(key).to_string().into()),
        }
    }
}

/// Returns whether the client is a browser.
fn reads_html(request: &Request<()>) -> bool {
    let accepts = request.headers().get_all(header::ACCEPT);
    accepts.iter().any(|accepts| accepts.to_str().is_ok_and(|accepts| accepts.contains("text/html")))
}

/// Reads the submitted form; empty, if it is too large or incomplete.
async fn form(body: Incoming) -> Bytes {
    match timeout(HEAD_TIMEOUT, Limited::new(body, FORM_BYTES_MAX).collect()).await {
        Ok(Ok(read)) => read.to_bytes(),
        _ => Bytes::new(),
    }
}

fn nothing(ErrorResponse(status, error): ErrorResponse) -> Response<Body> {
    let mut response = whole(status, "application/json", error.into());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("3"));
    }
    response
}

fn whole(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let body = match std::str::from_utf8(&body).map(printable_document) {
        Ok(Cow::Owned(text)) => text.into(),
        _ => body,
    };
    typed(status, content_type, Full::new(body).boxed_unsync())
}

fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
