//! How the bound is divided among workloads. Pure: amounts in, a decision out.
//!
//! | part of the bound | whose |
//! |---|---|
//! | [`RESERVED_PART`] of it | of each of the first [`SURE_WORKLOADS`] that hold anything the first bytes, [`Rule::sure`] |
//! | the rest | anybody's who asks for no more than [`SHARE`] times what it leaves free there |
//!
//! The second row is Choudhury and Hahne's dynamic threshold (IEEE/ACM Transactions on Networking 6(2), 1998), which
//! switches use for queues that share one memory. A workload alone gets two thirds of the rest, half of the whole
//! bound; of two that want all each gets two fifths of the rest; and whatever the others hold, something is free. By
//! itself that something shrinks with every workload that has taken its share and keeps it. Hence the first row: what is
//! sure does not depend on what others hold.

/// The part of the bound that is reserved for everybody's first bytes.
const RESERVED_PART: u64 = 4;

/// Workloads whose first bytes the reserve holds at once.
pub const SURE_WORKLOADS: u64 = 256;

/// What a workload may hold of the common part, in multiples of what is free there.
const SHARE: u64 = 2;

/// Bytes held, by one workload or by all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Of the reserve.
    pub reserved: u64,
    /// Of the rest.
    pub common: u64,
}

/// A part of the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What is kept for first bytes.
    Reserved,
    /// The rest.
    Common,
}

/// What stands in the way of one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The process holds as much as it may.
    Process,
    /// Its workload holds its share.
    Share,
}

/// A bound in bytes, divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    limit: u64,
}

impl Rule {
    /// Divides `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit }
    }

    /// The whole bound.
    pub fn limit(self) -> u64 {
        self.limit
    }

    /// What a workload may hold whatever others do, as long as fewer than [`SURE_WORKLOADS`] of them hold anything.
    pub fn sure(self) -> u64 {
        self.reserve() / SURE_WORKLOADS
    }

    fn reserve(self) -> u64 {
        self.limit / RESERVED_PART
    }

    /// Where `bytes` more of a workload that holds `own` are taken from, while `all` is held.
    pub fn admit(self, all: Amounts, own: Amounts, bytes: u64) -> Result<Part, Full> {
        let within = |held: u64, most: u64| held.checked_add(bytes).is_some_and(|total| total <= most);
        if within(own.reserved, self.sure()) && within(all.reserved, self.reserve()) {
            return Ok(Part::Reserved);
        }
        let common = self.limit - self.reserve();
        let Some(free) = common.checked_sub(all.common).and_then(|free| free.checked_sub(bytes)) else {
            return Err(Full::Process);
        };
        if within(own.common, free.saturating_mul(SHARE)) { Ok(Part::Common) } else { Err(Full::Share) }
    }
}

impl Amounts {
    /// Of both parts.
    pub fn sum(self) -> u64 {
        self.reserved + self.common
    }

    /// What is held of a part.
    pub fn of(&mut self, part: Part) -> &mut u64 {
        match part {
            Part::Reserved => &mut self.reserved,
            Part::Common => &mut self.common,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// Workloads that hold something, by number.
    struct Held {
        rule: Rule,
        own: Vec<Amounts>,
    }

    impl Held {
        fn new(limit: u64, workloads: usize) -> Self {
            Self { rule: Rule::new(limit), own: vec![Amounts::default(); workloads] }
        }

        fn all(&self) -> Amounts {
            self.own.iter().fold(Amounts::default(), |sum, own| Amounts {
                reserved: sum.reserved + own.reserved,
                common: sum.common + own.common,
            })
        }

        fn take(&mut self, workload: usize, bytes: u64) -> Result<Part, Full> {
            let part = self.rule.admit(self.all(), self.own[workload], bytes)?;
            *self.own[workload].of(part) += bytes;
            Ok(part)
        }

        /// Takes as much as it gets, in requests of this size; how much it then holds.
        fn fill(&mut self, workload: usize, bytes: u64) -> u64 {
            while self.take(workload, bytes).is_ok() {}
            self.own[workload].sum()
        }
    }

    /// What each gets of the bound, if one after the other takes all that it gets, in requests of 6 KiB.
    #[test]
    fn shares_follow_who_else_holds() {
        let mut held = Held::new(150 * MIB, 5);
        let got: Vec<u64> = (0..5).map(|n| held.fill(n, 6 * 1024) * 1000 / (150 * MIB)).collect();
        assert_eq!(got, [500, 167, 56, 19, 7], "in thousandths");
    }

    /// The same, if they take turns, request by request.
    #[test]
    fn workloads_that_come_at_once_share_alike() {
        for workloads in [1_usize, 2, 3, 10, 100] {
            let mut held = Held::new(150 * MIB, workloads);
            while (0..workloads).filter(|n| held.take(*n, 6 * 1024).is_ok()).count() > 0 {}
            let common = 150 * MIB - 150 * MIB / RESERVED_PART;
            let expected = common * SHARE / (1 + SHARE * workloads as u64);
            for own in &held.own {
                assert!(own.common.abs_diff(expected) <= 24 * 1024, "{workloads}: {own:?}, expected {expected}");
            }
        }
    }

    #[test]
    fn which_bound_is_full() {
        let rule = Rule::new(4096 * 1024);
        assert_eq!(rule.sure(), 4096);
        let none = Amounts::default();
        let common = |common| Amounts { reserved: 0, common };
        let rows = [
            ("what is sure", none, none, 4096, Ok(Part::Reserved)),
            ("more than that", none, none, 4097, Ok(Part::Common)),
            ("two thirds of the rest", none, none, 2 * MIB, Ok(Part::Common)),
            ("one byte more", none, none, 2 * MIB + 1, Err(Full::Share)),
            ("all of the rest", none, none, 3 * MIB, Err(Full::Share)),
            ("more than there is", none, none, 3 * MIB + 1, Err(Full::Process)),
            ("a number that overflows", common(MIB), common(MIB), u64::MAX, Err(Full::Process)),
            ("while another holds", common(2 * MIB), none, MIB, Err(Full::Share)),
            ("two thirds of what is free then", common(2 * MIB), none, MIB * 2 / 3, Ok(Part::Common)),
            ("on top of its own", common(2 * MIB), common(2 * MIB), 8192, Err(Full::Share)),
            ("nothing is free", common(3 * MIB), none, 8192, Err(Full::Process)),
            ("but what is sure", common(3 * MIB), none, 4096, Ok(Part::Reserved)),
            ("that is used up", Amounts { reserved: MIB, common: 0 }, none, 4096, Ok(Part::Common)),
        ];
        for (name, all, own, bytes, expected) in rows {
            assert_eq!(rule.admit(all, own, bytes), expected, "{name}");
        }
    }

    proptest! {
        /// Whoever takes and gives back what, in any order: the sum stays within the bound, and a newcomer gets what is
        /// sure, and half of what is free besides.
        #[test]
        fn a_newcomer_always_gets_what_is_sure(
            limit in 0_u64..1 << 40,
            steps in prop::collection::vec((0_usize..40, 0_u64..1 << 33, any::<bool>()), 0..200),
        ) {
            const NEWCOMER: usize = 40;
            let mut held = Held::new(limit, NEWCOMER + 1);
            let mut taken: Vec<(usize, Part, u64)> = Vec::new();
            for (workload, bytes, gives_back) in steps {
                if gives_back && !taken.is_empty() {
                    let (workload, part, bytes) = taken.swap_remove(workload % taken.len());
                    *held.own[workload].of(part) -= bytes;
                } else if let Ok(part) = held.take(workload, bytes) {
                    taken.push((workload, part, bytes));
                }
                let all = held.all();
                prop_assert!(all.sum() <= limit, "{all:?}");
                let sure = held.rule.sure();
                prop_assert_eq!(held.rule.admit(all, held.own[NEWCOMER], sure), Ok(Part::Reserved));
                let free = limit - limit / RESERVED_PART - all.common;
                prop_assert!(held.rule.admit(all, held.own[NEWCOMER], free / 2).is_ok(), "half of what is free");
                prop_assert!(free > 0 || all.common == 0, "something is free");
            }
        }

        /// The reserve is enough for as many as it says, however small the bound.
        #[test]
        fn as_many_as_promised_get_what_is_sure(limit in 0_u64..1 << 40) {
            let mut held = Held::new(limit, usize::try_from(SURE_WORKLOADS).unwrap_or(0));
            for workload in 0..held.own.len() {
                prop_assert_eq!(held.take(workload, held.rule.sure()), Ok(Part::Reserved));
            }
        }
    }
}
