//! Documents generated from the argument definition: shell completions and manual pages.

use crate::arguments::{NAME, definition};
use anyhow::Context;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;
use std::path::Path;

/// Writes the completions of a shell. Fails if `out` cannot be written to.
pub fn completions(shell: Shell, out: &mut impl Write) -> std::io::Result<()> {
    let mut text = Vec::new(); // The generator panics if a write fails.
    clap_complete::generate(shell, &mut definition(), NAME, &mut text);
    out.write_all(&text)
}

/// Writes the manual page of a command, or of the program if it is `None`. With a folder, writes all pages there. Fails
/// if the command does not exist or a page cannot be written.
pub fn man(command: Option<&str>, out_dir: Option<&Path>, out: &mut impl Write) -> anyhow::Result<()> {
    // The pages replace `help COMMAND`.
    let mut all = definition().name(NAME).disable_help_subcommand(true);
    all.build();
    if let Some(folder) = out_dir {
        let cannot = || format!("--out-dir {}: cannot be written to", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        return clap_mangen::generate_to(all, folder).with_context(cannot);
    }
    let page = match command {
        None => &all,
        Some(name) => all.find_subcommand(name).with_context(|| format!("there is no command {name:?}"))?,
    };
    Ok(Man::new(page.clone()).render(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_completions_that_name_each_command() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            completions(*shell, &mut text).expect("written");
            let text = String::from_utf8(text).expect("text");
            for command in definition().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        man(None, Some(folder.path()), &mut std::io::sink()).expect("written");
        let pages = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(pages, definition().get_subcommands().count() + 1, "one for each, and one of the whole");
        for command in definition().get_subcommands() {
            let name = command.get_name();
            let mut page = Vec::new();
            man(Some(name), None, &mut page).expect(name);
            let page = String::from_utf8(page).expect("text");
            assert!(page.contains(&format!("kubectl\\-zeroscale\\-{name}")), "{page}");
            assert!(folder.path().join(format!("{NAME}-{name}.1")).exists(), "{name}");
        }
        let error = man(Some("wkae"), None, &mut std::io::sink()).expect_err("no such command");
        assert!(error.to_string().contains("wkae"), "{error}");
    }
}
