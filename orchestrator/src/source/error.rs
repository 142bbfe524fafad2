// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong before there is a tree, and whose fault it is.

use std::path::PathBuf;

use crate::fs::FileError;
use crate::process::ProcessError;

/// A kernel source that could not be made ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("find a kernel source; none of the {} alternatives is there:{}", reasons.len(), list(reasons))]
    NoneThere { reasons: Vec<SourceError> },
    #[error("find {what}: {why}")]
    Absent { what: String, why: String },
    #[error("find revision `{revision}` in {repository}: {why}")]
    NoRevision { repository: String, revision: String, why: &'static str },
    #[error("use {origin} as a kernel source: it has no {missing}")]
    NotKernel { origin: String, missing: &'static str },
    #[error("fetch from {url}")]
    Fetch { url: String, source: ProcessError },
    #[error("download {url}: {why}")]
    Download { url: String, why: String },
    #[error("trust {what}: its sha256 is {found}, not {expected}")]
    Digest { what: String, expected: String, found: String },
    #[error("download {url}: the experiment gives no sha256 (64 hexadecimal digits) for it")]
    NoDigest { url: String },
    #[error("unpack {}", archive.display())]
    Unpack { archive: PathBuf, source: ProcessError },
    #[error("copy {}: it changed while it was being copied", directory.display())]
    Changed { directory: PathBuf },
    #[error(
        "unpack a kernel source into {}: {} MiB are free and {} MiB are needed (see `twinboot cache`)",
        store.display(), free >> 20, needed >> 20
    )]
    NoSpace { store: PathBuf, free: u64, needed: u64 },
    #[error("clone a tree to {}: there is something already", target.display())]
    Occupied { target: PathBuf },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl SourceError {
    /// Whether the experiment or what it names is wrong, rather than the host, its disk or its network.
    pub(crate) fn is_users_fault(&self) -> bool {
        match self {
            Self::NoneThere { reasons } => reasons.iter().all(Self::is_users_fault),
            Self::Absent { .. }
            | Self::NoRevision { .. }
            | Self::NotKernel { .. }
            | Self::Digest { .. }
            | Self::NoDigest { .. }
            | Self::Changed { .. } => true,
            Self::Unpack { source, .. } => {
                matches!(source, ProcessError::Failed { tail, .. } if !tail.contains("No space left"))
            }
            Self::Fetch { .. }
            | Self::Download { .. }
            | Self::NoSpace { .. }
            | Self::Occupied { .. }
            | Self::Process(_)
            | Self::File(_) => false,
        }
    }

    /// Whether this alternative is not there, so that the next one may be tried.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::NoRevision { .. } | Self::Fetch { .. } | Self::Download { .. } => {
                true
            }
            Self::Process(error) => matches!(error, ProcessError::Missing { .. }),
            _ => false,
        }
    }
}

/// An error and its causes on one line.
pub(super) fn chain(error: &SourceError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn list(reasons: &[SourceError]) -> String {
    reasons.iter().map(|reason| format!("\n- {}", chain(reason).replace('\n', "\n  "))).collect()
}
