//! ZeroScalers for display. The shown status is the one about to be written, because the stored status of a workload in
//! transition may be seconds old.

use super::publication::Publisher;
use crate::reconcile::{ObjectView, Objects};
use common::RevisionKey as Key;
use common_api::condition::to_rfc3339;
use common_api::zeroscaler::SleepState;
use common_api::zeroscaler::conditions::{ACTIVE, find};

impl Objects for Publisher {
    fn keys(&self) -> Vec<Key> {
        self.scalers.objects.keys()
    }

    fn version(&self, key: &Key) -> Option<u64> {
        self.scalers.objects.version(key)
    }

    fn view(&self, key: &Key) -> Option<ObjectView> {
        let object = self.scalers.objects.get(key)?;
        // In a large cluster nearly all workloads sleep, and their written status is current.
        let sleeps = object.status.as_ref().is_some_and(|status| status.state == SleepState::Asleep);
        let is_written = sleeps && self.is_settled(key);
        let next_status = (!is_written).then(|| self.next_status(key, &object));
        let Some((findings, status)) = next_status.flatten() else {
            let status = object.status.clone().unwrap_or_default();
            let since = find(&status.conditions, ACTIVE).map(|active| active.last_transition_time.0.to_string());
            return Some(ObjectView { object, status, since });
        };
        let since = findings.activity.map(|activity| to_rfc3339(activity.since));
        Some(ObjectView { object, status, since })
    }
}
