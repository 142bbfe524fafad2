// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place that touches files: every error carries its path, and what others may read is written
//! under a temporary name and renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub(crate) struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Whether there was no such file.
    pub(crate) fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Adds what was done, and to which path, to an [`io::Error`].
pub(crate) trait PathContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> PathContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source })
    }
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).at("read", path)
}

/// Reads a whole file as UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).at("read", path)
}

/// Makes a directory and those above it.
pub(crate) fn create_dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).at("create directory", path)
}

/// Makes a directory that only this user can enter, in a place where others may write: one that somebody
/// else made first is refused.
pub(crate) fn create_private_dir(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result.at("create directory", path),
    }
    let data = fs::symlink_metadata(path).at("look at", path)?;
    if data.is_dir() && data.uid() == crate::sys::user_id() && data.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is there already and not ours alone"))
        .at("use directory", path)
}

/// The entries of a directory, sorted by name.
pub(crate) fn list(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = fs::read_dir(path).at("list", path)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .at("list", path)?;
    paths.sort();
    Ok(paths)
}

/// Writes a file so that a reader sees the old content or the whole new one, even after a crash.
pub(crate) fn write_atomic(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let directory = parent(path);
    let mut temporary = tempfile::Builder::new()
        .prefix(".twinboot-")
        .tempfile_in(directory)
        .at("create a temporary file in", directory)?;
    temporary.write_all(content).at("write", path)?;
    temporary.as_file().sync_data().at("write", path)?;
    set_readable(temporary.as_file()).at("set the mode of", path)?;
    temporary.persist(path).map_err(|error| error.error).at("rename a temporary file to", path)?;
    Ok(())
}

/// Renames a finished directory to its final name. Another process may have been first with the same
/// content, which is as good.
pub(crate) fn publish_dir(finished: &Path, target: &Path) -> Result<(), FileError> {
    match fs::rename(finished, target) {
        Err(_) if target.is_dir() => remove_dir(finished),
        result => result.at("rename a finished directory to", target),
    }
}

/// Removes a directory and all that is in it; it may be missing.
pub(crate) fn remove_dir(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.at("remove", path),
    }
}

/// Renames a file or a directory.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).at("rename to", to)
}

/// Copies one file.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::copy(from, to).map(drop).at("copy to", to)
}

/// An open file that no other Twinboot holds a lock on. The lock ends with the value, or the process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

/// Waits until this process alone holds the lock file, without blocking the runtime, so that an interrupt
/// ends the wait.
pub(crate) async fn lock(path: &Path) -> Result<Lock, FileError> {
    loop {
        if let Some(lock) = try_lock(path)? {
            return Ok(lock);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Waits until nobody holds the lock file alone, then shares it.
pub(crate) async fn lock_shared(path: &Path) -> Result<Lock, FileError> {
    let file = open_lock(path)?;
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(Lock(file)),
            Err(fs::TryLockError::WouldBlock) => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(fs::TryLockError::Error(error)) => return Err(error).at("lock", path),
        }
    }
}

/// Sets a file's time of change to now, and makes it if it is missing.
pub(crate) fn touch(path: &Path) -> Result<(), FileError> {
    open_lock(path)?.set_modified(std::time::SystemTime::now()).at("set the time of", path)
}

/// Takes the lock if nobody holds it.
pub(crate) fn try_lock(path: &Path) -> Result<Option<Lock>, FileError> {
    let file = open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error).at("lock", path),
    }
}

/// The directory that holds `path`; the current one for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn open_lock(path: &Path) -> Result<File, FileError> {
    File::options().create(true).truncate(false).write(true).open(path).at("open", path)
}

/// Temporary files are private; what they become follows the usual mode.
fn set_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}
