//! `import` from files, and to a text.

use super::{import, render};
use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes what becomes of all documents of `files`.
///
/// # Errors
/// One cannot be read or is not known; or `out` cannot be written to.
pub fn run(files: &[PathBuf], out: &mut impl Write) -> anyhow::Result<()> {
    let files = files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(out.write_all(render(&import(&files)?)?.as_bytes())?)
}

/// A file's name and text.
fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let name = file.display().to_string();
    Ok((name.clone(), text.with_context(|| format!("{name} cannot be read"))?))
}
