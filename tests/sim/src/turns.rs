//! Writes take turns: the process's bucket of tokens, and who waits for one.
//!
//! Other writes of the same process (statuses of ten thousand revisions that the model does not have) come in floods,
//! in the line of objects, and take tokens as its own do.

use crate::events::Local;
use crate::process::Who;
use crate::reconcile::Controller;
use crate::world::World;
use common::write_rate::{TokenBucket, WriteClass};
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// A flood is at most what the rate serves in so long, in seconds.
const FLOOD_MAX: f64 = 3.0;

#[derive(Debug)]
pub(crate) struct Turns {
    pace: TokenBucket,
    /// In the order in which they are served; none: a write of a revision that the model does not have.
    waiting: BTreeMap<(WriteClass, u64), Option<(Controller, usize)>>,
    came: u64,
    /// When somebody looks again.
    look_at: Option<Duration>,
}

impl Turns {
    pub(crate) fn new(pace: TokenBucket) -> Self {
        Self { pace, waiting: BTreeMap::new(), came: 0, look_at: None }
    }

    fn wait(&mut self, line: WriteClass, whose: Option<(Controller, usize)>) {
        self.came += 1;
        self.waiting.insert((line, self.came), whose);
    }
}

impl World {
    /// A pass has something to write: it is written when it is its turn.
    pub(crate) fn queue_write(&mut self, index: usize, key: (Controller, usize), line: WriteClass) {
        self.autoscalers[index].turns.wait(line, Some(key));
        self.serve_turns(index);
    }

    /// Other revisions have something to write, all at once.
    pub(crate) fn flood(&mut self, index: usize) {
        let pause = Duration::from_millis(self.rng.random_range(2_000..20_000));
        self.tell(Who::Autoscaler(index), pause, Local::Flood);
        let count = (self.plan.rate.qps * self.rng.random_range(0.0..FLOOD_MAX)) as u32;
        let turns = &mut self.autoscalers[index].turns;
        (0..count).for_each(|_| turns.wait(WriteClass::Object, None));
        self.summary.foreign_writes += u64::from(count);
        self.serve_turns(index);
    }

    /// A decision waits for a pass to end: what that has to write stands in the decision's line from now on.
    pub(crate) fn hurry_turn(&mut self, index: usize, revision: usize) {
        let turns = &mut self.autoscalers[index].turns;
        let mine = Some((Controller::Autoscaler, revision));
        let place = turns.waiting.iter().find(|((line, _), whose)| **whose == mine && *line > WriteClass::Wake);
        if let Some(place) = place.map(|(place, _)| *place) {
            turns.waiting.remove(&place);
            turns.wait(WriteClass::Wake, mine);
            self.summary.moved_up += 1;
            self.serve_turns(index);
        }
    }

    pub(crate) fn look_at_turns(&mut self, index: usize) {
        self.autoscalers[index].turns.look_at = None;
        self.serve_turns(index);
    }

    /// Serves whoever is first for as long as there are tokens for them.
    fn serve_turns(&mut self, index: usize) {
        let now = self.instant();
        loop {
            let turns = &mut self.autoscalers[index].turns;
            let Some((&(line, came), &whose)) = turns.waiting.first_key_value() else { return };
            if !turns.pace.take(line, now) {
                break;
            }
            turns.waiting.remove(&(line, came));
            if let Some(key) = whose {
                self.begin_step(index, key);
            }
        }
        self.summary.turns_waited += 1;
        let turns = &mut self.autoscalers[index].turns;
        let Some((&(line, _), _)) = turns.waiting.first_key_value() else { return };
        let at = self.now + turns.pace.ready_at(line).saturating_duration_since(now);
        if turns.look_at.is_none_or(|known| at < known) {
            turns.look_at = Some(at);
            self.tell(Who::Autoscaler(index), at - self.now, Local::Turns);
        }
    }
}
