//! Current faults, which may overlap, and their effects on connections.

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

    fn is_active(&self, fault: Fault) -> bool {
        self.active.contains(&fault)
    }

    /// Returns true if an autoscaler's requests do not reach the API server.
    pub(crate) fn api_request_lost(&self, autoscaler: usize) -> bool {
        self.is_active(Fault::StopApi) || self.is_active(Fault::CutApi(autoscaler))
    }

    /// Returns true if an autoscaler receives no responses and no changes.
    pub(crate) fn api_answer_lost(&self, autoscaler: usize) -> bool {
        self.api_request_lost(autoscaler) || self.is_active(Fault::LoseAnswers(autoscaler))
    }

    /// Returns true if no process receives changes.
    pub(crate) fn api_stopped(&self) -> bool {
        self.is_active(Fault::StopApi)
    }

    pub(crate) fn api_slow(&self) -> bool {
        self.is_active(Fault::SlowApi)
    }

    pub(crate) fn api_is_healthy(&self, autoscaler: usize) -> bool {
        !self.api_answer_lost(autoscaler) && !self.writes_slow()
    }

    /// Returns true if writes of objects take long.
    pub(crate) fn writes_slow(&self) -> bool {
        self.api_slow() || self.is_active(Fault::SlowWrites)
    }

    pub(crate) fn stats_cut(&self, activator: usize) -> bool {
        self.is_active(Fault::CutStats(activator))
    }

    pub(crate) fn stats_spoiled(&self, activator: usize) -> bool {
        self.is_active(Fault::SpoilStats(activator))
    }

    pub(crate) fn stats_are_healthy(&self, activator: usize) -> bool {
        !self.stats_cut(activator) && !self.stats_spoiled(activator)
    }

    pub(crate) fn peers_cut(&self, a: usize, b: usize) -> bool {
        a != b && (self.is_active(Fault::CutPeers(a, b)) || self.is_active(Fault::CutPeers(b, a)))
    }

    pub(crate) fn scrapes_cut(&self, autoscaler: usize) -> bool {
        self.is_active(Fault::CutScrapes(autoscaler))
    }

    /// Returns true if an autoscaler's measurements of metrics fail.
    pub(crate) fn metrics_cut(&self, autoscaler: usize) -> bool {
        self.is_active(Fault::CutMetrics(autoscaler))
    }

    /// Returns the number of replicas that another writer wants for a revision.
    pub(crate) fn rival(&self, revision: usize) -> Option<i32> {
        self.active.iter().find_map(|fault| match fault {
            Fault::Rival(other, replicas) if *other == revision => Some(*replicas),
            _ => None,
        })
    }

    /// Returns the delay of entries in seconds.
    pub(crate) fn entries_lag(&self) -> Option<u64> {
        self.active.iter().filter_map(|fault| if let Fault::SlowEntries(lag) = fault { Some(*lag) } else { None }).max()
    }
}
