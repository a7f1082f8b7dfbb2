//! The `top` command: workloads by load, redrawn every two seconds by default. Prints the table once if standard output
//! is not a terminal.

use crate::cluster::ClusterArgs;
use crate::gather::Sources;
use crate::model::Summary;
use crate::status::list::{TableLayout, table};
use crate::text::{self, Colours, width};
use clap::{Args, ValueEnum};
use common::text::printable_line;
use crossterm::{cursor, queue, terminal};
use k8s_openapi::jiff::Timestamp;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Show workloads of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Sort order.
    #[arg(long, value_enum, default_value = "requests")]
    pub sort: Sort,
    /// Seconds between refreshes.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,
}

/// Sort order of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Requests per second.
    Requests,
    /// Requests waiting for a pod.
    Held,
    /// Requests in flight.
    Concurrency,
    /// Pods.
    Pods,
    /// Namespace and name.
    Name,
}

/// Shows the workloads until Ctrl-C. Fails if no source can be reached at the start, or if `out` is closed.
pub async fn run(place: &ClusterArgs, args: &TopArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let sources = Sources::find(place).await;
    let namespace = sources.namespace(place);
    let scope = (!args.all_namespaces).then_some(namespace.as_str());
    let mut warnings = Vec::new();
    let listing = sources.list(scope, &mut |text| warnings.push(text)).await?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut workloads = Ok(listing.workloads);
    if !is_terminal {
        warnings.iter().for_each(|warning| text::warn(warning));
        return Ok(out.write_all(render(workloads?, args, &warnings, None).as_bytes())?);
    }
    let _screen = Screen::enter(out)?;
    let end = tokio::signal::ctrl_c();
    tokio::pin!(end);
    loop {
        let size = terminal::size().ok();
        let text = match workloads {
            Ok(workloads) => render(workloads, args, &warnings, size),
            Err(error) => format!("{}\n", printable_line(&format!("{error:#}"))),
        };
        queue!(out, cursor::MoveTo(0, 0), terminal::Clear(terminal::ClearType::FromCursorDown))?;
        out.write_all(text.as_bytes())?;
        out.flush()?;
        let waited = unless_ended(&mut end, tokio::time::sleep(Duration::from_secs(args.every))).await;
        if waited.is_none() {
            return Ok(());
        }
        warnings.clear();
        let listed = unless_ended(&mut end, sources.list(scope, &mut |text| warnings.push(text))).await;
        let Some(listed) = listed else { return Ok(()) };
        workloads = listed.map(|listing| listing.workloads);
    }
}

/// Returns the output of `work`, or `None` if `end` completes first.
async fn unless_ended<T>(end: &mut (impl Future + Unpin), work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        _ = end => None,
        done = work => Some(done),
    }
}

/// Formats the workloads for a screen with this many columns and lines. Without a size, formats all of them.
fn render(mut workloads: Vec<Summary>, args: &TopArgs, warnings: &[String], size: Option<(u16, u16)>) -> String {
    let total = workloads.len();
    let awake = workloads.iter().filter(|workload| workload.pods.ready > 0).count();
    let requests: f64 = workloads.iter().filter_map(|workload| workload.requests_per_second).sum();
    let held: f64 = workloads.iter().filter_map(|workload| workload.held).sum();
    sort(&mut workloads, args.sort);
    let mut text = String::new();
    if let Some((_, lines)) = size {
        text = format!(
            "{total} workloads, {awake} awake, {requests:.0} requests per second, {held:.0} held; press Ctrl-C to quit\n"
        );
        text.extend(warnings.iter().map(|warning| format!("warning: {warning}\n")));
        text.push('\n');
        let used = text.lines().count() + 2; // Table head and cursor line.
        workloads.truncate(usize::from(lines).saturating_sub(used));
    }
    let layout = TableLayout {
        wide: false,
        namespaces: args.all_namespaces,
        heads: true,
        now: Timestamp::now(),
        colours: Colours::of_output(),
        width: size.map(|(columns, _)| usize::from(columns)).or_else(width),
    };
    text + &table(&workloads, &layout)
}

fn sort(workloads: &mut [Summary], by: Sort) {
    let load = |workload: &Summary| match by {
        Sort::Requests => workload.requests_per_second.unwrap_or(0.0),
        Sort::Held => workload.held.unwrap_or(0.0),
        Sort::Concurrency => workload.concurrency.unwrap_or(0.0),
        Sort::Pods => workload.pods.actual as f64,
        Sort::Name => 0.0,
    };
    workloads.sort_by(|a, b| load(b).total_cmp(&load(a)).then_with(|| a.key().cmp(&b.key())));
}

/// Alternate screen of the terminal. Dropping it restores the former screen.
struct Screen;

impl Screen {
    fn enter(out: &mut impl Write) -> std::io::Result<Self> {
        queue!(out, terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may be gone.
        let mut out = std::io::stdout();
        let _ = queue!(out, cursor::Show, terminal::LeaveAlternateScreen).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pods;

    /// Goal: Ctrl-C ends the command at once, even if an API server or a dashboard responds slowly.
    #[tokio::test]
    async fn ctrl_c_interrupts_a_pending_read() {
        let mut interrupted = std::future::ready(());
        assert_eq!(unless_ended(&mut interrupted, std::future::pending::<()>()).await, None);
        let mut not_interrupted = std::future::pending::<()>();
        assert_eq!(unless_ended(&mut not_interrupted, std::future::ready(7)).await, Some(7));
    }

    #[test]
    fn workloads_are_sorted_and_cut_to_the_screen() {
        let workload = |name: &str, requests, held, pods| Summary {
            name: name.to_owned(),
            requests_per_second: requests,
            held: Some(held),
            pods: Pods { ready: pods, actual: pods, desired: None },
            ..Summary::default()
        };
        let all = vec![workload("b", Some(1.0), 0.0, 4), workload("a", Some(1.0), 9.0, 0), workload("c", None, 0.0, 1)];
        for (by, expected) in [(Sort::Requests, "abc"), (Sort::Held, "abc"), (Sort::Pods, "bca"), (Sort::Name, "abc")] {
            let mut sorted = all.clone();
            sort(&mut sorted, by);
            let names: String = sorted.iter().map(|workload| workload.name.as_str()).collect();
            assert_eq!(names, expected, "{by:?}");
        }
        let args = TopArgs { all_namespaces: false, sort: Sort::Name, every: 2 };
        let text = render(all.clone(), &args, &[], Some((80, 5)));
        assert!(text.starts_with("3 workloads, 2 awake, 2 requests per second, 9 held"), "{text}");
        assert_eq!(text.lines().count(), 4, "a line is left for the cursor: {text}");
        assert_eq!(render(all, &args, &[], None).lines().count(), 4, "heads and all of them");
    }
}
