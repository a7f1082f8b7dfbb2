//! Pages in a real browser, with `local up` as a user runs it.
//!
//! If `E2E_SCREENSHOTS` is set, the pictures of the manual are regenerated.

mod dashboard;
mod waking;

use anyhow::Context;
use e2e::browser::Tab;
use std::path::PathBuf;

/// Checks that nothing of a page was loaded from elsewhere, and that its console is empty.
fn check_page(tab: &Tab, own: &str) {
    assert!(tab.requested_urls().iter().all(|url| url.starts_with(own)), "{:?}", tab.requested_urls());
    assert_eq!(tab.errors(), Vec::<String>::new());
}

/// Checks a picture of the manual, or regenerates it if requested.
fn picture(name: &str, png: &[u8], bytes_max: usize) -> anyhow::Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("E2E_SCREENSHOTS").is_some() {
        std::fs::write(&path, png)?;
    }
    let stored = std::fs::read(&path).with_context(|| format!("{name}: E2E_SCREENSHOTS=1 makes it"))?;
    assert!(stored.starts_with(b"\x89PNG") && stored.len() <= bytes_max, "{name} has {} bytes", stored.len());
    assert!(png.len() <= bytes_max, "{name} would have {} bytes", png.len());
    Ok(())
}
