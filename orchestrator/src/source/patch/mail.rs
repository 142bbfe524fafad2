// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mails, as git understands them: it splits mailboxes and undoes MIME, transfer and header encodings.

use std::path::{Path, PathBuf};

use super::error::PatchError;
use super::series::Tag;
use super::{Patch, diff, patch_id};
use crate::fs::{self, PathContext};
use crate::process::ProcessError;
use crate::source::git::git;

/// A mail, or a bare diff, which is one with nothing but a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mail {
    pub(super) tag: Tag,
    pub(super) author: Option<String>,
    pub(super) message_id: Option<String>,
    /// The file that it was read from.
    pub(super) origin: PathBuf,
    pub(super) diff: Vec<u8>,
}

impl Mail {
    /// A diff that came without a mail around it, known by its file's name.
    pub(super) fn bare(diff: &[u8], origin: &Path) -> Self {
        let name = origin.file_name().unwrap_or_default().to_string_lossy();
        let tag = Tag { title: name.into_owned(), is_reply: false, version: 1, number: None };
        Self { tag, author: None, message_id: None, origin: origin.to_owned(), diff: diff.to_vec() }
    }

    pub(super) fn has_diff(&self) -> bool {
        !diff::parse(&self.diff).is_empty()
    }

    /// Whether both are one mail, or one sent again. A new version may repeat a patch of the old one.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_same_mail = self.message_id.is_some() && self.message_id == other.message_id;
        is_same_mail || (self.tag == other.tag && self.diff == other.diff)
    }

    pub(super) async fn into_patch(self) -> Result<Patch, PatchError> {
        if diff::has_crlf(&self.diff) {
            return Err(PatchError::CrLf { path: self.origin, subject: self.tag.title });
        }
        Ok(Patch {
            subject: self.tag.title,
            author: self.author,
            message_id: self.message_id,
            origin: self.origin.display().to_string(),
            patch_id: patch_id(&self.diff).await?,
            files: diff::parse(&self.diff).iter().map(|file| file.name().display().to_string()).collect(),
            diff: self.diff,
        })
    }
}

/// Reads a mailbox, or a single mail.
pub(super) async fn read(content: &[u8], origin: &Path) -> Result<Vec<Mail>, PatchError> {
    let scratch = tempfile::tempdir().at("create a temporary directory in", &std::env::temp_dir())?;
    let split = scratch.path().join("mails");
    fs::create_dir(&split)?;
    let task = git().args(["mailsplit", "-b", "--keep-cr", "--mboxrd", "-omails"]);
    task.in_dir(scratch.path()).input(content).run().await?;
    let mut mails = Vec::new();
    for file in fs::list(&split)? {
        mails.push(read_one(&fs::read(&file)?, origin, scratch.path()).await?);
    }
    Ok(mails)
}

async fn read_one(content: &[u8], origin: &Path, scratch: &Path) -> Result<Mail, PatchError> {
    // Encoded text has CR LF line ends by the standard, so they are none of the patch's own.
    let carriage_returns = if is_encoded(content) { "--quoted-cr=strip" } else { "--quoted-cr=nowarn" };
    let task = git().args(["mailinfo", "-k", "-m", "--encoding=UTF-8", carriage_returns, "message", "diff"]);
    let head = match task.in_dir(scratch).input(content).run().await {
        // git refuses a mail without a body, which is no patch.
        Err(ProcessError::Failed { tail, .. }) if tail.contains("empty patch") => Vec::new(),
        head => head?,
    };
    let head = String::from_utf8_lossy(&head).into_owned();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let message = fs::read(&scratch.join("message"))?;
    let mut tag = Tag::parse(field("Subject:").unwrap_or_default());
    if tag.title.is_empty() {
        tag.title = origin.file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    Ok(Mail {
        tag,
        author: field("Author:").map(|name| format!("{name} <{}>", field("Email:").unwrap_or_default())),
        message_id: message_id(&String::from_utf8_lossy(&message)),
        origin: origin.to_owned(),
        diff: fs::read(&scratch.join("diff"))?,
    })
}

/// git puts it behind the message, when a diff follows.
fn message_id(message: &str) -> Option<String> {
    message.lines().rev().find_map(|line| line.strip_prefix("Message-ID: ")).map(|id| id.trim().to_owned())
}

fn is_encoded(content: &[u8]) -> bool {
    let encoding = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        let value = line.strip_prefix("content-transfer-encoding:").map(|value| value.trim().to_owned());
        value.is_some_and(|value| value == "base64" || value == "quoted-printable")
    };
    diff::lines(content).any(encoding)
}
