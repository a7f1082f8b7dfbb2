//! A full disk under `local up`.

use crate::process::{Local, eventually};
use crate::up::{get, sleeper, write};
use rustix::process::Signal;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// Writes a file until its disk is full.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// Goal: on a full disk no program starts whose output would be lost, the terminal reports the problem and its remedy,
/// and a held request is served once there is space again. Method: a small separate disk (needs root), filled while the
/// workload sleeps.
#[tokio::test]
async fn a_full_disk_is_reported_and_starts_resume_once_there_is_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = write(&folder, "hello.yaml", &sleeper("hello"));
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let mut local = Local::up_on_disk(&disk, "4m", &manifest);
    let ingress = local.ready().await.ingress.expect("an ingress");
    // The disk is mounted only for that process.
    let filler = format!("/proc/{}/root{}/filler", local.pid(), disk.display());
    fill(Path::new(&filler));

    let waiting = tokio::spawn(async move { get(ingress, "hello.default").await });
    local.line_with(&["fault ", "no space is left at", "free some"]).await;
    std::fs::remove_file(&filler).expect("removed");
    let _ = waiting.await.expect("no panic"); // It may have timed out.
    eventually("an answer", async || {
        get(ingress, "hello.default").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
    local.signal(Signal::TERM);
    assert_eq!(local.ended(Duration::from_secs(30)).await.code(), Some(0));
}
