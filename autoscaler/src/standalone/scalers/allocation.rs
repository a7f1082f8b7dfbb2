//! Port numbers of a workload in the form of its status.

use crate::standalone::ports::AllocatedPorts;
use autoscaler_core::ports::{PortOutcome, Problem};

/// Reason of a workload whose NetworkPolicies cannot be followed.
pub(super) const POLICY_NOT_FOLLOWED: &str = "PolicyNotFollowed";

/// Summary of all ports of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Each port has a number.
    Whole,
    /// Each port has a number, or gets one soon.
    Pending,
    /// Some port has a fault.
    Wrong {
        /// Machine-readable word for the first fault.
        reason: &'static str,
        /// Description of all faults.
        message: String,
        /// Set if a port has no number at all, so that it leads to no activator.
        is_lacking: bool,
    },
}

impl Allocation {
    /// Summarizes the ports given to a workload.
    pub(crate) fn from_given(given: &AllocatedPorts) -> Self {
        let problems: Vec<(u16, &Problem)> =
            given.ports.iter().filter_map(|(port, outcome)| Some((port.port, outcome.problem.as_ref()?))).collect();
        let lacks = |outcome: &PortOutcome| outcome.number.is_none();
        let Some((_, first)) = problems.first() else {
            return if given.ports.iter().any(|(_, outcome)| lacks(outcome)) { Self::Pending } else { Self::Whole };
        };
        let messages: Vec<String> = problems.iter().map(|(port, problem)| format!("port {port}: {problem}")).collect();
        let is_lacking = given.ports.iter().any(|(_, outcome)| lacks(outcome) && outcome.problem.is_some());
        Self::Wrong { reason: reason(first), message: messages.join("; "), is_lacking }
    }
}

fn reason(problem: &Problem) -> &'static str {
    match problem {
        Problem::Exhausted(_) | Problem::Quota(_) | Problem::NoneGuarded => "RangeExhausted",
        Problem::Barred(_) => POLICY_NOT_FOLLOWED,
        Problem::InUse { .. } => "NumberInUse",
        Problem::NotOurs { .. } => "NumberNotOwned",
        Problem::Duplicate { .. } => "SeveralNumbers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::config::PortRange;
    use common::ports::PortId;

    #[test]
    fn a_fault_of_one_port_is_reported_with_its_number() {
        let given = |ports: Vec<(u16, Option<u16>, Option<Problem>)>| {
            let outcome = |(port, number, problem)| {
                (PortId { name: String::new(), port }, PortOutcome { number, former: Vec::new(), problem })
            };
            Allocation::from_given(&AllocatedPorts { uid: "u".into(), ports: ports.into_iter().map(outcome).collect() })
        };
        let range = PortRange { first: 20_000, last: 20_001 };
        let exhausted = || Some(Problem::Exhausted(range));
        assert_eq!(given(vec![]), Allocation::Whole, "no port wants one");
        assert_eq!(given(vec![(80, Some(20_000), None)]), Allocation::Whole);
        assert_eq!(given(vec![(80, Some(20_000), None), (81, None, None)]), Allocation::Pending);
        for (number, lacking) in [(None, true), (Some(19_000), false)] {
            let wrong = given(vec![(80, Some(20_000), None), (5432, number, exhausted())]);
            let Allocation::Wrong { reason, message, is_lacking } = wrong else { panic!("{wrong:?}") };
            assert_eq!((reason, is_lacking), ("RangeExhausted", lacking));
            assert!(message.starts_with("port 5432: ") && message.contains("20000-20001"), "{message}");
        }
    }
}
