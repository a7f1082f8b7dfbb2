//! Large bodies, downloaded and uploaded, one at a time and many at once: bytes per second, and CPU time per MiB,
//! relative to HAProxy. Client, proxy and backend share all cores.

use super::interleaved::{self, ratio, series_named};
use crate::load::bodies::{self, Bodies, Direction};
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;

const SMALL: u64 = 1 << 20;
const LARGE: u64 = 1 << 30;
const MANY: usize = 64;

const fn rate(name: &'static str, what: &'static str) -> Row {
    // The bounds are the inverse of those for CPU time.
    Row::at_least(name, what, "", 0.91, 1.0)
}

const fn cpu(name: &'static str) -> Row {
    Row::at_most(name, "CPU per MiB of a body ÷ HAProxy's", "", 1.1, 1.0)
}

/// Loads, each with the description of its first row.
const LOADS: [(Direction, u64, usize, &str); 8] = [
    (Direction::Down, SMALL, 1, "bytes/s of bodies of 1 MiB that come down ÷ HAProxy's"),
    (Direction::Down, SMALL, MANY, "the same, 64 at once"),
    (Direction::Down, LARGE, 1, "bytes/s of a body of 1 GiB that comes down ÷ HAProxy's"),
    (Direction::Down, LARGE, MANY, "the same, 64 at once"),
    (Direction::Up, SMALL, 1, "bytes/s of bodies of 1 MiB that go up ÷ HAProxy's"),
    (Direction::Up, SMALL, MANY, "the same, 64 at once"),
    (Direction::Up, LARGE, 1, "bytes/s of a body of 1 GiB that goes up ÷ HAProxy's"),
    (Direction::Up, LARGE, MANY, "the same, 64 at once"),
];

/// Names of the two rows of each load.
type Names = [[&'static str; 2]; 8];

const HTTP1_NAMES: Names = [
    ["body-http1-down-1m-1", "body-http1-down-1m-1-cpu"],
    ["body-http1-down-1m-64", "body-http1-down-1m-64-cpu"],
    ["body-http1-down-1g-1", "body-http1-down-1g-1-cpu"],
    ["body-http1-down-1g-64", "body-http1-down-1g-64-cpu"],
    ["body-http1-up-1m-1", "body-http1-up-1m-1-cpu"],
    ["body-http1-up-1m-64", "body-http1-up-1m-64-cpu"],
    ["body-http1-up-1g-1", "body-http1-up-1g-1-cpu"],
    ["body-http1-up-1g-64", "body-http1-up-1g-64-cpu"],
];

const H2C_NAMES: Names = [
    ["body-h2c-down-1m-1", "body-h2c-down-1m-1-cpu"],
    ["body-h2c-down-1m-64", "body-h2c-down-1m-64-cpu"],
    ["body-h2c-down-1g-1", "body-h2c-down-1g-1-cpu"],
    ["body-h2c-down-1g-64", "body-h2c-down-1g-64-cpu"],
    ["body-h2c-up-1m-1", "body-h2c-up-1m-1-cpu"],
    ["body-h2c-up-1m-64", "body-h2c-up-1m-64-cpu"],
    ["body-h2c-up-1g-1", "body-h2c-up-1g-1-cpu"],
    ["body-h2c-up-1g-64", "body-h2c-up-1g-64-cpu"],
];

/// Returns two rows for each load.
const fn rows(names: &Names) -> [Row; 16] {
    let mut rows = [const { cpu("") }; 16];
    let mut n = 0;
    while n < LOADS.len() {
        rows[2 * n] = rate(names[n][0], LOADS[n].3);
        rows[2 * n + 1] = cpu(names[n][1]);
        n += 1;
    }
    rows
}

const HTTP1_ROWS: [Row; 16] = rows(&HTTP1_NAMES);
const H2C_ROWS: [Row; 16] = rows(&H2C_NAMES);

pub(super) const HTTP1: Measurement =
    Measurement { rows: &HTTP1_ROWS, run: |settings| run(settings, Protocol::Http1, &HTTP1_NAMES).boxed_local() };

pub(super) const H2C: Measurement =
    Measurement { rows: &H2C_ROWS, run: |settings| run(settings, Protocol::H2c, &H2C_NAMES).boxed_local() };

async fn run(settings: &Settings, protocol: Protocol, names: &Names) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["body-backend"])?;
    let targets = [Target::haproxy(protocol, backend).await?, Target::activator(settings, protocol, backend).await?];
    let (host, folder) = (Target::host(), tempfile::tempdir()?);
    let mut figures = Figures::default();
    for ((direction, size, number, _), [of_rate, of_cpu]) in LOADS.into_iter().zip(names) {
        let bodies = Bodies { protocol, direction, size, number };
        // A sparse file of zeros, which takes no space.
        let file = folder.path().join(size.to_string());
        std::fs::File::create(&file)?.set_len(size)?;
        let load =
            async |target: &Target| bodies::run(bodies, target.address, &host, (backend, &file), settings.span).await;
        let all = interleaved::run(settings, &targets, load).await?;
        let (ours, haproxy) = (series_named(&all, "activator")?, series_named(&all, "haproxy")?);
        figures.row(of_rate, ratio(&ours.rate, &haproxy.rate));
        figures.row(of_cpu, ratio(&ours.cpu, &haproxy.cpu));
        let case = format!("{} {}, {number} at once", if size == SMALL { "1 MiB" } else { "1 GiB" }, direction.name());
        let (cpu, rate) = (format!("µs of CPU for a MiB ({case})"), format!("MiB/s ({case})"));
        interleaved::add_context_as(&mut figures, &all, &cpu, &rate);
    }
    Ok(figures)
}
