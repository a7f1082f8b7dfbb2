//! What a ServerlessService's status says, and how it comes to say it. Types, reasons and messages are upstream's.

use crate::ServerlessServiceStatus;
use crate::condition::{Condition, FALSE, TRUE};
use crate::condition_set::{HasConditions, has_conditions};
use common::time::Timestamp;
use std::time::Duration;

/// Condition: the private Service has ready pods.
pub const ENDPOINTS_POPULATED: &str = "EndpointsPopulated";
/// Condition that only informs: traffic takes the activators. Its age is how long they have been in the path.
pub const ACTIVATOR_ENDPOINTS_POPULATED: &str = "ActivatorEndpointsPopulated";

/// Message of everything that is not ready.
pub const NOT_READY_MESSAGE: &str = "K8s Service is not ready";

/// What a ServerlessService waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The private Service is being created.
    CreatingPrivateService,
    /// The private Service is being updated.
    UpdatingPrivateService,
    /// The public Service is being created.
    CreatingPublicService,
    /// The public Service's endpoints are being created.
    CreatingPublicEndpoints,
    /// There is no ready pod.
    NoHealthyBackends,
}

impl Pending {
    /// The condition's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::CreatingPrivateService => "CreatingPrivateService",
            Self::UpdatingPrivateService => "UpdatingPrivateService",
            Self::CreatingPublicService => "CreatingPublicService",
            Self::CreatingPublicEndpoints => "CreatingPublicEndpoints",
            Self::NoHealthyBackends => "NoHealthyBackends",
        }
    }
}

has_conditions!(ServerlessServiceStatus: [ENDPOINTS_POPULATED]);

impl ServerlessServiceStatus {
    /// How long the activators have been in the path; zero if they are not.
    pub fn proxy_for(&self, now: Timestamp) -> Duration {
        self.status_for(ACTIVATOR_ENDPOINTS_POPULATED, TRUE, now).unwrap_or_default()
    }

    /// Notes that there are ready pods.
    pub fn mark_endpoints_populated(&mut self, now: Timestamp) {
        self.manage(now).mark_true(ENDPOINTS_POPULATED);
    }

    /// Notes that there are none, or no Services yet.
    pub fn mark_pending(&mut self, what: Pending, now: Timestamp) {
        self.manage(now).mark_unknown(ENDPOINTS_POPULATED, what.reason(), NOT_READY_MESSAGE);
    }

    /// Notes that an object of the name that we need belongs to somebody else.
    pub fn mark_not_owned(&mut self, kind: &str, name: &str, now: Timestamp) {
        let message = format!("Resource {name} of type {kind} is not owned by SKS");
        self.manage(now).mark_false(ENDPOINTS_POPULATED, "NotOwned", &message);
    }

    /// Notes whether traffic takes the activators. Reason and message are the same either way.
    pub fn mark_activators_in_path(&mut self, in_path: bool, now: Timestamp) {
        let status = if in_path { TRUE } else { FALSE };
        let message = "Revision is backed by Activator";
        self.manage(now).set(ACTIVATOR_ENDPOINTS_POPULATED, status, ACTIVATOR_ENDPOINTS_POPULATED, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{READY, SEVERITY_INFO};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + secs)
    }

    #[test]
    fn activators_in_the_path_only_inform() {
        let mut status = ServerlessServiceStatus::default();
        status.begin(1, at(0));
        status.mark_endpoints_populated(at(0));
        status.mark_activators_in_path(true, at(0));
        assert_eq!(status.proxy_for(at(7)), Duration::from_secs(7));
        status.mark_activators_in_path(true, at(5));
        assert_eq!(status.proxy_for(at(7)), Duration::from_secs(7), "saying it again restarts nothing");
        status.mark_activators_in_path(false, at(8));
        assert_eq!(status.proxy_for(at(9)), Duration::ZERO);
        status.finish(None, 1, at(9));
        assert!(status.is_ready(1));
        let types: Vec<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, [ACTIVATOR_ENDPOINTS_POPULATED, ENDPOINTS_POPULATED, READY]);
        assert_eq!(status.conditions[0].severity, SEVERITY_INFO);
    }

    #[test]
    fn what_is_pending_is_unknown_and_what_is_foreign_is_false() {
        let mut status = ServerlessServiceStatus::default();
        status.begin(1, at(0));
        status.mark_pending(Pending::NoHealthyBackends, at(1));
        let ready = status.condition(READY).cloned().unwrap_or_default();
        assert!(ready.is_unknown());
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("NoHealthyBackends", NOT_READY_MESSAGE));
        status.mark_not_owned("Service", "hello", at(2));
        let ready = status.condition(READY).cloned().unwrap_or_default();
        assert!(ready.is_false());
        assert_eq!(ready.message, "Resource hello of type Service is not owned by SKS");
    }
}
