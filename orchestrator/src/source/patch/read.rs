// SPDX-License-Identifier: MIT OR Apache-2.0
//! From where patches are said to be to a series: tells apart by content what a path holds.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::error::{PatchError, SeriesFault};
use super::mail::{self, Mail};
use super::{Series, commit, diff, series};
use crate::config::PatchSource;
use crate::fs;

/// Names of files that are never patches, whatever is in them.
const NEVER: [&str; 5] = [".sh", ".orig", ".rej", "~", ".swp"];

/// Names of files that should hold a patch, so that one without is an error and not left out.
const ALWAYS: [&str; 3] = [".patch", ".diff", ".mbox"];

/// Reads all patches of an arm, in order. `repository` is the kernel source's, for ranges and reverts that
/// name none.
pub(crate) async fn read_patches(
    sources: &[PatchSource],
    repository: Option<&Path>,
) -> Result<Series, PatchError> {
    let mut all = Series::default();
    let mut single: Vec<Mail> = Vec::new();
    for source in sources {
        match source {
            PatchSource::Path(path) => {
                let mails = read_path(path, &mut all.notes).await?;
                if let [mail] = mails.as_slice() {
                    single.push(mail.clone());
                }
                for mail in mails {
                    all.patches.push(mail.into_patch().await?);
                }
            }
            PatchSource::Range { repository: own, range } => {
                all.patches.extend(commit::range(own.as_deref(), repository, range).await?);
            }
            PatchSource::Revert { repository: own, commit } => {
                all.patches.push(commit::revert(own.as_deref(), repository, commit).await?);
            }
        }
    }
    let named = |mail: &Mail| mail.origin.display().to_string();
    series::check_each_complete(&single).map_err(|fault| PatchError::Series {
        origin: single.iter().map(named).collect::<Vec<_>>().join(", "),
        fault,
    })?;
    Ok(all)
}

/// The patches of one path. A single file's place in its series is checked with the other single files.
async fn read_path(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Mail>, PatchError> {
    let is_directory = path.is_dir();
    let mails = if is_directory { read_directory(path, notes).await? } else { read_file(path).await? };
    let is_single = !is_directory && mails.len() == 1;
    let is_cover = !mails.is_empty() && mails.iter().all(|mail| !mail.has_diff());
    let is_reply = mails.iter().any(|mail| mail.tag.is_reply && mail.has_diff());
    let patches = series::select(mails, notes);
    if patches.is_empty() {
        let why = match () {
            () if is_cover => "there are only mails without a diff (a cover letter?)",
            () if is_reply => "there are only replies",
            () => "it holds neither a mail nor a diff",
        };
        return Err(PatchError::NoPatch { path: path.to_owned(), why });
    }
    if is_single {
        return Ok(patches);
    }
    let fault = |fault: SeriesFault| PatchError::Series { origin: path.display().to_string(), fault };
    series::arrange(patches, notes).map_err(fault)
}

async fn read_directory(path: &Path, notes: &mut Vec<String>) -> Result<Vec<Mail>, PatchError> {
    let mut mails = Vec::new();
    for file in fs::list(path)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if !file.is_file() || name.starts_with('.') || ends(&NEVER) {
            notes.push(format!("left out what is no patch: {}", file.display()));
            continue;
        }
        match read_file(&file).await {
            Ok(read) => mails.extend(read),
            Err(PatchError::NoPatch { .. }) if !ends(&ALWAYS) => {
                notes.push(format!("left out what is no patch: {}", file.display()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(mails)
}

/// The mails of one file, at least one.
async fn read_file(path: &Path) -> Result<Vec<Mail>, PatchError> {
    let content = decompressed(fs::read(path)?, path)?;
    let none = |why| PatchError::NoPatch { path: path.to_owned(), why };
    if content.iter().all(u8::is_ascii_whitespace) {
        return Err(none("it is empty"));
    }
    if content.starts_with(b"From ") || is_mail(&content) {
        return mail::read(&content, path).await;
    }
    if diff::parse(&content).is_empty() {
        return Err(none("it holds neither a mail nor a diff"));
    }
    Ok(vec![Mail::bare(&content, path)])
}

/// The bytes behind gzip, where they are.
fn decompressed(content: Vec<u8>, path: &Path) -> Result<Vec<u8>, PatchError> {
    if !content.starts_with(&[0x1f, 0x8b]) {
        return Ok(content);
    }
    let mut plain = Vec::new();
    let failed = |source| PatchError::Compressed { path: PathBuf::from(path), source };
    MultiGzDecoder::new(content.as_slice()).read_to_end(&mut plain).map_err(failed)?;
    Ok(plain)
}

/// Whether it begins with header lines, one of which only mails have.
fn is_mail(content: &[u8]) -> bool {
    let mut has_mark = false;
    for line in diff::lines(content) {
        let line = String::from_utf8_lossy(line);
        if line.trim_end().is_empty() {
            break;
        }
        let is_continuation = line.starts_with([' ', '\t']);
        let name = line.split_once(':').map_or("", |(name, _)| name);
        let is_header = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_header && !is_continuation {
            return false;
        }
        has_mark |= name.eq_ignore_ascii_case("from") || name.eq_ignore_ascii_case("subject");
    }
    has_mark
}
