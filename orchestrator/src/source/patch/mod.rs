// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches: from mailboxes, mails, diffs, directories and commits to a complete series in order, and from
//! there into a clone of the source, all or nothing.
//!
//! `read` tells apart what a path holds, `mail` and `commit` turn it into patches, `series` picks and orders
//! (pure), `diff` knows the format (pure), `apply` applies and explains. Nothing is ever applied with fuzz,
//! and what was left out of a mailbox or a directory is said in [`Series::notes`].

mod apply;
mod commit;
mod diff;
mod error;
mod mail;
mod read;
mod series;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use apply::{apply, check};
pub(crate) use error::PatchError;
pub(crate) use read::read_patches;

use super::git::git;
use super::store::sha256;
use crate::process::ProcessError;

/// One patch, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Without `[PATCH n/m]`; for a diff without a subject, the file's name.
    pub(crate) subject: String,
    /// `Name <address>`.
    pub(crate) author: Option<String>,
    pub(crate) message_id: Option<String>,
    /// The file or the commit that it comes from.
    pub(crate) origin: String,
    /// As `git patch-id --stable` computes it: the same for the same change, wherever in the file it is.
    pub(crate) patch_id: String,
    /// Paths that it changes.
    pub(crate) files: Vec<String>,
    pub(crate) diff: Vec<u8>,
}

/// Patches in the order in which they apply, and what a person should know of how they were picked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) patches: Vec<Patch>,
    /// One sentence each: what was left out and why.
    pub(crate) notes: Vec<String>,
}

/// One patch of an applied series, for the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppliedPatch {
    pub(crate) subject: String,
    pub(crate) author: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) origin: String,
    pub(crate) patch_id: String,
    pub(crate) files: Vec<String>,
    /// The largest distance, in lines, between where a hunk said it belongs and where its lines were found.
    pub(crate) offset_lines: Option<i64>,
}

/// The content key of a series: the same id is the same patches, byte for byte, in the same order.
pub(crate) fn series_id(patches: &[Patch]) -> String {
    let lines: Vec<String> =
        patches.iter().map(|patch| format!("{} {}\n", patch.patch_id, sha256(&patch.diff))).collect();
    sha256(lines.concat().as_bytes())
}

/// git gives no id to a diff without text (a mode, a rename): such a one is known by its bytes.
async fn patch_id(diff: &[u8]) -> Result<String, ProcessError> {
    let output = git().args(["patch-id", "--stable"]).input(diff).run().await?;
    let text = String::from_utf8_lossy(&output);
    Ok(text.split_whitespace().next().map_or_else(|| sha256(diff), str::to_owned))
}
