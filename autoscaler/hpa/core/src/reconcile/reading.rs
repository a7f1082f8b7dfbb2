//! First step of a reconcile: reads the scale.

use super::{Cluster, ErrorLabel, Pass};
use crate::spec::group;
use crate::status::{ABLE_TO_SCALE, Event};

/// Scale of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub spec_replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`, as text.
    pub selector: String,
}

/// Reason why there is no scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleError {
    /// The target's kind is unknown.
    Kind(String),
    /// The scale could not be read.
    Read(String),
}

impl Pass<'_> {
    pub(super) async fn read_scale(&mut self, cluster: &mut impl Cluster) -> Result<Scale, String> {
        let target = &self.autoscaler.spec.scale_target_ref;
        if let Err(e) = group(target) {
            self.conclusion.error_label = ErrorLabel::Spec;
            return Err(self.fail_without_scale(&e, "invalid API version in scale target reference"));
        }
        let scale = cluster.read_scale(target).await.map_err(|error| {
            let (why, what) = match error {
                ScaleError::Kind(e) => (e, "unable to determine resource for scale target reference".to_owned()),
                ScaleError::Read(e) => (e, format!("failed to query scale subresource for {}", self.reference())),
            };
            self.fail_without_scale(&why, &what)
        })?;
        let message = "the HPA controller was able to get the target's current scale";
        self.set(ABLE_TO_SCALE, true, "SucceededGetScale", message);
        self.memory.seed(scale.spec_replicas, self.now);
        Ok(scale)
    }

    /// Ends the reconcile; of the status, only the condition changes. Returns the error.
    fn fail_without_scale(&mut self, why: &str, what: &str) -> String {
        self.conclusion.events.push(Event::warning("FailedGetScale", why.to_owned()));
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.set(ABLE_TO_SCALE, false, "FailedGetScale", message);
        format!("{what}: {why}")
    }
}
