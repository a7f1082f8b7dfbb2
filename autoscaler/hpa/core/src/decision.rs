//! What stabilization and limits make of a proposal, whichever rules apply.

/// The replicas decided on, and how they came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Replicas to scale to.
    pub replicas: i32,
    /// The recommendation after stabilization, before limits.
    pub stabilized: i32,
    /// What stabilization did.
    pub stabilization: Stabilization,
    /// What limited the stabilized recommendation.
    pub limit: Limit,
}

impl Decision {
    /// Whether a limit changed the recommendation.
    pub fn is_limited(&self) -> bool {
        self.replicas != self.stabilized
    }
}

/// What stabilization did: the reason of AbleToScale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stabilization {
    /// Nothing.
    Ready,
    /// It kept a lower number on the way up.
    Up,
    /// It kept a higher number on the way down.
    Down,
}

impl Stabilization {
    /// The condition's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Ready => "ReadyForNewScale",
            Self::Up => "ScaleUpStabilized",
            Self::Down => "ScaleDownStabilized",
        }
    }

    /// The condition's message.
    pub fn message(self) -> &'static str {
        match self {
            Self::Ready => "recommended size matches current size",
            Self::Up => "recent recommendations were lower than current one, applying the lowest recent recommendation",
            Self::Down => {
                "recent recommendations were higher than current one, applying the highest recent recommendation"
            }
        }
    }
}

/// What limits: the reason of ScalingLimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing.
    WithinRange,
    /// `minReplicas`.
    TooFew,
    /// `maxReplicas`.
    TooMany,
    /// How fast it may grow.
    ScaleUp,
    /// How fast it may shrink.
    ScaleDown,
}

impl Limit {
    /// The condition's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::WithinRange => "DesiredWithinRange",
            Self::TooFew => "TooFewReplicas",
            Self::TooMany => "TooManyReplicas",
            Self::ScaleUp => "ScaleUpLimit",
            Self::ScaleDown => "ScaleDownLimit",
        }
    }

    /// The condition's message.
    pub fn message(self) -> &'static str {
        match self {
            Self::WithinRange => "the desired count is within the acceptable range",
            Self::TooFew => "the desired replica count is less than the minimum replica count",
            Self::TooMany => "the desired replica count is more than the maximum replica count",
            Self::ScaleUp => "the desired replica count is increasing faster than the maximum scale rate",
            Self::ScaleDown => "the desired replica count is decreasing faster than the maximum scale rate",
        }
    }
}

/// Replicas there are and replicas asked for, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Replicas there are (`spec.replicas` of the scale).
    pub current: i32,
    /// Replicas asked for.
    pub proposed: i32,
    /// Fewest replicas.
    pub min: i32,
    /// Most replicas.
    pub max: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: reasons and messages are Kubernetes', to the letter: scripts compare them.
    #[test]
    fn conditions_speak_kubernetes_words() {
        for (what, reason, message) in [
            (Stabilization::Ready, "ReadyForNewScale", "recommended size matches current size"),
            (
                Stabilization::Up,
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
            (
                Stabilization::Down,
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
        ] {
            assert_eq!((what.reason(), what.message()), (reason, message));
        }
        for (limit, reason, message) in [
            (Limit::WithinRange, "DesiredWithinRange", "the desired count is within the acceptable range"),
            (Limit::TooFew, "TooFewReplicas", "the desired replica count is less than the minimum replica count"),
            (Limit::TooMany, "TooManyReplicas", "the desired replica count is more than the maximum replica count"),
            (
                Limit::ScaleUp,
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            ),
            (
                Limit::ScaleDown,
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ),
        ] {
            assert_eq!((limit.reason(), limit.message()), (reason, message));
        }
    }
}
