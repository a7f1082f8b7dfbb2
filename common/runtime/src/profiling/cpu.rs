//! Takes CPU profiles of the process. Only with the feature `profiling`.

use std::time::Duration;

/// Samples a second and thread. Prime to the usual periods, so that none is hit or missed every time; Go's is 100.
const FREQUENCY: i32 = 99;
/// Libraries whose frames may hold locks that unwinding takes: samples inside them are left out.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Samples the process for so long. Returns folded stacks: a line for each, its thread and frames from the outermost
/// inwards, separated by semicolons, then how many samples have found it.
///
/// # Errors
/// Another profile is being taken, or the samples cannot be read.
///
/// # Cancel safety
/// Dropping the future ends the sampling.
pub(super) async fn profile(length: Duration) -> Result<String, String> {
    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&BLOCKED)
        .build()
        .map_err(|error| format!("a profile cannot be taken: {error}"))?;
    tokio::time::sleep(length).await;
    // Names are looked up in the program's debug information, which takes a while: not on a thread that serves.
    let task = tokio::task::spawn_blocking(move || {
        let report = guard.report().build().map_err(|error| format!("the profile cannot be read: {error}"))?;
        drop(guard);
        Ok(folded(&report))
    });
    task.await.map_err(|error| format!("the profile cannot be read: {error}"))?
}

fn folded(report: &pprof::Report) -> String {
    let line = |(frames, count): (&pprof::Frames, &isize)| {
        let symbols = frames.frames.iter().rev().flat_map(|inlined| inlined.iter().rev());
        let names: Vec<String> = symbols.map(|symbol| symbol.name().replace(';', ":")).collect();
        format!("{};{} {count}\n", frames.thread_name_or_id(), names.join(";"))
    };
    report.data.iter().map(line).collect()
}
