//! Pages in a real browser, before `local up` as a user runs it.
//!
//! With `E2E_SCREENSHOTS` set, the pictures of the manual are made anew.

mod dashboard;
mod waking;

use anyhow::Context;
use std::path::PathBuf;

/// Whether a picture of the manual is as it should be; made anew if that is asked for.
fn picture(name: &str, png: &[u8], bytes_max: usize) -> anyhow::Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("E2E_SCREENSHOTS").is_some() {
        std::fs::write(&path, png)?;
    }
    let kept = std::fs::read(&path).with_context(|| format!("{name}: E2E_SCREENSHOTS=1 makes it"))?;
    assert!(kept.starts_with(b"\x89PNG") && kept.len() <= bytes_max, "{name} has {} bytes", kept.len());
    assert!(png.len() <= bytes_max, "{name} would have {} bytes", png.len());
    Ok(())
}
