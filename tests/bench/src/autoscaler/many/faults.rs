//! Faults while an autoscaler has all of the workloads: lost watches, a killed autoscaler, an activator that ends.

use super::{ASLEEP, Bench, ClusterState, WAITING, until_idle};
use crate::fleet::{self, ActivatorState, Autoscaler};
use crate::idle::SETTLE;
use crate::report::Figures;
use anyhow::ensure;
use common::write_rate::Rate;
use futures::future::try_join_all;
use tokio::time::{Instant, sleep};

/// Name of the workload that is created while the watches are down.
const FRESH: &str = "fresh";

/// Effect of a change of an activator.
struct Change {
    /// Seconds until the last write to a slice, and the number of writes.
    seconds: f64,
    writes: u64,
    /// Number of those writes with an activator that has not bound the workload's port number.
    misrouted: u64,
}

impl Bench {
    /// Runs the faults one after the other.
    pub(super) async fn faults(
        &mut self,
        autoscaler: Autoscaler,
        asleep: u32,
        workloads: u32,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        self.resync(&autoscaler, workloads, figures).await?;
        let _second = self.takeover(autoscaler, asleep, workloads - asleep, figures).await?;
        self.slices(figures).await
    }

    /// Ends every watch and removes the history, so that no watch can resume.
    async fn resync(&self, autoscaler: &Autoscaler, workloads: u32, figures: &mut Figures) -> anyhow::Result<()> {
        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        sleep(SETTLE).await;
        let usual = (autoscaler.process.cpu()? - before).as_secs_f64() / begin.elapsed().as_secs_f64();

        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        if !self.control_plane.forget_history()? {
            return Ok(()); // A real API server decides itself how long it keeps its history.
        }
        self.control_plane.fill(FRESH, 0..1).await?;
        let name = fleet::name(FRESH, 0);
        self.cluster.until(&name, |state| (!state.activators_of(&name).is_empty()).then_some(())).await?;
        let served = begin.elapsed().as_secs_f64();
        sleep(SETTLE).await;
        let used = (autoscaler.process.cpu()? - before).as_secs_f64() - usual * begin.elapsed().as_secs_f64();
        figures.row("many-resync", vec![served]);
        figures.row("many-resync-cpu", vec![used * 1e3 / f64::from(workloads)]);
        Ok(())
    }

    /// Kills one of two autoscalers, and returns the other one.
    async fn takeover(
        &self,
        first: Autoscaler,
        asleep: u32,
        busy: u32,
        figures: &mut Figures,
    ) -> anyhow::Result<Autoscaler> {
        let second = self.control_plane.start_autoscaler(1, true).await?;
        self.control_plane.until_leading(1).await?;
        until_idle(&second, busy).await?;
        until_idle(&first, busy).await?; // By then they share the leases evenly.
        let names: Vec<_> =
            (0..WAITING).map(|n| fleet::name(ASLEEP, asleep - 1 - n * (asleep / 2) / WAITING)).collect();
        let begin = Instant::now();
        drop(first);
        self.activators.report_to(second.stats);
        let waits = names.iter().map(async |name| {
            self.activators.add_request(name)?;
            self.cluster.until(name, |state| state.woken_at(name).filter(|woken| *woken >= begin)).await
        });
        let woken = try_join_all(waits).await?;
        self.activators.end_requests();
        let seconds: Vec<_> = woken.iter().map(|at| (*at - begin).as_secs_f64()).collect();
        figures.row("many-takeover", vec![seconds.iter().copied().fold(0.0, f64::max)]);
        figures.add_context("s until the remaining autoscaler has started one of them", seconds);
        self.cluster.until_quiet(Instant::now()).await?;
        Ok(second)
    }

    /// Terminates an activator gracefully and restarts it; then kills it and restarts it.
    async fn slices(&mut self, figures: &mut Figures) -> anyhow::Result<()> {
        let last = self.last();
        let routed = self.cluster.state().workloads_of(last).count();
        ensure!(routed > 0, "no workload is routed to {last}");
        let ended = self.change(Some(ActivatorState::Terminating)).await?;
        self.activators.end(last);
        self.control_plane.publish(&self.activator_states(None)).await?;
        let returned = self.restart().await?;
        self.activators.end(last);
        let killed = self.change(None).await?;
        self.restart().await?;

        let (writes, seconds) = ((ended.writes + returned.writes) as f64, ended.seconds + returned.seconds);
        figures.row("many-slices", vec![writes / routed as f64]);
        figures.row("many-slices-time", vec![seconds * Rate::WITH_CONTROLLER.qps / writes]);
        figures.add_context("workloads routed to the activator that ends", vec![routed as f64]);
        for (what, change) in [("ends gracefully", ended), ("returns", returned), ("is killed", killed)] {
            let Change { seconds, writes, misrouted } = change;
            figures.add_context(format!("it {what}: s until all slices are right"), vec![seconds]);
            figures.add_context(format!("it {what}: writes to slices"), vec![writes as f64]);
            figures.add_context(
                format!("it {what}: of these, writes with an activator that has not bound the number"),
                vec![misrouted as f64],
            );
        }
        Ok(())
    }

    /// Starts the last activator again. It is published as ready before it has bound all numbers.
    async fn restart(&mut self) -> anyhow::Result<Change> {
        self.activators.start(self.last()).await?;
        self.change(Some(ActivatorState::Ready)).await
    }

    /// Publishes the state of the last activator, and waits until no writes follow.
    async fn change(&self, state: Option<ActivatorState>) -> anyhow::Result<Change> {
        let read = || {
            let state = self.cluster.state();
            (state.writes, state.misrouted)
        };
        let ((writes, misrouted), begin) = (read(), Instant::now());
        self.control_plane.publish(&self.activator_states(state)).await?;
        let is_routed = state == Some(ActivatorState::Ready);
        let last = self.last();
        let followed = |state: &ClusterState| (state.workloads_of(last).next().is_some() == is_routed).then_some(());
        self.cluster.until("slices to follow", followed).await?;
        let seconds = (self.cluster.until_quiet(begin).await? - begin).as_secs_f64();
        let after = read();
        Ok(Change { seconds, writes: after.0 - writes, misrouted: after.1 - misrouted })
    }
}
