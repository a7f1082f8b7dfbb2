//! Reasons of conditions: one machine-readable word each; and lists of names in their messages.

/// No requests wait and no pods run.
pub(crate) const NO_TRAFFIC: &str = "NoTraffic";
/// Requests wait for pods.
pub(crate) const QUEUED: &str = "Queued";
/// Scaling and routing changes are suspended.
pub(crate) const PAUSED: &str = "Paused";
/// A scale from zero took too long.
pub(crate) const TIMED_OUT: &str = "TimedOut";
/// The object violates a rule; the message names field, value and rule.
pub(crate) const INVALID: &str = "Invalid";
/// The Service that clients call belongs to another owner; the replicas stay unchanged.
pub(crate) const SERVICE_NOT_OWNED: &str = "ServiceNotOwned";
/// Another ZeroScaler claimed a host first.
pub(crate) const HOST_CONFLICT: &str = "HostConflict";
/// The namespace is not allowed to have a host.
pub(crate) const HOST_REFUSED: &str = "HostRefused";
/// The target does not exist.
pub(crate) const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// The target cannot be listed or watched, so its state is unknown.
pub(crate) const TARGET_UNREADABLE: &str = "TargetUnreadable";
/// The Service that clients call does not exist, and must not be created.
pub(crate) const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
/// A HorizontalPodAutoscaler scales the same target.
pub(crate) const HORIZONTAL_CONFLICT: &str = "HorizontalPodAutoscaler";

/// Another ZeroScaler scales the same target.
pub(crate) const TARGET_TAKEN: &str = "TargetTaken";

/// The spec names another target: the previous target is given back first.
pub(crate) const TARGET_CHANGES: &str = "TargetChanges";

/// Reasons why a target or Service cannot be adopted.
pub(crate) const NOT_ADOPTED: [&str; 7] = [
    SERVICE_NOT_OWNED,
    TARGET_NOT_FOUND,
    TARGET_UNREADABLE,
    SERVICE_NOT_FOUND,
    HORIZONTAL_CONFLICT,
    TARGET_TAKEN,
    TARGET_CHANGES,
];

/// Lists names in a message: `a, b and c`, or `a, b and 4 more` if there are more than `max`.
pub(crate) fn list_names(names: &[String], max: usize) -> String {
    let mut parts: Vec<String> = names.iter().take(max).cloned().collect();
    if names.len() > max {
        parts.push(format!("{} more", names.len() - max));
    }
    match parts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_lists_some_names_and_counts_the_rest() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let lists = [(0, ""), (1, "a"), (2, "a and b"), (3, "a, b and c"), (4, "a, b, c and 1 more")];
        for (count, expected) in lists {
            assert_eq!(super::list_names(&names[..count], 3), expected);
        }
    }
}
