//! Detects another controller: two controllers that act on one HorizontalPodAutoscaler would overwrite each other's
//! scale.
//!
//! Each write of a status records its manager's name and the time in the object's `managedFields`. Another manager
//! counts as an active controller for [`ACTIVE_FOR`] after each write of the status subresource. During that time, this
//! controller does not act on the object.
//!
//! A controller writes the status with every change, so a second controller is noticed with its first change. A
//! controller that never changes anything is not noticed, and does no harm. A user who edits a status by hand also
//! stops this controller for that time.
//!
//! API servers without managed fields show no other managers.

use common::time::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::Duration;

/// Manager name of this controller.
pub(crate) const MANAGER: &str = "zeroscale-hpa";
/// Time for which a write counts as a sign of activity: four sync periods of upstream's controller.
pub(crate) const ACTIVE_FOR: Duration = Duration::from_secs(60);

/// Latest write of the status by another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignManager {
    pub(crate) manager: String,
    /// Time of the write.
    pub(crate) at: Timestamp,
}

impl ForeignManager {
    /// Returns the latest write of the status by another manager, if an object records one.
    pub(crate) fn from_metadata(meta: &ObjectMeta) -> Option<Self> {
        let entries = meta.managed_fields.iter().flatten();
        let of_others = entries.filter(|entry| {
            entry.subresource.as_deref() == Some("status") && entry.manager.as_deref() != Some(MANAGER)
        });
        let writes = of_others.filter_map(|entry| {
            let at = hpa_core::status::timestamp(entry.time.as_ref()?);
            Some(Self { manager: entry.manager.clone().unwrap_or_default(), at })
        });
        writes.max_by_key(|write| write.at)
    }

    /// Reports whether the manager counts as active. A time in the future counts as well, because clocks differ.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < ACTIVE_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_write_of_another_manager_counts_for_a_minute() {
        let entry = |manager: &str, subresource: Option<&str>, second: u32| {
            json!({"manager": manager, "operation": "Update", "subresource": subresource,
                   "time": format!("2023-11-14T22:13:{second:02}Z")})
        };
        let of = |entries: &[serde_json::Value]| {
            ForeignManager::from_metadata(&serde_json::from_value(json!({"managedFields": entries})).expect("metadata"))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[entry("kubectl", None, 20), entry(MANAGER, Some("status"), 21)]), None);
        let kcm = |second| entry("kube-controller-manager", Some("status"), second);
        let found = of(&[kcm(20), entry("someone", Some("status"), 10), entry(MANAGER, Some("status"), 30)]);
        let at = Timestamp::from_secs(1_700_000_000);
        let expected = ForeignManager { manager: "kube-controller-manager".into(), at };
        assert_eq!(found.as_ref(), Some(&expected));
        for (age, active) in [(-5, true), (0, true), (59, true), (60, false)] {
            assert_eq!(expected.is_active(Timestamp::from_secs(at.as_secs() + age)), active, "{age} s");
        }
    }
}
