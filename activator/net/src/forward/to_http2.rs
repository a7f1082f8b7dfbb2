//! Sends requests to pods that speak HTTP/2.

use super::copy::HeadCopy;
use super::failure::{broken, evidence_of, from_http2, is_unprocessed};
use super::{CLOSED_AT_ONCE_MAX, Delivery, Evidence, Failure, PodBody, Prepared, finish};
use crate::body::{Guarded, RequestBody};
use crate::http2::Failed;
use crate::pool::Pool;
use http::{Request, Response, request};
use http_body_util::Either;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of times that an HTTP/2 pod may refuse the same request.
const UNPROCESSED_MAX: usize = 4;

impl Prepared {
    pub(super) async fn send_http2(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let (mut closed_at_once, mut unprocessed) = (0, 0);
        loop {
            let since = self.delivery.may_have_run.then(Instant::now);
            let stream = match pool.http2.open(since) {
                Some(open) => Ok(open),
                None => pool.lost().connected(Box::pin(pool.http2(since))).await,
            };
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => return Err(self.unreachable(pool, &error)),
            };
            let (worked, was_idle) = (stream.has_answered(), stream.was_idle);
            let Self { head, body, delivery, .. } = *self;
            let (copy, upload) = (HeadCopy::from_head(&head), body.upload());
            // No race with `lost`: if the pod is lost, its connection breaks, which ends all of its streams.
            match stream.exchange(Request::from_parts(head, body)).await {
                Ok(response) => {
                    stream.answered();
                    return Ok(finish(response.map(|body| PodBody(Either::Right(Guarded::new(body, stream))))));
                }
                Err(Failed::Unsent(error, body)) => {
                    let error = from_http2(error);
                    let Some(head) = copy else { return Err(broken(pool, &error, upload.as_deref(), Evidence::None)) };
                    self = delivery.prepare(head.into_parts(), body);
                    closed_at_once += 1;
                    if closed_at_once == CLOSED_AT_ONCE_MAX {
                        return Err(self.unsent(&error));
                    }
                }
                Err(Failed::Refused(problem)) => return Err(Failure::of_pod(pool, problem.to_owned(), Evidence::None)),
                Err(Failed::Broken(error, body)) => {
                    let (is_unprocessed, is_go_away) = (is_unprocessed(&error), error.is_go_away());
                    let error = from_http2(error);
                    let evidence = evidence_of(&error, worked);
                    let (Some(head), Some(body)) = (copy, body) else {
                        return Err(broken(pool, &error, upload.as_deref(), evidence));
                    };
                    self = delivery.prepare(head.into_parts(), body);
                    if !is_unprocessed {
                        let is_aged = worked || was_idle;
                        return Err(Box::pin(self.broken_off(pool, &error, upload.as_deref(), evidence, is_aged)).await);
                    }
                    unprocessed += 1;
                    if !self.rewind() {
                        return Err(broken(pool, &error, upload.as_deref(), evidence));
                    }
                    if unprocessed > UNPROCESSED_MAX {
                        return Err(self.unsent(&error));
                    }
                    if is_go_away {
                        pool.http2.leave(&stream); // It accepts no more streams.
                    }
                }
            }
        }
    }
}

impl Delivery {
    fn prepare(self, head: request::Parts, body: RequestBody) -> Box<Prepared> {
        Box::new(Prepared { head, body, upgrade: None, delivery: self })
    }
}
