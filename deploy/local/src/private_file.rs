//! Files with secrets: readable only by their owner, and written in one step.

use anyhow::Context;
use std::io::Write as _;
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes `text` to the file at `path` in one step. If that fails, an existing file stays unchanged. Fails if the file
/// or its temporary file cannot be written: no permission or no space.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = NamedTempFile::new_in(folder).and_then(|mut draft| {
        draft.write_all(text.as_bytes())?;
        Ok(draft.persist(path)?)
    });
    written.map(drop).with_context(|| format!("cannot write {}", path.display()))
}
