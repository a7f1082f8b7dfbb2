//! Status of a ServerlessService. Knative's controller writes it.

use crate::ServerlessServiceStatus;
use crate::condition::{Condition, TRUE};
use crate::condition_set::{HasConditions, has_conditions};
use common::time::Timestamp;
use std::time::Duration;

/// Condition: the private Service has ready pods.
pub const ENDPOINTS_POPULATED: &str = "EndpointsPopulated";
/// Informational condition: traffic passes through activators. Its age is the time for which they have been in the
/// path.
pub const ACTIVATOR_ENDPOINTS_POPULATED: &str = "ActivatorEndpointsPopulated";

has_conditions!(ServerlessServiceStatus: [ENDPOINTS_POPULATED]);

impl ServerlessServiceStatus {
    /// Returns the time for which activators have been in the path, or zero if they are not.
    pub fn proxy_for(&self, now: Timestamp) -> Duration {
        self.status_for(ACTIVATOR_ENDPOINTS_POPULATED, TRUE, now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::FALSE;
    use crate::condition_set::tests::at;

    #[test]
    fn the_age_of_the_condition_is_the_time_in_the_path() {
        let mut status = ServerlessServiceStatus::default();
        let message = "Revision is backed by Activator";
        let mut mark = |value, now| {
            status.manage(now).set(ACTIVATOR_ENDPOINTS_POPULATED, value, ACTIVATOR_ENDPOINTS_POPULATED, message);
            status.proxy_for(at(9))
        };
        assert_eq!(mark(TRUE, at(2)), Duration::from_secs(7));
        assert_eq!(mark(TRUE, at(5)), Duration::from_secs(7), "the same status again does not reset the age");
        assert_eq!(mark(FALSE, at(8)), Duration::ZERO);
    }
}
