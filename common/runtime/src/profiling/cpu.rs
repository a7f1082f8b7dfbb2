//! CPU profiles of the process. Only with the feature `profiling`.

use std::time::Duration;

/// Samples per second and thread. Prime to the usual periods, so that none of them is hit or missed every time; Go uses
/// 100.
const FREQUENCY: i32 = 99;
/// Libraries whose frames may hold locks that unwinding needs: samples inside them are dropped.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Samples the process for `length`. Returns folded stacks. Each line has the thread and the frames from the outermost
/// inwards, separated by semicolons, then the number of samples.
///
/// # Errors
/// Fails if another profile is being taken, or if the samples cannot be read.
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
    // Looking up names in the debug information takes a while, so it must not run on a serving thread.
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
