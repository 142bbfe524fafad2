// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache on disk: sources, builds and kernels by the hash of all that went into them. Safe with
//! several Twinboots at once: entries appear by a rename and are locked while somebody uses them.
//!
//! ```text
//! ROOT/sources/     unpacked kernel sources, pristine                (source stage)
//! ROOT/kernels/KEY/ what a guest boots: image, config, build.json    (build stage)
//! ROOT/checkpoints/KEY/ a booted guest, saved before its trial       (run stage)
//! ROOT/builds/KEY/  trees with their objects, to start the next build from
//! ROOT/facts/       what was found out about this host
//! ROOT/locks/       one lock file for each entry
//! ```

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::fs::{self, FileError, Lock};
use crate::sys;

/// How much the cache may hold unless `TWINBOOT_CACHE_SIZE` says otherwise.
const DEFAULT_SIZE: u64 = 30 << 30;

/// The cache of this user.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// Where kernels are built: make takes no path with a space or a colon.
    work: PathBuf,
}

/// One entry that may be pruned.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) used: SystemTime,
}

impl Cache {
    /// Opens the cache at `TWINBOOT_CACHE`, else below `XDG_CACHE_HOME` or `HOME`, else (no home, or one
    /// that cannot be written) below /var/tmp.
    pub(crate) fn open() -> Result<Self, FileError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(root) = variable("TWINBOOT_CACHE") {
            return Self::at(std::path::absolute(&root).unwrap_or(root));
        }
        let home = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        match home.map(|home| Self::at(home.join("twinboot"))) {
            Some(Ok(cache)) => Ok(cache),
            _ => Self::at(private_temporary("twinboot-cache")?),
        }
    }

    /// Opens the cache at a given place.
    pub(crate) fn at(root: PathBuf) -> Result<Self, FileError> {
        for part in ["sources", "kernels", "checkpoints", "facts", "locks"] {
            fs::create_dir(&root.join(part))?;
        }
        let work = if is_plain(&root) {
            root.join("builds")
        } else {
            let name = &digest([root.as_os_str().as_encoded_bytes()])[..12];
            private_temporary(&format!("twinboot-builds-{name}"))?
        };
        fs::create_dir(&work)?;
        Ok(Self { root, work })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where sources are kept. Trees are cloned from here by hard links, so they lie beside the builds.
    pub(crate) fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Where a finished kernel is, or would be.
    pub(crate) fn kernel(&self, key: &str) -> PathBuf {
        self.root.join("kernels").join(key)
    }

    /// Where a saved guest is, or would be.
    pub(crate) fn checkpoint(&self, key: &str) -> PathBuf {
        self.root.join("checkpoints").join(key)
    }

    /// Where the tree and objects of a build are, or would be. Free of spaces and colons.
    pub(crate) fn build(&self, key: &str) -> PathBuf {
        self.work.join(key)
    }

    /// Where a build is while it is in progress; whoever holds the key's lock owns it.
    pub(crate) fn scratch(&self, key: &str) -> PathBuf {
        self.work.join(format!("new-{key}"))
    }

    /// A file for something found out about this host.
    pub(crate) fn fact(&self, name: &str) -> PathBuf {
        self.root.join("facts").join(name)
    }

    /// Waits until nobody else makes, uses or removes what has this key.
    pub(crate) async fn lock(&self, key: &str) -> Result<Lock, FileError> {
        fs::lock(&self.root.join("locks").join(key)).await
    }

    /// Keeps an entry from being pruned while it is used, and marks it as used now.
    pub(crate) async fn hold(&self, entry: &Path) -> Result<Lock, FileError> {
        let path = self.lock_path(entry);
        let lock = fs::lock_shared(&path).await?;
        fs::touch(&path)?;
        Ok(lock)
    }

    /// Every entry with its size, the longest unused first.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, FileError> {
        let mut entries = Vec::new();
        let parts = ["kernels", "checkpoints"].map(|part| self.root.join(part));
        for parent in parts.into_iter().chain([self.sources(), self.work.clone()]) {
            for path in fs::list(&parent)?.into_iter().filter(|path| path.is_dir()) {
                // What is known about sources is small and outlives them.
                if path.file_name().is_some_and(|name| name == "known") {
                    continue;
                }
                let used = std::fs::metadata(self.lock_path(&path)).or_else(|_| path.metadata());
                let used = used.and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push(Entry { bytes: disk_usage(&path), path, used });
            }
        }
        entries.sort_by_key(|entry| entry.used);
        Ok(entries)
    }

    /// Removes the longest unused entries until the rest fits; nothing that a Twinboot makes or uses now.
    /// Returns what was removed.
    pub(crate) fn prune(&self, limit: u64) -> Result<Vec<Entry>, FileError> {
        let entries = self.entries()?;
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        for entry in entries {
            if total <= limit {
                break;
            }
            let Some(_lock) = fs::try_lock(&self.lock_path(&entry.path))? else { continue };
            // Gone at once for everybody else, even if removing is cut short.
            let doomed = entry.path.with_file_name(format!(".removed-{}", std::process::id()));
            fs::remove_dir(&doomed)?;
            fs::rename(&entry.path, &doomed)?;
            fs::remove_dir(&doomed)?;
            total = total.saturating_sub(entry.bytes);
            removed.push(entry);
        }
        Ok(removed)
    }

    /// The lock file of an entry; an unfinished one has that of what it will be.
    fn lock_path(&self, entry: &Path) -> PathBuf {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let key = name.trim_start_matches("new-");
        let key = key.split(".partial").next().unwrap_or(key);
        if entry.parent() == Some(&self.sources()) {
            return self.sources().join(format!("{key}.lock"));
        }
        self.root.join("locks").join(key)
    }

    /// The limit in bytes: `TWINBOOT_CACHE_SIZE` in GiB, else the default.
    pub(crate) fn limit() -> u64 {
        let gib = std::env::var("TWINBOOT_CACHE_SIZE").ok().and_then(|value| value.parse::<u64>().ok());
        gib.map_or(DEFAULT_SIZE, |gib| gib << 30)
    }
}

/// SHA-256 over parts, each with its length, in hexadecimal.
pub(crate) fn digest<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    for part in parts {
        hash.update((part.as_ref().len() as u64).to_le_bytes());
        hash.update(part.as_ref());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes on disk below a directory. A file with several links counts for its share.
fn disk_usage(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => disk_usage(&entry.path()),
            Ok(data) => data.blocks() * 512 / data.nlink().max(1),
            Err(_) => 0,
        })
        .sum()
}

/// A directory below /var/tmp that this user alone owns and writes.
fn private_temporary(name: &str) -> Result<PathBuf, FileError> {
    let path = PathBuf::from("/var/tmp").join(format!("{name}-{}", sys::user_id()));
    fs::create_private_dir(&path)?;
    Ok(path)
}

fn is_plain(path: &Path) -> bool {
    path.to_string_lossy().chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_unused_goes_first_and_the_used_stays() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().join("c")).unwrap();
        for (age, key) in [(300, "old"), (200, "held"), (100, "new")] {
            let path = cache.kernel(key);
            fs::create_dir(&path).unwrap();
            std::fs::write(path.join("image"), vec![1; 100_000]).unwrap();
            drop(cache.hold(&path).await.unwrap());
            let used = SystemTime::now() - std::time::Duration::from_secs(age);
            let lock = std::fs::File::options().write(true).open(cache.lock_path(&path)).unwrap();
            lock.set_modified(used).unwrap();
        }
        let held = cache.hold(&cache.kernel("held")).await.unwrap();
        let removed = cache.prune(150_000).unwrap();
        drop(held);
        let names: Vec<_> = removed.iter().filter_map(|entry| entry.path.file_name()?.to_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert!(cache.kernel("held").is_dir());
    }

    #[test]
    fn an_unfinished_entry_has_the_lock_of_the_finished() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().join("c")).unwrap();
        let kernel = cache.lock_path(&cache.kernel("k"));
        assert_eq!(cache.lock_path(&cache.kernel("k.partial")), kernel);
        assert_eq!(cache.lock_path(&cache.scratch("k")), kernel);
        assert_eq!(cache.lock_path(&cache.build("k")), kernel);
        let source = cache.sources().join("s.partial-x1");
        assert_eq!(cache.lock_path(&source), cache.sources().join("s.lock"));
    }

    #[test]
    fn builds_avoid_what_make_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().join("a b,c:d")).unwrap();
        assert!(is_plain(&cache.build("key")), "{:?}", cache.build("key"));
        let _ = std::fs::remove_dir(cache.work);
    }

    #[test]
    fn digests_keep_parts_apart() {
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }
}
