//! Writes statuses: only if they changed, and despite other writers of the same object.
//!
//! After a conflict the object is read again and its status replaced, [`ATTEMPTS_MAX`] times in all. No other process
//! writes our statuses, so a status never contains changes by others.

use crate::error::{Failure, WriteError, code};
use crate::store::{Store, key_of};
use crate::writer::{BoundedApi, Kind, Writer};
use kube::Api;
use kube::core::object::HasStatus;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of attempts, including the first.
const ATTEMPTS_MAX: u32 = 5;
/// Pause between a conflict and the next attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes `status` to the object that was read as `read`, unless it is unchanged. Fails if the lease may end too soon,
/// or with the API server's error. A deleted object needs no status.
pub async fn write<K>(writer: Writer<'_>, store: &Store<K>, read: &Arc<K>, status: K::Status) -> Result<(), WriteError>
where
    K: Kind + HasStatus,
    K::Status: PartialEq + Clone,
{
    if read.status() == Some(&status) {
        return Ok(());
    }
    let key = key_of(&**read);
    let doing = format!("Failed to update status for {:?}", key.name());
    let reads: Api<K> = Api::namespaced(writer.client.clone(), key.namespace());
    let mut object = K::clone(read);
    for attempt in 1.. {
        *object.status_mut() = Some(status.clone());
        let replace = async |api: BoundedApi| match api.replace_status(&object).await {
            Err(error) if code(&error) == Some(404) => Ok(None),
            answer => answer.map(Some).map_err(WriteError::api(doing.as_str())),
        };
        let answer = writer.write(&key, &doing, replace).await;
        match answer {
            Ok(Some(written)) => {
                store.offer_object(&written);
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(PAUSE).await;
                match reads.get_opt(key.name()).await.map_err(WriteError::api(doing.as_str()))? {
                    Some(newer) if newer.meta().uid == read.meta().uid => object = newer,
                    _ => return Ok(()),
                }
                if object.status() == Some(&status) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leadership::Alone;
    use crate::limiter::{Pacing, WriteLimiter};
    use crate::queue::WorkQueue;
    use common::write_rate::{Rate, WriteClass};
    use common_api::{Metric, MetricSpec, MetricStatus};
    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    /// Method: the same response to every attempt; checks the result of the write and the tally.
    #[tokio::test(start_paused = true)]
    async fn the_tally_counts_the_response_to_a_status() {
        let rows = [
            (200_u16, true, "ok", 1),
            (404, true, "ok", 1), // A deleted object needs no status.
            (409, false, "conflict", u64::from(ATTEMPTS_MAX)),
            (422, false, "refused", 1),
            (503, false, "failed", 1),
        ];
        for (code, succeeds, outcome, count) in rows {
            let mut metric = Metric::new("hello", MetricSpec::default());
            metric.metadata.namespace = Some("ns".to_owned());
            let object = serde_json::to_value(&metric).expect("serialisable");
            let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
            let answering = async {
                while let Some((request, respond)) = server.next_request().await {
                    let (status, body) = match request.method() == Method::PUT && code != 200 {
                        true => (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"})),
                        false => (200, object.clone()),
                    };
                    let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
                    respond.send_response(answer.expect("a response"));
                }
            };
            let (client, decisions) = (Client::new(service, "default"), WorkQueue::default());
            let limiter = WriteLimiter::new(Rate { qps: 10.0, burst: 10 });
            let pacing = Pacing { limiter: &limiter, class: WriteClass::Object, decisions: &decisions };
            let writer = Writer { client: &client, leadership: &Alone, pacing: Some(pacing) };
            let (store, read) = (Store::<Metric>::new(|_, _, _| {}), Arc::new(metric));
            let written = tokio::select! {
                written = write(writer, &store, &read, MetricStatus::default()) => written,
                () = answering => unreachable!("the client lives"),
            };
            assert_eq!(written.is_ok(), succeeds, "{code}: {written:?}");
            let counts: Vec<_> = limiter.write_tally().counts().into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counts, [(["object", outcome], count)], "{code}");
        }
    }
}
