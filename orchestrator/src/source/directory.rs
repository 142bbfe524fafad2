// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel sources in a plain directory, which is used as it is: uncommitted changes belong to it, build
//! products, its `.config` and editors' leftovers do not.
//!
//! What is a product, the kernel's own `.gitignore` files know best, for each directory: a stale header
//! beside a source would be preferred to the one that a build makes. git reads them; the index adds what is
//! tracked all the same.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::SourceError;
use super::git::{git_dir, git_in};
use super::store::{self, make_once, off_thread, recall, remember, stamp};
use super::tree::{self, Tree, copy_entry};
use crate::fs::{self, FileError, PathContext};
use crate::process::Task;

/// Copies the directory's sources. Their id is a hash over names, modes and content, remembered until a file
/// changes.
pub(super) async fn acquire(path: &Path, store: &Path) -> Result<Tree, SourceError> {
    let origin = format!("directory {}", path.display());
    if !path.is_dir() {
        return Err(SourceError::Absent { what: origin, why: "no such directory".to_owned() });
    }
    tree::check_kernel(path, &origin)?;
    let files = sources(path).await?;
    let count = files.len();
    let key = fingerprint(path, &files).await?;
    let id = match recall(store, &key) {
        Some(id) => id,
        None => {
            let id = content_id(path, &files).await?;
            remember(store, &key, &id)?;
            id
        }
    };
    let root = make_once(store, &id, &origin, async |tree: &Path| {
        copy(path, tree, &files).await?;
        if content_id(tree, &files).await? != id {
            return Err(SourceError::Changed { directory: path.to_owned() });
        }
        Ok(())
    });
    let root = root.await?;
    let origin = format!("{origin} as it is ({count} files; build products and .config left out)");
    Ok(Tree::new(root, id, &origin, git_dir(path)))
}

/// The files and links that belong to the source, sorted.
async fn sources(root: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let list = async |repository: &Path, tracked: &[&str]| {
        let task = git_in(repository).env("GIT_WORK_TREE", root).in_dir(root);
        let task = task.args(["ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]);
        // The top directory's entries are judged below: packagers ignore all of them there.
        let task = task.args(["--exclude=!/*", "--exclude=!.gitignore", "--exclude=!.kunitconfig"]);
        task.args(tracked).run().await
    };
    let listed = match git_dir(root) {
        Some(repository) => list(&repository, &["--cached"]).await?,
        None => {
            let directory = std::env::temp_dir();
            let empty = tempfile::tempdir().at("create a temporary directory in", &directory)?;
            let init = Task::new("git").args(["init", "--quiet", "--bare", "--template="]);
            init.arg(empty.path()).run().await?;
            list(empty.path(), &[]).await?
        }
    };
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut files: Vec<PathBuf> = names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
    files.retain(|file| is_source(file) && is_file_or_link(&root.join(file)));
    files.sort();
    files.dedup();
    Ok(files)
}

/// What a build or an editor leaves behind, whether or not a `.gitignore` knows it.
fn is_source(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let parts: Vec<_> = file.iter().map(OsStr::to_string_lossy).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    if ends(&["~", ".orig", ".rej", ".swp", ".o", ".ko", ".a"]) || (name.starts_with('.') && ends(&[".cmd"]))
    {
        return false;
    }
    match parts.as_slice() {
        [_] => {
            !begins(&[".config", ".version", ".tmp_", ".vmlinux", "vmlinux", "System.map", "cscope."])
                && !begins(&["Module.symvers", "modules.order", "modules.builtin"])
        }
        [".git", ..] | ["include", "config" | "generated", ..] => false,
        ["arch", _, "include", "generated", ..] => false,
        _ => true,
    }
}

fn is_file_or_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_symlink())
}

/// Changes whenever one of the files does.
async fn fingerprint(root: &Path, files: &[PathBuf]) -> Result<String, FileError> {
    let (root, files) = (root.to_owned(), files.to_owned());
    off_thread(move || {
        let mut digest = Sha256::new();
        for file in &files {
            digest.update(file.as_os_str().as_bytes());
            digest.update(stamp(&root.join(file))?);
            digest.update([0]);
        }
        Ok(format!("directory {} {}", root.display(), store::hex(digest)))
    })
    .await
}

/// Over names, kinds, executable bits and content; each with its length, so that nothing can shift.
async fn content_id(root: &Path, files: &[PathBuf]) -> Result<String, FileError> {
    let (root, files) = (root.to_owned(), files.to_owned());
    off_thread(move || {
        let mut digest = Sha256::new();
        for file in &files {
            let path = root.join(file);
            let meta = std::fs::symlink_metadata(&path).at("look at", &path)?;
            let (kind, content) = if meta.is_symlink() {
                let target = std::fs::read_link(&path).at("read", &path)?;
                (b'l', target.into_os_string().into_encoded_bytes())
            } else {
                let executable = meta.permissions().mode() & 0o100 != 0;
                (if executable { b'x' } else { b'f' }, fs::read(&path)?)
            };
            let name = file.as_os_str().as_bytes();
            digest.update([kind]);
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(&content);
        }
        Ok(store::hex(digest))
    })
    .await
}

/// The standard library's copy shares blocks where the file system can.
async fn copy(from: &Path, to: &Path, files: &[PathBuf]) -> Result<(), FileError> {
    let (from, to, files) = (from.to_owned(), to.to_owned(), files.to_owned());
    off_thread(move || {
        for file in &files {
            copy_entry(&from.join(file), &to.join(file))?;
        }
        Ok(())
    })
    .await
}
