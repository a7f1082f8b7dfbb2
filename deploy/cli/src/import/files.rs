//! Command `import`: reads files and writes the translated manifests.

use super::{import, render};
use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Translates all documents of `files` and writes the result.
///
/// # Errors
/// Fails if a file cannot be read, if no object could be made of any document, or if `out` cannot be written to.
pub fn run(files: &[PathBuf], out: &mut impl Write) -> anyhow::Result<()> {
    let files = files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let all = import(&files)?;
    out.write_all(render(&all)?.as_bytes())?;
    out.flush()?;
    let notes: usize = all.iter().map(|imported| imported.notes.len()).sum();
    if notes > 0 {
        eprintln!(
            "{notes} notes about fields that have no equivalent or need attention: see the comments in the output"
        );
    }
    let made = all.is_empty() || all.iter().any(|imported| !imported.objects.is_empty());
    anyhow::ensure!(made, "nothing was translated: the comments in the output say why");
    Ok(())
}

/// Reads a file, and returns its name and text.
fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let name = file.display().to_string();
    Ok((name.clone(), text.with_context(|| format!("{name} cannot be read"))?))
}
