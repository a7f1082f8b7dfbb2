//! Whether somebody else is at work: two controllers that act on one HorizontalPodAutoscaler would fight over its
//! target.
//!
//! Each write of a status leaves its manager's name and the time in the object's `managedFields`. Another manager than
//! ourselves that has written the status subresource within the last [`RECENTLY`] is taken for a controller that is
//! alive, and nothing is done about the object until it has been silent for so long. It writes with every change that
//! it makes, so a controller that is switched on later is noticed with its first one; one that never changes anything
//! is not, and does no harm. A person who edits a status by hand stops us as well, for that time.
//!
//! API servers without managed fields show nobody.

use common::time::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::Duration;

/// Our own name as a manager.
pub(crate) const MANAGER: &str = "zeroscale-hpa";
/// How long a write counts as a sign of life: four sync periods of upstream's controller.
pub(crate) const RECENTLY: Duration = Duration::from_secs(60);

/// Another manager's latest write of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignManager {
    /// Its name.
    pub(crate) manager: String,
    /// When it wrote.
    pub(crate) at: Timestamp,
}

impl ForeignManager {
    /// The latest one that an object tells of.
    pub(crate) fn of(meta: &ObjectMeta) -> Option<Self> {
        let entries = meta.managed_fields.iter().flatten();
        let theirs = entries.filter(|entry| {
            entry.subresource.as_deref() == Some("status") && entry.manager.as_deref() != Some(MANAGER)
        });
        let write = theirs.filter_map(|entry| {
            let at = super::super::pods::timestamp(entry.time.as_ref()?);
            Some(Self { manager: entry.manager.clone().unwrap_or_default(), at })
        });
        write.max_by_key(|write| write.at)
    }

    /// Whether it is a sign of life. A time that lies ahead is, too: clocks differ.
    pub(crate) fn is_alive(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < RECENTLY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_another_managers_status_counts_and_only_for_a_minute() {
        let entry = |manager: &str, subresource: Option<&str>, second: u32| {
            json!({"manager": manager, "operation": "Update", "subresource": subresource,
                   "time": format!("2023-11-14T22:13:{second:02}Z")})
        };
        let of = |entries: &[serde_json::Value]| {
            ForeignManager::of(&serde_json::from_value(json!({"managedFields": entries})).expect("metadata"))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[entry("kubectl", None, 20), entry(MANAGER, Some("status"), 21)]), None);
        let kcm = |second| entry("kube-controller-manager", Some("status"), second);
        let found = of(&[kcm(20), entry("someone", Some("status"), 10), entry(MANAGER, Some("status"), 30)]);
        let at = Timestamp::from_secs(1_700_000_000);
        let expected = ForeignManager { manager: "kube-controller-manager".into(), at };
        assert_eq!(found.as_ref(), Some(&expected));
        for (age, alive) in [(-5, true), (0, true), (59, true), (60, false)] {
            assert_eq!(expected.is_alive(Timestamp::from_secs(at.as_secs() + age)), alive, "{age} s");
        }
    }
}
