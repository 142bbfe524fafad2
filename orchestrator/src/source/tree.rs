// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pristine source tree, and clones of it that share its files until a patch replaces them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::error::SourceError;
use crate::fs::{self, FileError, PathContext};
use crate::process::{ProcessError, Task};

/// A complete kernel source that nobody writes to.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// The same id is the same content: a commit id, the SHA-256 of an archive, or a hash over all files.
    pub(crate) id: String,
    /// Which alternative was used and which version it is, in words.
    pub(crate) origin: String,
    /// The alternatives before it, and why each was not used.
    pub(crate) passed_over: Vec<String>,
    /// A local git directory that ranges and reverts may refer to.
    pub(crate) repository: Option<PathBuf>,
}

impl Tree {
    pub(super) fn new(root: PathBuf, id: String, origin: &str, repository: Option<PathBuf>) -> Self {
        let origin = match version(&root) {
            Some(version) => format!("{origin}: Linux {version}"),
            None => origin.to_owned(),
        };
        Self { root, id, origin, passed_over: Vec::new(), repository }
    }
}

/// Makes a copy of the tree at `target`, where nothing is yet. It shares its files with the pristine tree by
/// hard links where the file system can: whoever changes a file has to replace it.
pub(crate) async fn clone_tree(tree: &Tree, target: &Path) -> Result<(), SourceError> {
    let target = super::absolute(target);
    if std::fs::symlink_metadata(&target).is_ok() {
        return Err(SourceError::Occupied { target });
    }
    if copy_tree("--link", &tree.root, &target).await.is_ok() {
        return Ok(());
    }
    // Another file system, its limit of links, or files of another owner.
    fs::remove_dir(&target)?;
    Ok(copy_tree("--reflink=auto", &tree.root, &target).await?)
}

/// Refuses what is not the top of a kernel source.
pub(super) fn check_kernel(root: &Path, origin: &str) -> Result<(), SourceError> {
    match ["Makefile", "Kbuild", "Kconfig"].into_iter().find(|name| !root.join(name).is_file()) {
        Some(missing) => Err(SourceError::NotKernel { origin: origin.to_owned(), missing }),
        None => Ok(()),
    }
}

/// Copies one file or link, with the directories above it.
pub(super) fn copy_entry(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::create_dir(fs::parent(to))?;
    match std::fs::read_link(from) {
        Ok(target) => symlink(target, to).at("make a link at", to),
        Err(_) => fs::copy(from, to),
    }
}

async fn copy_tree(how: &str, from: &Path, to: &Path) -> Result<(), ProcessError> {
    let task = Task::new("cp").args(["--archive", how, "--no-target-directory", "--"]);
    task.arg(from).arg(to).run().await.map(drop)
}

/// What the Makefile's first lines say: `6.12.1-rc2`.
fn version(root: &Path) -> Option<String> {
    let makefile = fs::read_text(&root.join("Makefile")).ok()?;
    let value = |name: &str| {
        let assignment =
            makefile.lines().take(10).find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
        assignment.unwrap_or_default().trim()
    };
    let parts = [value("VERSION"), value("PATCHLEVEL"), value("SUBLEVEL")];
    if parts[0].is_empty() {
        return None;
    }
    let numbers: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("{}{}", numbers.join("."), value("EXTRAVERSION")))
}
