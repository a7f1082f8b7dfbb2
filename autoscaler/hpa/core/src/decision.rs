//! Result of stabilization and limits, common to autoscalers with and without a behavior.

/// Decided replicas and their derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Replicas to scale to.
    pub replicas: i32,
    /// Recommendation after stabilization, before limits.
    pub stabilized: i32,
    /// Effect of stabilization.
    pub stabilization: Stabilization,
    /// Limit on the stabilized recommendation.
    pub limit: Limit,
}

impl Decision {
    /// Reports whether a limit changed the recommendation.
    pub fn is_limited(&self) -> bool {
        self.replicas != self.stabilized
    }
}

/// Effect of stabilization, and reason of AbleToScale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stabilization {
    /// No effect.
    #[default]
    Ready,
    /// A recent lower recommendation replaced the present one during a scale-up.
    Up,
    /// A recent higher recommendation replaced the present one during a scale-down.
    Down,
}

impl Stabilization {
    /// Returns the condition's reason and message.
    pub fn reason_and_message(self) -> (&'static str, &'static str) {
        match self {
            Self::Ready => ("ReadyForNewScale", "recommended size matches current size"),
            Self::Up => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
            Self::Down => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
        }
    }
}

/// Limit that applied, and reason of ScalingLimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    #[default]
    WithinRange,
    /// Limited by `minReplicas`.
    TooFew,
    /// Limited by `maxReplicas`.
    TooMany,
    /// Limited by the maximum rate of scale-ups.
    ScaleUp,
    /// Limited by the maximum rate of scale-downs.
    ScaleDown,
}

impl Limit {
    /// Returns the condition's reason and message.
    pub fn reason_and_message(self) -> (&'static str, &'static str) {
        match self {
            Self::WithinRange => ("DesiredWithinRange", "the desired count is within the acceptable range"),
            Self::TooFew => ("TooFewReplicas", "the desired replica count is less than the minimum replica count"),
            Self::TooMany => ("TooManyReplicas", "the desired replica count is more than the maximum replica count"),
            Self::ScaleUp => {
                ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
            }
            Self::ScaleDown => {
                ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
            }
        }
    }
}

/// Current and proposed replicas, and their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Current replicas (`spec.replicas` of the scale).
    pub current: i32,
    /// Proposed replicas.
    pub proposed: i32,
    /// Minimum number of replicas.
    pub min: i32,
    /// Maximum number of replicas.
    pub max: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: messages equal those of Kubernetes exactly, because scripts compare them. Recorded decisions contain the
    /// reasons.
    #[test]
    fn messages_are_those_of_kubernetes() {
        let messages = [Stabilization::Ready, Stabilization::Up, Stabilization::Down].map(|s| s.reason_and_message().1);
        assert_eq!(
            messages,
            [
                "recommended size matches current size",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ]
        );
        let limits = [Limit::WithinRange, Limit::TooFew, Limit::TooMany, Limit::ScaleUp, Limit::ScaleDown];
        assert_eq!(
            limits.map(|limit| limit.reason_and_message().1),
            [
                "the desired count is within the acceptable range",
                "the desired replica count is less than the minimum replica count",
                "the desired replica count is more than the maximum replica count",
                "the desired replica count is increasing faster than the maximum scale rate",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ]
        );
    }
}
