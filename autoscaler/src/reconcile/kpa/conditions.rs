//! What a pass says in the status: scales, conditions, and notices that only inform.

use super::parameters::Parameters;
use super::scaling;
use super::workload::{LostHost, NotReady, Workload};
use autoscaler_core::active::{self, ActiveCondition};
use common::time::Timestamp;
use common_api::condition::{Condition, FALSE, READY};
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{
    ACTIVE, HOST_CONFLICT, HOST_REFUSED, Inactive, NO_PRIVATE_SERVICE_NAME, TIMED_OUT,
};
use common_api::{PodAutoscalerStatus, ServerlessService};
use std::time::Duration;

/// Condition that only informs: an annotation has no effect.
pub(crate) const SETTINGS_HONORED: &str = "SettingsHonored";
/// Condition that only informs: all metrics that were asked for can be measured.
pub(crate) const METRICS_MEASURED: &str = "MetricsMeasured";
/// Condition that only informs: every host is ours.
pub(crate) const HOSTS_OWNED: &str = "HostsOwned";

/// Condition that only informs, in the words of HorizontalPodAutoscalers: the replicas can be changed.
pub(crate) const ABLE_TO_SCALE: &str = "AbleToScale";

/// Condition that only informs: no other writer changes the replicas back.
pub(crate) const SCALED_BY: &str = "ScaledBy";

/// Condition that only informs: all pods that the selector finds are the target's own.
pub(crate) const PODS_OWNED: &str = "PodsOwned";

/// Most others that are named.
const OTHERS_NAMED: usize = 3;

/// How long what was given up is said to be so, unless it is woken before. What made it fail may be mended where nobody sees
/// it (an image, a ConfigMap), and whoever waits for `Ready` then must not have to wait for the next call. Helm waits for
/// five minutes by default.
pub(crate) const TIMED_OUT_FOR: Duration = Duration::from_secs(240);

/// Takes over what the ServerlessService says. `just_written`: its spec was changed a moment ago, by us.
pub(super) fn read_serverless(
    status: &mut PodAutoscalerStatus,
    serverless: &ServerlessService,
    just_written: bool,
    now: Timestamp,
) {
    let theirs = serverless.status.clone().unwrap_or_default();
    status.service_name.clone_from(&theirs.service_name);
    let ready = theirs.condition(READY);
    if theirs.is_ready(serverless.metadata.generation.unwrap_or(0))
        || (just_written && ready.is_some_and(Condition::is_true))
    {
        status.mark_sks_ready(now);
    } else if theirs.private_service_name.is_empty() {
        status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, now);
    } else {
        status.mark_sks_not_ready(ready.map_or("", |ready| ready.message.as_str()), now);
    }
}

/// The scales, and what follows from them. `keeps_timed_out`: what was given up is said to be so for [`TIMED_OUT_FOR`].
pub(super) fn tell_scale(
    status: &mut PodAutoscalerStatus,
    parameters: &Parameters,
    want: Option<i32>,
    ready: i32,
    keeps_timed_out: bool,
    now: Timestamp,
) {
    status.set_scales(want, ready);
    let outcome = active::decide(&active::Input {
        want,
        ready: u32::try_from(ready).unwrap_or(0),
        min_ready: parameters.min_ready,
        service_known: !status.service_name.is_empty(),
        active: scaling::active(status, now),
    });
    if outcome.initialized {
        status.mark_scale_target_initialized(now);
    }
    match outcome.active {
        Some(ActiveCondition::Active) => status.mark_active(now),
        Some(ActiveCondition::Queued) => status.mark_activating(now),
        Some(ActiveCondition::NoTraffic) if keeps_timed_out && timed_out_left(status, now).is_some() => {}
        Some(ActiveCondition::NoTraffic) => status.mark_inactive(Inactive::NoTraffic, now),
        Some(ActiveCondition::TimedOut) => status.mark_inactive(Inactive::TimedOut, now),
        None => {}
    }
    let mut manager = status.manage(now);
    match &parameters.ignored {
        Some(message) => manager.set(SETTINGS_HONORED, FALSE, "AnnotationIgnored", message),
        None => manager.clear(SETTINGS_HONORED),
    }
}

/// How long it is to be said yet that it was given up; none: it was not, or is not to be said any more.
pub(super) fn timed_out_left(status: &PodAutoscalerStatus, now: Timestamp) -> Option<Duration> {
    let given_up = status.condition(ACTIVE).filter(|active| active.is_false() && active.reason == TIMED_OUT)?;
    Some(TIMED_OUT_FOR.saturating_sub(given_up.unchanged_for(now))).filter(|left| !left.is_zero())
}

/// Notices: hosts that it does not have, and a metric that fails.
pub(super) fn notify(
    status: &mut PodAutoscalerStatus,
    workload: &Workload,
    failure: Option<(&'static str, String)>,
    now: Timestamp,
) {
    let mut manager = status.manage(now);
    let (mut reason, mut lost) = (HOST_REFUSED, Vec::new());
    for host in &workload.lost_hosts {
        lost.push(match host {
            LostHost::Taken { host, owner } => {
                reason = HOST_CONFLICT;
                format!("{host} belongs to {owner}, which had it first")
            }
            LostHost::Refused { host, why } => format!("{host} cannot be had: {why}"),
        });
    }
    match &lost[..] {
        [] => manager.clear(HOSTS_OWNED),
        lost => manager.set(HOSTS_OWNED, FALSE, reason, &lost.join("; ")),
    }
    match failure {
        Some((reason, why)) => manager.set(METRICS_MEASURED, FALSE, reason, &why),
        None => manager.clear(METRICS_MEASURED),
    }
}

/// What the API server says to a patch that adds pods, if it refuses one.
pub(super) fn tell_refusal(status: &mut PodAutoscalerStatus, refused: Option<&str>, now: Timestamp) {
    let mut manager = status.manage(now);
    match refused {
        Some(why) => manager.set(ABLE_TO_SCALE, FALSE, "FailedUpdateScale", why),
        None => manager.clear(ABLE_TO_SCALE),
    }
}

/// Reports another writer that keeps changing the replicas, if there is one.
pub(super) fn report_contest(status: &mut PodAutoscalerStatus, contest: Option<&str>, now: Timestamp) {
    let mut manager = status.manage(now);
    match contest {
        Some(message) => manager.set(SCALED_BY, FALSE, "ReplicasContested", message),
        None => manager.clear(SCALED_BY),
    }
}

/// Reports others whose pods the target's selector finds, if there are some.
pub(super) fn report_overlap(status: &mut PodAutoscalerStatus, workload: &Workload, others: &[String], now: Timestamp) {
    let mut manager = status.manage(now);
    let more = others.len().saturating_sub(OTHERS_NAMED);
    let others = match others {
        [] => return manager.clear(PODS_OWNED),
        [first] => first.clone(),
        [.., last] if more == 0 => format!("{} and {last}", others[..others.len() - 1].join(", ")),
        _ => format!("{} and {more} more", others[..OTHERS_NAMED].join(", ")),
    };
    let kind = workload.object.spec.scale_target_ref.kind.as_deref().unwrap_or("target");
    let (name, selector) = (workload.target_key.object.name(), workload.selector().unwrap_or_default());
    let message = format!(
        "the selector of {kind} {name} ({selector}) also finds pods of {others}: they neither count nor get requests, also \
         through Services that led to them before. A selector must find the pods of its own workload alone: give these \
         others different labels, and a Service of their own where clients need them"
    );
    manager.set(PODS_OWNED, FALSE, "SelectorOverlaps", &message);
}

/// Says that the pods of others are not known any more.
pub(super) fn forget_overlap(status: &mut PodAutoscalerStatus, now: Timestamp) {
    status.manage(now).clear(PODS_OWNED);
}

/// Says why nothing, or nothing new, is done. The last word of a pass.
pub(super) fn refuse(status: &mut PodAutoscalerStatus, not_ready: &NotReady, now: Timestamp) {
    tracing::debug!(reason = not_ready.reason, message = %not_ready.message, "refused");
    status.manage(now).set(READY, FALSE, not_ready.reason, &not_ready.message);
}
