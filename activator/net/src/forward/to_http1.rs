//! Sends requests to pods that speak HTTP/1.1, including upgrades.

use super::failure::{broken, cause_of, evidence_of};
use super::{CLOSED_AT_ONCE_MAX, Evidence, Failure, PodBody, Prepared, finish, headers};
use crate::hop_by_hop::strip_response;
use crate::http1::connection::{Failed, Http1Body};
use crate::http1::{ExchangeError, Malformed};
use crate::liveness::UNREACHABLE;
use crate::pool::Pool;
use crate::tunnel::{PodEnd, Tunnel};
use activator_core::contract::Contract;
use http::header::UPGRADE;
use http::{Response, StatusCode};
use http_body_util::Either;
use parking_lot::Mutex;
use std::sync::Arc;

impl Prepared {
    pub(super) async fn send_http1(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let mut closed_at_once = 0;
        let upgrades = self.upgrade.is_some();
        let upload = self.body.upload();
        let is_plain = self.delivery.contract == Contract::Plain;
        if is_plain && self.is_put_or_delete() {
            self.body.keep_sent();
        }
        let must_not_repeat = is_plain && !(self.is_repeatable() && self.body.fits_replay());
        loop {
            let lost = pool.lost();
            // An upgrade does not return its connection, and must not get a stale one.
            let connection = if self.delivery.may_have_run || upgrades {
                pool.lost().connected(Box::pin(pool.new_http1())).await
            } else {
                match pool.http1.take(must_not_repeat) {
                    Some(idle) => Ok(idle),
                    None => pool.lost().connected(Box::pin(pool.http1(must_not_repeat))).await,
                }
            };
            let connection = match connection {
                Ok(connection) => connection,
                Err(error) => return Err(self.unreachable(pool, &error)),
            };
            let (was_idle, reused) = (connection.was_idle, connection.reused);
            let exchange =
                connection.exchange(&self.head, &mut self.body, self.delivery.client.as_deref(), &pool.http1);
            let Failed { error, unsent, begun } = match lost.unless(exchange).await {
                Some(Ok(response)) if self.delivery.is_turned_away(&response) && self.body.is_untouched() => {
                    return Err(self.turned_away());
                }
                Some(Ok(response)) => return self.finish_http1(pool, response),
                Some(Err(failed)) => failed,
                None if self.is_body_unrequested() => return Err(self.turned_away()),
                None => return Err(self.repeated(pool, UNREACHABLE.to_owned(), Evidence::Unavailable)),
            };
            let unsent = unsent || !begun && self.is_body_unrequested();
            let evidence = evidence_of(&error, reused);
            if self.delivery.is_guess && !upgrades && matches!(error, ExchangeError::Malformed(Malformed::HTTP2)) {
                return Err(self.answered_in_http2(pool, cause_of(&error)));
            }
            if unsent {
                closed_at_once += usize::from(!was_idle);
                if closed_at_once == CLOSED_AT_ONCE_MAX {
                    return Err(self.unsent(&error));
                }
            } else if begun || upgrades && evidence == Evidence::None {
                // An upgrade is repeated only if the pod is gone. A pod that closes may not support it.
                return Err(broken(pool, &error, upload.as_deref(), evidence));
            } else {
                return Err(Box::pin(self.broken_off(pool, &error, upload.as_deref(), evidence, was_idle)).await);
            }
        }
    }

    /// Prepares an HTTP/1.1 pod's response for the client. A 101 begins a tunnel. An error means that the response is a
    /// 101 that was not requested.
    fn finish_http1(
        mut self: Box<Self>,
        pool: &Pool,
        mut response: Response<Http1Body>,
    ) -> Result<Response<PodBody>, Failure> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(finish(response.map(|body| PodBody(Either::Left(body)))));
        }
        let Some((requested, client)) = self.upgrade.take() else {
            return Err(unrequested_upgrade(pool, response.headers(), ""));
        };
        let Some(protocol) = headers::agreed_upgrade(response.headers(), &requested) else {
            let requested = String::from_utf8_lossy(requested.as_bytes());
            return Err(unrequested_upgrade(pool, response.headers(), &requested));
        };
        strip_response(response.headers_mut());
        headers::set_upgrade(response.headers_mut(), protocol);
        let (mut head, body) = response.into_parts();
        let pod = body.into_tunnel().map(|pod| Box::new(pod) as PodEnd);
        head.extensions.insert(Tunnel { client, pod: Arc::new(Mutex::new(pod)) });
        Ok(Response::from_parts(head, PodBody(Either::Left(Http1Body::of_tunnel()))))
    }
}

fn unrequested_upgrade(pool: &Pool, headers: &http::HeaderMap, requested: &str) -> Failure {
    let protocol = headers.get(UPGRADE).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
    let cause = format!("backend tried to switch protocol {protocol:?} when {requested:?} was requested");
    Failure::of_pod(pool, cause, Evidence::None)
}
