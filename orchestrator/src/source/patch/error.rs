// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a series cannot be read or applied.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::fs::FileError;
use crate::process::ProcessError;

/// Patches that could not be read or applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("find a patch in {}: {why}", path.display())]
    NoPatch { path: PathBuf, why: &'static str },
    #[error("decompress {}", path.display())]
    Compressed { path: PathBuf, source: io::Error },
    #[error(
        "use the patch `{subject}`: its lines end in CR LF, which no kernel source has; \
         `sed -i 's/\\r$//' {}` mends it",
        crate::process::quote(&path.to_string_lossy())
    )]
    CrLf { path: PathBuf, subject: String },
    #[error("read the series {origin}: {fault}")]
    Series { origin: String, fault: SeriesFault },
    #[error("find a git repository for `{what}`: {why}")]
    NoRepository { what: String, why: String },
    #[error("take `{what}` from {}: {why}", repository.display())]
    Commits { what: String, repository: PathBuf, why: String },
    #[error("apply patch {number}/{total} `{subject}` ({origin}): {why}{}", already(*is_applied_already))]
    DoesNotApply {
        /// Counted from 1.
        number: usize,
        total: usize,
        subject: String,
        origin: String,
        why: Box<Misfit>,
        is_applied_already: bool,
    },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl PatchError {
    /// Whether the host failed (a full disk, git not installed), and not a patch.
    pub(crate) fn is_hosts_fault(&self) -> bool {
        match self {
            Self::Process(_) | Self::File(_) => !self.is_missing_file(),
            Self::DoesNotApply { why, .. } => {
                matches!(why.as_ref(), Misfit::Other { message } if message.contains("No space left"))
            }
            _ => false,
        }
    }

    fn is_missing_file(&self) -> bool {
        matches!(self, Self::File(error) if error.is_not_found())
    }
}

/// What is wrong with a set of mails that should be one series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SeriesFault {
    #[error("{} missing of the {total} patches", missing_words(missing, *total))]
    Incomplete { missing: Vec<u32>, total: u32 },
    #[error("patch {number}/{total} is there twice: `{first}` and `{second}`")]
    Twice { number: u32, total: u32, first: String, second: String },
    #[error("it holds parts of different series (of {first} and of {second} patches)")]
    Totals { first: u32, second: u32 },
    #[error("it holds different series, one of version {old} and one of version {new}; keep one")]
    Versions { old: u32, new: u32 },
    #[error("`{numbered}` has a number and `{plain}` has none, so their order is unknown: list the files")]
    Mixed { numbered: String, plain: String },
}

/// Why one patch does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// A hunk's context is not what stands in the file.
    Hunk {
        file: String,
        /// Counted from 1.
        hunk: usize,
        hunks: usize,
        /// The `@@` line.
        header: String,
        /// Where the excerpt begins in the file, counted from 1.
        line: usize,
        expected: Vec<String>,
        found: Vec<String>,
    },
    MissingFile {
        file: String,
    },
    ExistingFile {
        file: String,
    },
    /// Paths without the usual first component (`a/`, `b/`).
    NoPrefix {
        file: String,
    },
    /// Only some of the files were changed.
    Partial {
        applied: usize,
        of: usize,
    },
    /// In git's words.
    Other {
        message: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hunk { file, hunk, hunks, header, line, expected, found } => {
                write!(
                    f,
                    "hunk {hunk} of {hunks} does not fit {file}\n  {header}\n  expected at line {line}:"
                )?;
                excerpt(f, expected)?;
                write!(f, "\n  found there:")?;
                excerpt(f, found)
            }
            Self::MissingFile { file } => write!(f, "there is no {file}"),
            Self::ExistingFile { file } => write!(f, "it creates {file}, which is there already"),
            Self::NoPrefix { file } => {
                write!(
                    f,
                    "it names {file} without a first part as in a/{file} (made with --no-prefix or -p0?)"
                )
            }
            Self::Partial { applied, of } => write!(f, "git changed {applied} of its {of} files only"),
            Self::Other { message } => write!(f, "{message}"),
        }
    }
}

fn excerpt(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return write!(f, "\n    (the file's end)");
    }
    lines.iter().try_for_each(|line| write!(f, "\n    |{line}"))
}

fn already(is_applied_already: bool) -> &'static str {
    if is_applied_already {
        "\n  the source seems to have this patch already: its reverse applies"
    } else {
        ""
    }
}

fn missing_words(missing: &[u32], total: u32) -> String {
    let names: Vec<String> = missing.iter().map(|number| format!("{number}/{total}")).collect();
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}
