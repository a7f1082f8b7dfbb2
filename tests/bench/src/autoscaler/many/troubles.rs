//! Faults of an autoscaler with all of the workloads.

use super::{ASLEEP, Bench, WAITING, until_calm};
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
    /// Number of those writes that lead to an activator that does not listen.
    misled: u64,
}

impl Bench {
    /// Runs the faults one after the other.
    pub(super) async fn troubles(
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

    /// Ends every watch, so that none can resume.
    async fn resync(&self, autoscaler: &Autoscaler, workloads: u32, figures: &mut Figures) -> anyhow::Result<()> {
        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        sleep(SETTLE).await;
        let usual = (autoscaler.process.cpu()? - before).as_secs_f64() / begin.elapsed().as_secs_f64();

        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        if !self.plane.forget_history()? {
            return Ok(()); // A real API server decides itself how long it keeps its history.
        }
        self.plane.fill(FRESH, 0..1).await?;
        let name = fleet::name(FRESH, 0);
        self.watched.until(&name, |now| (!now.led_of(&name).is_empty()).then_some(())).await?;
        let right = begin.elapsed().as_secs_f64();
        sleep(SETTLE).await;
        let used = (autoscaler.process.cpu()? - before).as_secs_f64() - usual * begin.elapsed().as_secs_f64();
        figures.row("many-resync", vec![right]);
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
        let second = self.plane.autoscaler(1, true).await?;
        self.plane.until_it_leads(1).await?;
        until_calm(&[&second, &first], busy).await?; // Wait until they share the leases evenly.
        let names: Vec<_> =
            (0..WAITING).map(|n| fleet::name(ASLEEP, asleep - 1 - n * (asleep / 2) / WAITING)).collect();
        let begin = Instant::now();
        drop(first);
        self.activators.report_to(second.stats);
        let waits = names.iter().map(async |name| {
            self.activators.wait_for(name)?;
            self.watched.until(name, |now| now.woken(name).filter(|woken| *woken >= begin)).await
        });
        let woken = try_join_all(waits).await?;
        self.activators.wait_no_more();
        let mut seconds: Vec<_> = woken.iter().map(|at| (*at - begin).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        figures.row("many-takeover", seconds.last().copied().into_iter().collect());
        figures.beside("s until the remaining autoscaler has started one of them", seconds);
        self.watched.until_quiet(Instant::now()).await?;
        Ok(second)
    }

    /// Terminates an activator gracefully and restarts it; then kills it and restarts it.
    async fn slices(&mut self, figures: &mut Figures) -> anyhow::Result<()> {
        let last = self.last();
        let named = self.watched.now().led_to(last).count();
        ensure!(named > 0, "nobody is led to {last}");
        let before = self.watched.now().workload_activators();
        let goes = self.change(Some(ActivatorState::Terminating)).await?;
        self.activators.end(last);
        self.plane.publish(&self.activator_states(None)).await?;
        let comes = self.comes_back().await?;
        let after = self.watched.now().workload_activators();
        let others = before.iter().filter(|(name, led)| after.get(*name) != Some(*led)).count();
        self.activators.end(last);
        let dies = self.change(None).await?;
        self.comes_back().await?;

        let (writes, seconds) = ((goes.writes + comes.writes) as f64, goes.seconds + comes.seconds);
        figures.row("many-slices", vec![writes / named as f64]);
        figures.row("many-slices-time", vec![seconds * Rate::WITH_CONTROLLER.qps / writes]);
        figures.beside("workloads routed to the activator that ends", vec![named as f64]);
        figures.beside("workloads routed to other activators than before, after its return", vec![others as f64]);
        for (what, change) in [("ends in order", goes), ("comes back", comes), ("dies", dies)] {
            let Change { seconds, writes, misled } = change;
            figures.beside(format!("it {what}: s until all slices are right"), vec![seconds]);
            figures.beside(format!("it {what}: writes to slices"), vec![writes as f64]);
            figures.beside(
                format!("it {what}: of these, writes with an address at which no process listens"),
                vec![misled as f64],
            );
        }
        Ok(())
    }

    /// Starts the last activator again. It is published as ready before it has bound all numbers.
    async fn comes_back(&mut self) -> anyhow::Result<Change> {
        self.activators.start(self.last()).await?;
        self.change(Some(ActivatorState::Ready)).await
    }

    /// Publishes the state of the last activator, and waits until no writes follow.
    async fn change(&self, state: Option<ActivatorState>) -> anyhow::Result<Change> {
        let read = || {
            let now = self.watched.now();
            (now.writes(), now.misled())
        };
        let ((writes, misled), begin) = (read(), Instant::now());
        self.plane.publish(&self.activator_states(state)).await?;
        let is_led = state == Some(ActivatorState::Ready);
        let last = self.last();
        let right = |now: &super::watched::ClusterState| (now.led_to(last).next().is_some() == is_led).then_some(());
        self.watched.until("slices to follow", right).await?;
        let seconds = (self.watched.until_quiet(begin).await? - begin).as_secs_f64();
        let after = read();
        Ok(Change { seconds, writes: after.0 - writes, misled: after.1 - misled })
    }
}
