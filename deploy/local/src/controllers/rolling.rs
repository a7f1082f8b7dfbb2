//! Numbers of pods of the new and the old templates during a rolling update.
//!
//! With `desired` replicas, at most `desired + surge` pods exist and at least `desired - unavailable` pods are
//! available at any time. The Deployment sets both bounds as numbers or as percentages of `desired`. Surge is rounded
//! up, unavailability down. If both are zero, one pod may be unavailable, or the roll would never progress.
//!
//! A pass grows the new set. If that cannot grow, the pass shrinks old sets, unavailable pods first.
//!
//! # Limits
//!
//! There is no proportional scaling: upstream spreads a change of `replicas` during a roll over all sets. Here the new
//! set grows first, and the old ones shrink as availability allows, within the same bounds.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Bounds of a rolling update, as numbers of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum number of pods beyond the desired number.
    pub(crate) surge: i32,
    /// Maximum number of desired pods that may be unavailable.
    pub(crate) unavailable: i32,
}

/// Returns the bounds of a Deployment with its strategy `RollingUpdate`.
pub(crate) fn bounds_of(spec: &DeploymentSpec) -> Bounds {
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let (surge, unavailable) =
        (rolling.and_then(|r| r.max_surge.as_ref()), rolling.and_then(|r| r.max_unavailable.as_ref()));
    bounds(surge, unavailable, spec.replicas.unwrap_or(1))
}

/// Reports whether a Deployment ends every old pod before it starts a new one.
pub(crate) fn is_recreate(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().and_then(|s| s.type_.as_deref()) == Some("Recreate")
}

/// Counts of one ReplicaSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    /// Desired number of pods.
    pub(crate) replicas: i32,
    /// Number of available pods.
    pub(crate) available: i32,
}

/// Resolves both bounds for `desired` replicas. A text that is not a percentage counts as 0.
fn bounds(surge: Option<&IntOrString>, unavailable: Option<&IntOrString>, desired: i32) -> Bounds {
    let quarter = IntOrString::String("25%".into());
    let surge = resolve(surge.unwrap_or(&quarter), desired, true);
    let unavailable = resolve(unavailable.unwrap_or(&quarter), desired, false);
    if surge == 0 && unavailable == 0 {
        return Bounds { surge, unavailable: 1 };
    }
    Bounds { surge, unavailable: unavailable.min(desired) }
}

/// Resolves `value` of `total`, rounded up or down.
fn resolve(value: &IntOrString, total: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%').and_then(|p| p.parse().ok()).unwrap_or(0).max(0);
            let hundredths = percent.saturating_mul(i64::from(total));
            let rounded = if up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// Returns the replicas that the new set should have now. `all` is the sum of the replicas of all sets, including the
/// new one.
pub(crate) fn new_replicas(desired: i32, bounds: Bounds, new: i32, all: i32) -> i32 {
    if new >= desired {
        return desired; // Complete, or the Deployment was scaled down.
    }
    let room = desired.saturating_add(bounds.surge).saturating_sub(all);
    new + room.clamp(0, desired - new)
}

/// Returns the replicas that each old set should have now, in the given order (oldest first).
pub(crate) fn old_replicas(desired: i32, bounds: Bounds, new: Set, old: &[Set]) -> Vec<i32> {
    let mut replicas: Vec<i32> = old.iter().map(|set| set.replicas).collect();
    let all = old.iter().map(|set| set.replicas).fold(new.replicas, i32::saturating_add);
    let least_available = if desired == 0 { 0 } else { desired - bounds.unavailable };
    let new_unavailable = (new.replicas - new.available).max(0);
    let mut removable = all - least_available - new_unavailable;
    if removable <= 0 {
        return replicas;
    }
    // Unavailable pods can be removed freely.
    for (replicas, set) in replicas.iter_mut().zip(old) {
        let unhealthy = (set.replicas - set.available).clamp(0, removable);
        *replicas -= unhealthy;
        removable -= unhealthy;
    }
    let available = old.iter().map(|set| set.available.min(set.replicas)).sum::<i32>() + new.available;
    let mut spare = (available - least_available).max(0);
    for replicas in &mut replicas {
        let fewer = spare.min(*replicas);
        *replicas -= fewer;
        spare -= fewer;
    }
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn percent(text: &str) -> Option<IntOrString> {
        Some(IntOrString::String(text.into()))
    }

    #[test]
    fn bounds_round_surge_up_and_unavailability_down() {
        let rows = [
            (percent("25%"), percent("25%"), 4, (1, 1)),
            (percent("25%"), percent("25%"), 3, (1, 0)),
            (percent("25%"), percent("25%"), 10, (3, 2)),
            (None, None, 10, (3, 2)),
            (Some(IntOrString::Int(0)), percent("10%"), 5, (0, 1)), // Both zero: one may be unavailable.
            (Some(IntOrString::Int(2)), Some(IntOrString::Int(0)), 5, (2, 0)),
            (percent("nonsense"), Some(IntOrString::Int(9)), 5, (0, 5)),
        ];
        for (surge, unavailable, desired, expected) in rows {
            let bounds = bounds(surge.as_ref(), unavailable.as_ref(), desired);
            assert_eq!((bounds.surge, bounds.unavailable), expected, "{surge:?} {unavailable:?} of {desired}");
        }
    }

    /// Rolls from one template to another. After each pass, the next number in `progress` of new pods becomes
    /// available.
    fn roll(desired: i32, surge: i32, unavailable: i32, progress: &[i32]) -> Result<(), TestCaseError> {
        let bounds = bounds(Some(&IntOrString::Int(surge)), Some(&IntOrString::Int(unavailable)), desired);
        let (mut old, mut new) = (Set { replicas: desired, available: desired }, Set { replicas: 0, available: 0 });
        for step in 0..(4 * desired + 8) {
            let before = (old, new);
            let grown = new_replicas(desired, bounds, new.replicas, new.replicas + old.replicas);
            if grown == new.replicas {
                old.replicas = old_replicas(desired, bounds, new, &[old])[0];
                old.available = old.available.min(old.replicas);
            }
            new.replicas = grown;
            prop_assert!(old.replicas + new.replicas <= desired + bounds.surge, "surge: {old:?} {new:?}");
            prop_assert!(old.available + new.available >= desired - bounds.unavailable, "available: {old:?} {new:?}");
            let ready = progress.get(step as usize % progress.len().max(1)).copied().unwrap_or(1);
            new.available = (new.available + ready).min(new.replicas);
            if (old, new) == before && new.available == new.replicas && ready > 0 {
                break;
            }
        }
        prop_assert_eq!((old.replicas, new.replicas), (0, desired));
        Ok(())
    }

    proptest! {
        /// Goal: a roll ends and respects both bounds at every step, whatever the order in which pods become available.
        #[test]
        fn a_roll_keeps_its_bounds_and_ends(
            desired in 0..30, surge in 0..10, unavailable in 0..10, progress in proptest::collection::vec(1..4, 1..10)
        ) {
            roll(desired, surge, unavailable, &progress)?;
        }
    }

    #[test]
    fn unavailable_old_pods_are_removed_first_and_all_at_zero_desired() {
        let set = |replicas, available| Set { replicas, available };
        let one = Bounds { surge: 1, unavailable: 1 };
        assert_eq!(old_replicas(4, one, set(1, 0), &[set(3, 0), set(3, 3)]), [0, 3]);
        assert_eq!(old_replicas(0, bounds(None, None, 0), set(0, 0), &[set(3, 3)]), [0]);
    }
}
