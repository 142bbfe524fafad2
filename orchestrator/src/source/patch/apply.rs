// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies a series with `git apply`: strictly, the whole series on trial first, and with words for why one
//! does not fit. git replaces files and never writes through them, which clones by hard links rely on.

use std::path::{Component, Path};

use super::diff::{self, FileDiff, Hunk};
use super::error::{Misfit, PatchError};
use super::{AppliedPatch, Patch};
use crate::fs::{self, PathContext};
use crate::process::ProcessError;
use crate::source::git::git;
use crate::source::tree::copy_entry;

/// How many lines an excerpt has at most.
const EXCERPT: usize = 5;

/// Whether the patches fit, without writing to the tree.
pub(crate) async fn check(patches: &[Patch], tree: &Path) -> Result<(), PatchError> {
    let tree = crate::source::absolute(tree);
    let temporary = std::env::temp_dir();
    let scratch = tempfile::tempdir().at("create a temporary directory in", &temporary)?;
    let trial = scratch.path().join("trial");
    copy_touched(patches, &tree, &trial)?;
    apply_all(patches, &trial, &scratch.path().join("trial.log"), &tree).await.map(drop)
}

/// Applies the patches in order. When one does not fit, the error says why and nothing was written.
pub(crate) async fn apply(patches: &[Patch], clone: &Path) -> Result<Vec<AppliedPatch>, PatchError> {
    let clone = crate::source::absolute(clone);
    let beside = fs::parent(&clone);
    let scratch = tempfile::Builder::new()
        .prefix("apply-")
        .tempdir_in(beside)
        .at("create a temporary directory in", beside)?;
    let trial = scratch.path().join("trial");
    copy_touched(patches, &clone, &trial)?;
    apply_all(patches, &trial, &scratch.path().join("trial.log"), &clone).await?;
    apply_all(patches, &clone, &scratch.path().join("log"), &clone).await
}

/// Applies in `directory`, which is the clone or has the files of it that the series touches.
async fn apply_all(
    patches: &[Patch],
    directory: &Path,
    log: &Path,
    clone: &Path,
) -> Result<Vec<AppliedPatch>, PatchError> {
    let mut applied = Vec::new();
    for (index, patch) in patches.iter().enumerate() {
        let log = log.with_extension(index.to_string());
        let files = diff::parse(&patch.diff);
        let task = git().args(["apply", "--verbose", "--whitespace=nowarn", "-"]);
        let ended = task.in_dir(directory).input(patch.diff.as_slice()).log_to(&log).run().await;
        let said = match ended {
            Ok(_) | Err(ProcessError::Failed { .. }) => fs::read(&log)?,
            Err(error) => return Err(error.into()),
        };
        let said = String::from_utf8_lossy(&said).into_owned();
        let done = said.lines().filter(|line| line.starts_with("Applied patch ")).count();
        let why = match ended {
            Ok(_) if done == files.len() => None,
            Ok(_) => Some(Misfit::Partial { applied: done, of: files.len() }),
            Err(_) => Some(explain(&said, &files, directory, clone)?),
        };
        if let Some(why) = why {
            return Err(PatchError::DoesNotApply {
                number: index + 1,
                total: patches.len(),
                subject: patch.subject.clone(),
                origin: patch.origin.clone(),
                why: Box::new(why),
                is_applied_already: is_applied_already(patch, directory).await,
            });
        }
        applied.push(AppliedPatch {
            subject: patch.subject.clone(),
            author: patch.author.clone(),
            message_id: patch.message_id.clone(),
            origin: patch.origin.clone(),
            patch_id: patch.patch_id.clone(),
            files: patch.files.clone(),
            offset_lines: largest_offset(&said),
        });
    }
    Ok(applied)
}

/// Copies what the series touches, so that it can be tried without writing to the clone.
fn copy_touched(patches: &[Patch], clone: &Path, trial: &Path) -> Result<(), PatchError> {
    fs::create_dir(trial)?;
    let files: Vec<FileDiff> = patches.iter().flat_map(|patch| diff::parse(&patch.diff)).collect();
    for name in files.iter().flat_map(|file| [&file.old, &file.new]).flatten() {
        // A path that leads outside is git's to refuse; here it must not lead to a copy there.
        let is_inside = name.components().all(|part| matches!(part, Component::Normal(_)));
        let (from, to) = (clone.join(name), trial.join(name));
        let is_there = std::fs::symlink_metadata(&from).is_ok_and(|meta| !meta.is_dir());
        if is_inside && is_there && std::fs::symlink_metadata(&to).is_err() {
            copy_entry(&from, &to)?;
        }
    }
    Ok(())
}

async fn is_applied_already(patch: &Patch, directory: &Path) -> bool {
    let task = git().args(["apply", "--reverse", "--check", "--whitespace=nowarn", "-"]);
    task.in_dir(directory).input(patch.diff.as_slice()).run().await.is_ok()
}

/// Turns what git said into what a person has to know.
fn explain(said: &str, files: &[FileDiff], directory: &Path, clone: &Path) -> Result<Misfit, PatchError> {
    let mut errors = said.lines().filter_map(|line| line.strip_prefix("error: "));
    let first = errors.clone().find(|error| !error.starts_with("while searching for:"));
    let message = first.or_else(|| said.lines().last()).unwrap_or("git does not say why").to_owned();
    if let Some(file) = errors.clone().find_map(|error| error.strip_suffix(": No such file or directory")) {
        let written = files.iter().find(|diff| diff.old.as_deref() == Some(Path::new(file)));
        let written = written.and_then(|diff| diff.written.clone()).filter(|name| clone.join(name).is_file());
        return Ok(match written {
            Some(name) => Misfit::NoPrefix { file: name.display().to_string() },
            None => Misfit::MissingFile { file: file.to_owned() },
        });
    }
    if let Some(file) =
        errors.clone().find_map(|error| error.strip_suffix(": already exists in working directory"))
    {
        return Ok(Misfit::ExistingFile { file: file.to_owned() });
    }
    let failed = errors.find_map(|error| error.strip_prefix("patch failed: ")?.rsplit_once(':'));
    let Some((file, line)) = failed else { return Ok(Misfit::Other { message }) };
    let line: usize = line.parse().unwrap_or_default();
    let is_meant = |diff: &&FileDiff| diff.old.as_deref() == Some(Path::new(file));
    let mut hunks = files.iter().filter(is_meant).flat_map(|diff| {
        diff.hunks.iter().enumerate().map(|(index, hunk)| (index + 1, diff.hunks.len(), hunk))
    });
    let Some((number, count, hunk)) = hunks.find(|(_, _, hunk)| hunk.old_start == line) else {
        return Ok(Misfit::Other { message });
    };
    let content = fs::read(&directory.join(file))?;
    let content: Vec<&[u8]> = diff::lines(&content).collect();
    Ok(match compare(hunk, &content) {
        Some((line, expected, found)) => Misfit::Hunk {
            file: file.to_owned(),
            hunk: number,
            hunks: count,
            header: hunk.header.clone(),
            line,
            expected,
            found,
        },
        None => Misfit::Other { message },
    })
}

/// Where the hunk comes closest to fitting, and from the line before its first difference there, what it
/// expects and what the file has. `None` when it fits as far as lines go.
fn compare(hunk: &Hunk, content: &[&[u8]]) -> Option<(usize, Vec<String>, Vec<String>)> {
    let meant = hunk.old_start.saturating_sub(1);
    let matching = |start: usize| {
        let there = content[start..].iter();
        hunk.old_lines.iter().zip(there).filter(|(expected, found)| expected.as_slice() == **found).count()
    };
    let best =
        (0..=content.len()).max_by_key(|start| (matching(*start), usize::MAX - start.abs_diff(meant)))?;
    let there = |index: usize| content.get(best + index).copied();
    let differs = |index: &usize| there(*index) != Some(hunk.old_lines[*index].as_slice());
    let from = (0..hunk.old_lines.len()).find(differs)?.saturating_sub(1);
    let to = hunk.old_lines.len().min(from + EXCERPT);
    let expected = hunk.old_lines[from..to].iter().map(|line| shown(line)).collect();
    let found = (from..to).filter_map(there).map(shown).collect();
    Some((best + from + 1, expected, found))
}

/// One line of an excerpt; a carriage return at its end would not be seen.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).replace('\r', "\\r")
}

/// Of "Hunk #2 succeeded at 15 (offset 3 lines).", the 3 that is largest.
fn largest_offset(said: &str) -> Option<i64> {
    let offsets = said.lines().filter_map(|line| {
        let (_, behind) = line.strip_prefix("Hunk #")?.split_once("(offset ")?;
        behind.split(' ').next()?.parse::<i64>().ok()
    });
    offsets.max_by_key(|offset| offset.abs())
}
