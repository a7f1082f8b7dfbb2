//! Lookup of a container's program.
//!
//! `command[0]` with a slash is a path, relative to the working directory. A bare name is searched for first in the
//! folder of the running executable (so that a sample of this workspace needs no path), then in the container's `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds `name`. The error lists all folders that were searched.
pub(crate) fn find(name: &str, dir: Option<&Path>, exe_dir: Option<&Path>, path: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        let candidate = match dir {
            Some(dir) => dir.join(name),
            None => std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name)),
        };
        return if is_program(&candidate) {
            Ok(candidate)
        } else {
            Err(format!("{} is not an executable file", candidate.display()))
        };
    }
    let directories = exe_dir.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    let mut searched = Vec::new();
    for directory in directories.filter(|d| !d.as_os_str().is_empty()) {
        let candidate = directory.join(name);
        if is_program(&candidate) {
            return Ok(candidate);
        }
        searched.push(directory.display().to_string());
    }
    Err(format!("program {name:?} not found in {}", searched.join(", ")))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_found_next_to_the_executable_before_path() {
        let (exe_dir, path) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let make = |dir: &Path, name: &str, mode: u32| {
            let file = dir.join(name);
            std::fs::write(&file, "").expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
            file
        };
        let (both, only_path) = (make(exe_dir.path(), "both", 0o755), make(path.path(), "only", 0o755));
        make(path.path(), "both", 0o755);
        make(exe_dir.path(), "only", 0o644); // Not executable: skipped.
        let search = |name: &str| find(name, None, Some(exe_dir.path()), &path.path().display().to_string());
        assert_eq!(search("both"), Ok(both));
        assert_eq!(search("only"), Ok(only_path));
        let error = search("absent").expect_err("nowhere");
        assert!(error.contains(&path.path().display().to_string()), "{error}");
        assert_eq!(find("./only", Some(path.path()), None, ""), Ok(path.path().join("./only")));
    }
}
