//! Which connections are in which state. Faults may overlap, so each is counted.

use crate::plan::Fault;

#[derive(Debug, Default)]
pub(crate) struct Links {
    active: Vec<Fault>,
}

impl Links {
    pub(crate) fn begin(&mut self, fault: Fault) {
        self.active.push(fault);
    }

    pub(crate) fn end(&mut self, fault: Fault) {
        if let Some(at) = self.active.iter().position(|active| *active == fault) {
            self.active.swap_remove(at);
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.active.contains(&fault)
    }

    /// Whether an autoscaler's requests do not reach the API server.
    pub(crate) fn api_request_lost(&self, autoscaler: usize) -> bool {
        self.is(Fault::StopApi) || self.is(Fault::CutApi(autoscaler))
    }

    /// Whether answers and events do not reach an autoscaler.
    pub(crate) fn api_answer_lost(&self, autoscaler: usize) -> bool {
        self.api_request_lost(autoscaler) || self.is(Fault::LoseAnswers(autoscaler))
    }

    /// Whether events reach nobody.
    pub(crate) fn api_stopped(&self) -> bool {
        self.is(Fault::StopApi)
    }

    pub(crate) fn api_slow(&self) -> bool {
        self.is(Fault::SlowApi)
    }

    pub(crate) fn api_is_well(&self, autoscaler: usize) -> bool {
        !self.api_answer_lost(autoscaler) && !self.writes_slow()
    }

    /// Whether it takes long until an object is written.
    pub(crate) fn writes_slow(&self) -> bool {
        self.api_slow() || self.is(Fault::SlowWrites)
    }

    pub(crate) fn stats_cut(&self, activator: usize) -> bool {
        self.is(Fault::CutStats(activator))
    }

    pub(crate) fn stats_spoiled(&self, activator: usize) -> bool {
        self.is(Fault::SpoilStats(activator))
    }

    pub(crate) fn stats_are_well(&self, activator: usize) -> bool {
        !self.stats_cut(activator) && !self.stats_spoiled(activator)
    }

    pub(crate) fn peers_cut(&self, a: usize, b: usize) -> bool {
        a != b && (self.is(Fault::CutPeers(a, b)) || self.is(Fault::CutPeers(b, a)))
    }

    pub(crate) fn scrapes_cut(&self, autoscaler: usize) -> bool {
        self.is(Fault::CutScrapes(autoscaler))
    }

    /// Whether an autoscaler's looks at metrics fail.
    pub(crate) fn metrics_cut(&self, autoscaler: usize) -> bool {
        self.is(Fault::CutMetrics(autoscaler))
    }

    /// What somebody else wants a revision's replicas to be.
    pub(crate) fn rival(&self, revision: usize) -> Option<i32> {
        self.active.iter().find_map(|fault| match fault {
            Fault::Rival(of, replicas) if *of == revision => Some(*replicas),
            _ => None,
        })
    }

    /// How many seconds entries lag behind.
    pub(crate) fn entries_lag(&self) -> Option<u64> {
        self.active.iter().filter_map(|fault| if let Fault::SlowEntries(lag) = fault { Some(*lag) } else { None }).max()
    }
}
