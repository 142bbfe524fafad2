// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store: finished trees under their content's id, made once however many Twinboots want them.
//!
//! A tree is filled under `<id>.partial-*` while `<id>.lock` is held, then renamed to `<id>`. `known/` holds
//! what was once found out about a file or a directory and stays true until that changes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::SourceError;
use super::tree;
use crate::fs::{self, FileError, PathContext};
use crate::sys;

/// What an unpacked kernel source takes, with a margin.
const TREE_BYTES: u64 = 2 << 30;

/// Gives the tree `id` of the store; when it is not there yet, `fill` is called once with an empty directory,
/// beside which it may put what it needs for a while. `origin` names the source in an error.
pub(super) async fn make_once(
    store: &Path,
    id: &str,
    origin: &str,
    fill: impl AsyncFnOnce(&Path) -> Result<(), SourceError>,
) -> Result<PathBuf, SourceError> {
    let finished = store.join(id);
    if finished.is_dir() {
        return Ok(finished);
    }
    fs::create_dir(store)?;
    let _lock = fs::lock(&store.join(format!("{id}.lock"))).await?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let prefix = format!("{id}.partial-");
    remove_leftovers(store, &prefix)?;
    ensure_space(store)?;
    let partial = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(store)
        .at("create a temporary directory in", store)?;
    let tree = partial.path().join("tree");
    fs::create_dir(&tree)?;
    fill(&tree).await?;
    tree::check_kernel(&tree, origin)?;
    fs::publish_dir(&tree, &finished)?;
    Ok(finished)
}

/// What was remembered under this key.
pub(super) fn recall(store: &Path, key: &str) -> Option<String> {
    fs::read_text(&known(store, key)).ok()
}

/// Remembers a value under a key that changes whenever the value may.
pub(super) fn remember(store: &Path, key: &str, value: &str) -> Result<(), FileError> {
    let file = known(store, key);
    fs::create_dir(fs::parent(&file))?;
    fs::write_atomic(&file, value.as_bytes())
}

/// Changes whenever the file behind `path` is replaced or written to: the change time cannot be set back.
pub(super) fn stamp(path: &Path) -> Result<String, FileError> {
    let meta = std::fs::symlink_metadata(path).at("look at", path)?;
    Ok(format!(
        "{}:{} {:o} {} {}.{} {}.{}",
        meta.dev(),
        meta.ino(),
        meta.mode(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec()
    ))
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

/// The finished digest in hexadecimal.
pub(super) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs work that keeps a CPU or the disk busy beside the runtime, so that it stays responsive.
pub(super) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A killed Twinboot leaves these behind; whoever holds the lock knows that nobody is at work on them.
fn remove_leftovers(store: &Path, prefix: &str) -> Result<(), FileError> {
    for path in fs::list(store)? {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            fs::remove_dir(&path)?;
        }
    }
    Ok(())
}

fn ensure_space(store: &Path) -> Result<(), SourceError> {
    let free = sys::free_bytes(store).at("ask for the free space of", store)?;
    if free < TREE_BYTES {
        return Err(SourceError::NoSpace { store: store.to_owned(), free, needed: TREE_BYTES });
    }
    Ok(())
}

fn known(store: &Path, key: &str) -> PathBuf {
    store.join("known").join(sha256(key.as_bytes()))
}
