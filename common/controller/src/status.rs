//! Writing a status: only if it says something new, and in spite of others who write the same object.
//!
//! A conflict is answered by reading the object again and replacing its status, [`ATTEMPTS_MAX`] times in all. Nobody
//! else writes a status of ours, so what others changed is never in it.

use crate::error::{WriteError, code};
use crate::store::{Store, key_of};
use crate::writer::{Kind, Writer};
use kube::Api;
use kube::core::object::HasStatus;
use std::sync::Arc;
use std::time::Duration;

/// The first attempt included.
const ATTEMPTS_MAX: u32 = 5;
/// Between a conflict and the next attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes `status` of the object that was read as `read`, unless it says that already.
///
/// # Errors
/// The lease may end too soon, or the API server's. An object that is gone needs no status.
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
    let failed = || WriteError::api(doing.as_str());
    let reads: Api<K> = Api::namespaced(writer.client.clone(), key.namespace());
    let mut object = K::clone(read);
    for attempt in 1.. {
        *object.status_mut() = Some(status.clone());
        let answer = writer.write(&key, &doing, async |api| Ok(api.replace_status(&object).await)).await?;
        match answer {
            Ok(written) => {
                store.offer_object(&written);
                return Ok(());
            }
            Err(error) if code(&error) == Some(404) => return Ok(()),
            Err(error) if code(&error) == Some(409) && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(PAUSE).await;
                match reads.get_opt(key.name()).await.map_err(failed())? {
                    Some(newer) if newer.meta().uid == read.meta().uid => object = newer,
                    _ => return Ok(()),
                }
                if object.status() == Some(&status) {
                    return Ok(());
                }
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(())
}
