// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel sources in a tar archive, on disk or to be downloaded. An archive's SHA-256 is the tree's id.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::error::SourceError;
use super::store::{self, make_once, off_thread, recall, remember, stamp};
use super::tree::Tree;
use crate::fs::{FileError, PathContext};
use crate::process::{ProcessError, Task};

/// Long enough for a slow disk or line; a stalled download ends by itself much earlier.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Unpacks an archive. A given SHA-256 is compared first.
pub(super) async fn from_path(path: &Path, sha256: Option<&str>, store: &Path) -> Result<Tree, SourceError> {
    let origin = format!("archive {}", path.display());
    if !path.is_file() {
        return Err(SourceError::Absent { what: origin, why: "no such file".to_owned() });
    }
    let id = digest(path, store).await?;
    check_digest(&origin, sha256, &id)?;
    let root = make_once(store, &id, &origin, async |tree: &Path| unpack(path, tree).await).await?;
    Ok(Tree::new(root, id, &origin, None))
}

/// Downloads an archive, unless its tree is in the store already, and verifies it before unpacking.
pub(super) async fn from_url(url: &str, sha256: Option<&str>, store: &Path) -> Result<Tree, SourceError> {
    let id = sha256.unwrap_or_default().to_ascii_lowercase();
    if id.len() != 64 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(SourceError::NoDigest { url: url.to_owned() });
    }
    let root = make_once(store, &id, url, async |tree: &Path| {
        let archive = store.join(format!("{id}.download"));
        let complete = archive.is_file() && file_digest(&archive).await? == id;
        if !complete {
            download(url, &archive).await?;
        }
        if let Err(error) = check_digest(url, Some(&id), &file_digest(&archive).await?) {
            remove_file(&archive)?;
            return Err(error);
        }
        unpack(&archive, tree).await?;
        Ok(remove_file(&archive)?)
    });
    let root = root.await?;
    Ok(Tree::new(root, id, &format!("archive {url}"), None))
}

/// Unpacks without the archive's top directory.
pub(super) async fn unpack(archive: &Path, tree: &Path) -> Result<(), SourceError> {
    let failed = |source| SourceError::Unpack { archive: archive.to_owned(), source };
    untar(archive, tree).arg("--strip-components=1").run().await.map(drop).map_err(failed)
}

/// `tar` as it has to be called: a colon in the name is no host, and the files belong to who runs this.
pub(super) fn untar(archive: &Path, tree: &Path) -> Task {
    let mut file = std::ffi::OsString::from("--file=");
    file.push(archive);
    let task =
        Task::new("tar").args(["--extract", "--force-local", "--no-same-owner", "--no-same-permissions"]);
    // xz then decompresses on all CPUs where the archive was made of several blocks.
    task.arg(file).in_dir(tree).env("XZ_DEFAULTS", "--threads=0").deadline(PATIENCE)
}

/// A file's SHA-256, remembered until the file changes.
async fn digest(path: &Path, store: &Path) -> Result<String, SourceError> {
    let resolved = path.canonicalize().at("resolve", path)?;
    let key = format!("file {} {}", resolved.display(), stamp(&resolved)?);
    if let Some(digest) = recall(store, &key) {
        return Ok(digest);
    }
    let digest = file_digest(path).await?;
    remember(store, &key, &digest)?;
    Ok(digest)
}

async fn file_digest(path: &Path) -> Result<String, FileError> {
    let path = path.to_owned();
    off_thread(move || {
        let mut file = File::open(&path).at("open", &path)?;
        let mut digest = Sha256::new();
        let mut chunk = vec![0; 1 << 20];
        loop {
            match io::Read::read(&mut file, &mut chunk).at("read", &path)? {
                0 => return Ok(store::hex(digest)),
                count => digest.update(&chunk[..count]),
            }
        }
    })
    .await
}

fn check_digest(what: &str, expected: Option<&str>, found: &str) -> Result<(), SourceError> {
    match expected {
        Some(expected) if !expected.eq_ignore_ascii_case(found) => Err(SourceError::Digest {
            what: what.to_owned(),
            expected: expected.to_ascii_lowercase(),
            found: found.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Goes on where an earlier download of the same archive stopped; starts again when the server cannot.
async fn download(url: &str, file: &Path) -> Result<(), SourceError> {
    match curl(url, file).run().await {
        Ok(_) => Ok(()),
        Err(error) if file.is_file() && cannot_resume(&error) => {
            remove_file(file)?;
            curl(url, file).run().await.map(drop).map_err(|error| download_error(url, error))
        }
        Err(error) => Err(download_error(url, error)),
    }
}

fn curl(url: &str, file: &Path) -> Task {
    let task =
        Task::new("curl").args(["--fail", "--location", "--silent", "--show-error", "--proto", "=https"]);
    let task = task.args(["--connect-timeout", "30", "--speed-limit", "1000", "--speed-time", "60"]);
    let task = task.args(["--retry", "3", "--continue-at", "-", "--output"]).arg(file);
    task.args(["--url", url]).deadline(PATIENCE)
}

/// Exit codes as curl's manual gives them: 33 and 36 speak of ranges and offsets; 22 is an HTTP error, 416
/// among them, which a server gives when the file is as long as the range's start.
fn cannot_resume(error: &ProcessError) -> bool {
    match error {
        ProcessError::Failed { status, tail, .. } => match status.code() {
            Some(33 | 36) => true,
            Some(22) => tail.contains("416"),
            _ => false,
        },
        _ => false,
    }
}

/// Puts curl's exit code into words; a program that is not installed stays what it is.
fn download_error(url: &str, error: ProcessError) -> SourceError {
    let ProcessError::Failed { status, tail, .. } = &error else { return error.into() };
    let why = match status.code() {
        Some(5 | 6) => "its host name cannot be resolved (offline, or no DNS)",
        Some(7) => "its host cannot be reached (offline, or behind a proxy that curl does not know)",
        Some(22) => "the server refuses it",
        Some(23) => return error.into(),
        Some(28) => "the server is too slow or does not answer",
        Some(35 | 51 | 58 | 60 | 77) => "the connection cannot be secured",
        Some(18 | 56) => "the connection broke off (a new attempt goes on from there)",
        _ => "curl failed",
    };
    // Each retry says the same again, and advice follows.
    let said = tail.lines().find(|line| line.starts_with("curl: (")).unwrap_or(tail.trim());
    SourceError::Download { url: url.to_owned(), why: format!("{why}: {said}") }
}

fn remove_file(path: &Path) -> Result<(), FileError> {
    std::fs::remove_file(path).at("remove", path)
}
