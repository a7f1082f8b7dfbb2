//! The dashboard's own HTTP server: read-only, on its own port.
//!
//! # Bounds
//!
//! [`LIMITS`] on connections, [`HEAD_TIMEOUT`] for a request's head. A connection carries one request, and ends after
//! [`CONNECTION_MAX`] even if the client has not read the response. A list of ten thousand workloads has some MiB.

use super::access::{Access, FORM_BYTES_MAX, check, check_form, is_public};
use super::containers;
use super::list::list;
use super::local::LocalReplica;
use super::routes::{ErrorResponse, Route, route};
use bytes::Bytes;
use common::RevisionKey;
use common_controller::shares::Owner;
use common_runtime::admin::{json, text, with_type};
use common_runtime::bounded_accept::{Acceptor, Limits};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Limits of concurrent connections: a few for each browser. They bound the lists that wait for slow clients.
const LIMITS: Limits = Limits { total: 64, per_address: 32 };
/// Longest duration of a connection, with the time in which a client must have read a list.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer of a connection for unread data.
const BUFFER: usize = 64 * 1024;

/// Sign-in form; an error message replaces [`MESSAGE_PLACE`].
const SIGN_IN: &str = include_str!("page/enter.html");
const MESSAGE_PLACE: &str = "<!-- message -->";

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

impl LocalReplica {
    /// Serves until `shutdown`.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: CancellationToken) {
        let acceptor = Acceptor::new(listener, "dashboard", LIMITS);
        let tasks = acceptor.serve(shutdown.clone(), |stream, _| self.clone().connection(stream, shutdown.clone()));
        tasks.await.wait().await;
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, shutdown: CancellationToken) {
        let _ = stream.set_nodelay(true); // Not needed for correctness.
        let service = hyper::service::service_fn(move |request| {
            let own = self.clone();
            async move { Ok::<_, Infallible>(own.answer(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // An error is the client's: a truncated request, or a reset.
        let _ = shutdown.run_until_cancelled(timeout(CONNECTION_MAX, served)).await;
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (request, body) = request.into_parts();
        let mut response = match self.check_access(&request, body).await {
            Some(refused) => refused,
            None => self.respond(&request).await.unwrap_or_else(error_response),
        };
        for (name, value) in SECURITY {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// Returns the response to a client that has no access or has just signed in; none: the client has access.
    async fn check_access(&self, request: &Parts, body: Incoming) -> Option<Response<Full<Bytes>>> {
        let token = match &self.settings.token {
            None => None,
            Some(file) => match file.read().await {
                Ok(token) => Some(token),
                Err(error) => {
                    tracing::warn!(%error, "the dashboard refuses all clients: it cannot read its token");
                    let error = "the dashboard cannot read its token; see the autoscaler's log";
                    return Some(error_response(ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, error)));
                }
            },
        };
        let path = request.uri.path();
        let access = match token.as_deref() {
            Some(_) if is_public(path) => Access::Granted,
            Some(token) if path == "/" && request.method == Method::POST => check_form(&form(body).await, token),
            token => check(&request.uri, &request.headers, token),
        };
        match access {
            Access::Granted => None,
            Access::SignedIn(cookie) => {
                let mut response = text(StatusCode::SEE_OTHER, "");
                let headers = response.headers_mut();
                headers.insert(header::LOCATION, HeaderValue::from_static("/"));
                headers.extend(HeaderValue::try_from(cookie).ok().map(|cookie| (header::SET_COOKIE, cookie)));
                Some(response)
            }
            Access::Refused(StatusCode::UNAUTHORIZED, reason) if path == "/" && reads_html(&request.headers) => {
                // A first visit gets the form without an error.
                let is_new = request.method != Method::POST && request.uri.query().is_none();
                let page = SIGN_IN.replace(MESSAGE_PLACE, if is_new { "" } else { reason });
                Some(with_type(StatusCode::UNAUTHORIZED, "text/html; charset=utf-8", Full::new(page.into())))
            }
            Access::Refused(status, reason) => Some(error_response(ErrorResponse::new(status, reason))),
        }
    }

    async fn respond(self: &Arc<Self>, request: &Parts) -> Result<Response<Full<Bytes>>, ErrorResponse> {
        Ok(match route(&request.method, request.uri.path(), request.uri.query())? {
            Route::File(found) => with_type(StatusCode::OK, found.content_type, Full::new(found.text.into())),
            Route::List(scope) => json(StatusCode::OK, list(self, scope).await),
            Route::Workload(key) => self.workload(&key).await,
            Route::Pods(key) => {
                let view = self.parts.objects.view(&key).ok_or_else(|| no_such(&key))?;
                let target = &view.object.spec.target;
                let pods = containers::document(&self.parts.client, key.namespace(), target).await;
                json(StatusCode::OK, pods.to_string())
            }
        })
    }

    /// Returns the details of one workload from its owner. If the owner does not respond, they come from the object.
    async fn workload(&self, key: &RevisionKey) -> Response<Full<Bytes>> {
        let Owner::Other(owner) = self.parts.shares.owner(key) else { return self.own_detail(key, None) };
        let error = match self.query(&owner, &format!("workloads/{key}")).await {
            Ok((status @ (StatusCode::OK | StatusCode::NOT_FOUND), body)) => {
                return json(status, String::from_utf8_lossy(&body));
            }
            Ok((status, _)) => format!("its owner {owner} responds with {status}"),
            Err(error) => format!("its owner {owner} cannot be queried: {error}"),
        };
        self.own_detail(key, Some(error))
    }

    /// Returns the details of one workload as known here. `error`: the reason why its owner does not report them.
    pub(super) fn own_detail(&self, key: &RevisionKey, error: Option<String>) -> Response<Full<Bytes>> {
        let Some(mut detail) = self.detail(key) else { return error_response(no_such(key)) };
        if let Some(error) = error {
            detail["error"] = json!(error);
        }
        json(StatusCode::OK, detail.to_string())
    }
}

/// Returns the error for a workload that does not exist.
fn no_such(key: &RevisionKey) -> ErrorResponse {
    let error = format!("there is no ZeroScaler {} in namespace {}", key.name(), key.namespace());
    ErrorResponse::new(StatusCode::NOT_FOUND, error)
}

/// Returns whether the client accepts HTML, as a browser does.
fn reads_html(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT);
    accepts.iter().any(|accepts| accepts.to_str().is_ok_and(|accepts| accepts.contains("text/html")))
}

/// Reads the submitted form; empty, if it is too large or incomplete.
async fn form(body: Incoming) -> Bytes {
    match timeout(HEAD_TIMEOUT, Limited::new(body, FORM_BYTES_MAX).collect()).await {
        Ok(Ok(read)) => read.to_bytes(),
        _ => Bytes::new(),
    }
}

fn error_response(ErrorResponse(status, error): ErrorResponse) -> Response<Full<Bytes>> {
    let mut response = json(status, error);
    let advice = match status {
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
        StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "3")),
        _ => None,
    };
    response.headers_mut().extend(advice.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}
