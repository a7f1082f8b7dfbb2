//! Files with secrets: readable only by their owner, and written in one step.

use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes `text` to the file at `path` in one step. If that fails, an existing file stays unchanged.
///
/// # Errors
/// Fails if the file or its temporary file cannot be written: no permission or no space.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = Path::new(&draft);
    let _ = std::fs::remove_file(draft); // Usually there is none.
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft).and_then(|mut file: File| {
        file.write_all(text.as_bytes())?;
        std::fs::rename(draft, path)
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(draft)))
        .with_context(|| format!("cannot write {}", path.display()))
}
