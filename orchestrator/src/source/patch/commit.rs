// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commits of a local repository as patches, forwards or reversed. By git's plumbing, which no setting of
//! the repository changes, and not by way of mails: a commit message may hold a diff or look like a header.

use std::path::{Path, PathBuf};

use super::error::PatchError;
use super::{Patch, diff, patch_id};
use crate::process::Task;
use crate::source::git::{git_dir, git_in, resolve};

/// One commit, as listed.
#[derive(Debug, PartialEq, Eq)]
struct Commit {
    id: String,
    parents: Vec<String>,
    author: String,
    subject: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Reversed,
}

/// Where one source's commits are looked up, and its words for errors.
struct Lookup<'a> {
    git_dir: PathBuf,
    what: &'a str,
}

/// The commits `A..B`, oldest first.
pub(super) async fn range(
    own: Option<&Path>,
    kernels: Option<&Path>,
    range: &str,
) -> Result<Vec<Patch>, PatchError> {
    let lookup = Lookup::new(own, kernels, range)?;
    let ends = range.split_once("..").filter(|(_, to)| !to.starts_with('.'));
    let Some((from, to)) = ends else { return Err(lookup.error("a range is written A..B")) };
    let from = lookup.commit(from).await?;
    let to = lookup.commit(to).await?;
    let commits = lookup.list(&["--reverse", "--topo-order", &format!("{from}..{to}")]).await?;
    if commits.is_empty() {
        return Err(lookup.error("there is no commit in this range"));
    }
    let mut patches = Vec::new();
    for commit in commits {
        patches.push(lookup.patch(commit, Direction::Forwards).await?);
    }
    Ok(patches)
}

/// The reverse of one commit.
pub(super) async fn revert(
    own: Option<&Path>,
    kernels: Option<&Path>,
    commit: &str,
) -> Result<Patch, PatchError> {
    let lookup = Lookup::new(own, kernels, commit)?;
    let id = lookup.commit(commit).await?;
    match lookup.list(&["--no-walk", &id]).await?.pop() {
        Some(commit) => lookup.patch(commit, Direction::Reversed).await,
        None => Err(lookup.error("git does not list it")),
    }
}

impl<'a> Lookup<'a> {
    fn new(own: Option<&Path>, kernels: Option<&Path>, what: &'a str) -> Result<Self, PatchError> {
        let none = |why: String| PatchError::NoRepository { what: what.to_owned(), why };
        let Some(path) = own.or(kernels) else {
            return Err(none("the kernel source used is none, and the patch names none".to_owned()));
        };
        let git_dir = git_dir(path).ok_or_else(|| none(format!("{} is none", path.display())))?;
        Ok(Self { git_dir, what })
    }

    fn error(&self, why: &str) -> PatchError {
        let why = why.to_owned();
        PatchError::Commits { what: self.what.to_owned(), repository: self.git_dir.clone(), why }
    }

    fn no_patch(&self, commit: &Commit, why: &str) -> PatchError {
        self.error(&format!("commit {} {why}", commit.id))
    }

    async fn commit(&self, revision: &str) -> Result<String, PatchError> {
        let revision = if revision.is_empty() { "HEAD" } else { revision };
        let commit = resolve(&self.git_dir, revision).await?;
        commit.ok_or_else(|| self.error(&format!("there is no commit `{revision}`")))
    }

    fn git(&self) -> Task {
        git_in(&self.git_dir)
    }

    async fn list(&self, arguments: &[&str]) -> Result<Vec<Commit>, PatchError> {
        let format = ["--no-commit-header", "--encoding=UTF-8", "--format=%H%x00%P%x00%an <%ae>%x00%s"];
        let output = self.git().arg("rev-list").args(format).args(arguments).run().await?;
        Ok(String::from_utf8_lossy(&output).lines().filter_map(Commit::parse).collect())
    }

    async fn patch(&self, commit: Commit, direction: Direction) -> Result<Patch, PatchError> {
        let parent = match commit.parents.as_slice() {
            [parent] => parent,
            [] => {
                return Err(self.no_patch(&commit, "has no parent here (is the repository a shallow clone?)"));
            }
            _ => {
                return Err(
                    self.no_patch(&commit, "is a merge, which is no patch (a rebase makes patches of it)")
                );
            }
        };
        let task = self.git().args(["diff-tree", "-r", "-p", "--binary", "--full-index"]);
        let task = task.args(["--no-ext-diff", "--no-textconv"]);
        let subject = match direction {
            Direction::Forwards => commit.subject.clone(),
            Direction::Reversed => format!("Revert \"{}\"", commit.subject),
        };
        let task = match direction {
            Direction::Forwards => task.arg(parent).arg(&commit.id),
            Direction::Reversed => task.arg(&commit.id).arg(parent),
        };
        let diff = task.run().await?;
        let files = diff::parse(&diff);
        if files.is_empty() {
            return Err(self.no_patch(&commit, "changes nothing"));
        }
        Ok(Patch {
            subject,
            author: Some(commit.author),
            message_id: None,
            origin: format!("commit {}", commit.id),
            patch_id: patch_id(&diff).await?,
            files: files.iter().map(|file| file.name().display().to_string()).collect(),
            diff,
        })
    }
}

impl Commit {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\0');
        let mut next = || fields.next();
        Some(Self {
            id: next()?.to_owned(),
            parents: next()?.split_whitespace().map(str::to_owned).collect(),
            author: next()?.to_owned(),
            subject: next()?.to_owned(),
        })
    }
}
