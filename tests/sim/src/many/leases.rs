//! Counts writes of leases without faults.

use crate::lease::{TIMING, perform, settle};
use crate::timeline::origin;
use common::election::{Election, Op, Record};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;

/// Time by which every autoscaler holds its share of the leases.
const SETTLED: Duration = Duration::from_secs(60);
/// Duration of the count.
const COUNTED: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// Returns the writes per second of this many autoscalers with as many leases, and the maximum number of leases of one
/// autoscaler. The API server responds at once.
pub fn lease_writes(autoscalers: usize) -> (f64, usize) {
    let (epoch, mut rng, mut version) = (origin(), StdRng::seed_from_u64(1), 0_u64);
    let name = |index: usize| format!("autoscaler-{index}_10.1.0.{index}");
    let elect = |index| Election::new(name(index), autoscalers, TIMING, true, epoch);
    let mut elections: Vec<Election> = (0..autoscalers).map(elect).collect();
    let mut leases: Vec<Option<Record>> = vec![None; autoscalers];
    for election in &mut elections {
        (0..autoscalers).for_each(|lease| election.observe(lease, None, epoch, &mut rng));
    }
    let (mut passed, mut writes) = (Duration::ZERO, 0_u32);
    while passed < SETTLED + COUNTED {
        let now = epoch + passed;
        for index in 0..autoscalers {
            for (lease, op) in elections[index].due(now) {
                version += 1;
                let is_claim = matches!(op, Op::Claim);
                let (answer, next) = perform(op, leases[lease].clone(), &name(index), version);
                settle(&mut elections[index], lease, answer, (now, now), &mut rng);
                if next.is_none() {
                    continue;
                }
                writes += u32::from(passed >= SETTLED);
                leases[lease].clone_from(&next);
                if is_claim {
                    elections[index].observe(lease, next.clone(), now, &mut rng);
                }
                let others = elections.iter_mut().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, other)| other.observe(lease, next.clone(), now, &mut rng));
            }
        }
        passed += STEP;
    }
    let held = |election: &Election| (0..autoscalers).filter(|lease| election.held_until(*lease).is_some()).count();
    (f64::from(writes) / COUNTED.as_secs_f64(), elections.iter().map(held).max().unwrap_or(0))
}
