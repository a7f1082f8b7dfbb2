//! What a pass says in the status: scales, conditions, and notices that only inform.

use super::parameters::Parameters;
use super::{HOSTS_OWNED, Pass, SETTINGS_HONORED};
use crate::standalone::admission::{Prepared, Refusal};
use autoscaler_core::active;
use common_api::ServerlessService;
use common_api::condition::{Condition, FALSE, READY};
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{HOST_CONFLICT, Inactive, NO_PRIVATE_SERVICE_NAME};

impl Pass<'_> {
    /// Takes over what the ServerlessService says. `just_written`: its spec was changed a moment ago, by us.
    pub(super) fn read_serverless(&mut self, serverless: &ServerlessService, just_written: bool) {
        let theirs = serverless.status.clone().unwrap_or_default();
        self.status.service_name.clone_from(&theirs.service_name);
        let ready = theirs.condition(READY);
        if theirs.is_ready(serverless.metadata.generation.unwrap_or(0))
            || (just_written && ready.is_some_and(Condition::is_true))
        {
            self.status.mark_sks_ready(self.now);
        } else if theirs.private_service_name.is_empty() {
            self.status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, self.now);
        } else {
            self.status.mark_sks_not_ready(ready.map_or("", |ready| ready.message.as_str()), self.now);
        }
    }

    pub(super) fn conditions(&mut self, parameters: &Parameters, want: Option<i32>, ready: i32) {
        self.status.set_scales(want, ready);
        let outcome = active::decide(&active::Input {
            want,
            ready: u32::try_from(ready).unwrap_or(0),
            min_ready: parameters.min_ready,
            service_known: !self.status.service_name.is_empty(),
            active: self.active(),
        });
        if outcome.initialized {
            self.status.mark_scale_target_initialized(self.now);
        }
        match outcome.active {
            Some(active::ActiveCondition::Active) => self.status.mark_active(self.now),
            Some(active::ActiveCondition::Queued) => self.status.mark_activating(self.now),
            Some(active::ActiveCondition::NoTraffic) => self.status.mark_inactive(Inactive::NoTraffic, self.now),
            Some(active::ActiveCondition::TimedOut) => self.status.mark_inactive(Inactive::TimedOut, self.now),
            None => {}
        }
        let mut manager = self.status.manage(self.now);
        match &parameters.ignored {
            Some(message) => manager.set(SETTINGS_HONORED, FALSE, "AnnotationIgnored", message),
            None => manager.clear(SETTINGS_HONORED),
        }
    }

    pub(super) fn notices(&mut self, prepared: &Prepared) {
        let mut manager = self.status.manage(self.now);
        if prepared.lost_hosts.is_empty() {
            manager.clear(HOSTS_OWNED);
            return;
        }
        let lost = prepared
            .lost_hosts
            .iter()
            .map(|(host, owner)| format!("{host} belongs to the older PodAutoscaler {owner}"));
        manager.set(HOSTS_OWNED, FALSE, HOST_CONFLICT, &lost.collect::<Vec<_>>().join("; "));
    }

    /// Says why nothing, or nothing new, is done. The last word of a pass.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        tracing::debug!(revision = %self.key, reason = refusal.reason, message = %refusal.message, "refused");
        self.status.manage(self.now).set(READY, FALSE, refusal.reason, &refusal.message);
    }
}
