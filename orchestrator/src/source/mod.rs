// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what an experiment says about its kernel to a source tree, and from patches as people keep them
//! to a series that is applied whole or not at all.
//!
//! [`acquire`] finds the first source that is there and keeps a pristine copy in a store, which
//! [`clone_tree`] then hands out as hard links. [`read_patches`] and [`apply`] do the rest. What the user
//! named is only ever read; a pristine tree is never written to after it was published. Nothing here decides
//! when the store is cleaned.

mod debian;
mod directory;
mod error;
#[cfg(test)]
mod fixture;
mod git;
mod patch;
mod store;
mod tarball;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};

pub(crate) use error::SourceError;
pub(crate) use patch::{AppliedPatch, Patch, PatchError, Series, apply, check, read_patches, series_id};
pub(crate) use tree::{Tree, clone_tree};

use crate::config::{Location, Source};
use error::chain;

/// Finds the first of the alternatives that is there and puts a pristine copy of it into the store.
///
/// An alternative that is not there (no such file, package, revision or connection) leads to the next one;
/// one that is there and wrong (a checksum, a directory that is no kernel) ends the search.
pub(crate) async fn acquire(sources: &[Source], store: &Path) -> Result<Tree, SourceError> {
    let store = absolute(store);
    let mut reasons: Vec<SourceError> = Vec::new();
    for source in sources {
        match acquire_one(source, &store).await {
            Ok(tree) => return Ok(Tree { passed_over: reasons.iter().map(chain).collect(), ..tree }),
            Err(error) if error.is_absence() => reasons.push(error),
            Err(error) => return Err(error),
        }
    }
    if reasons.len() == 1 {
        return Err(reasons.remove(0));
    }
    Err(SourceError::NoneThere { reasons })
}

async fn acquire_one(source: &Source, store: &Path) -> Result<Tree, SourceError> {
    match source {
        Source::Git { repository: Location::Path(path), revision } => {
            git::from_path(&absolute(path), revision, store).await
        }
        Source::Git { repository: Location::Url(url), revision } => git::from_url(url, revision, store).await,
        Source::Directory(path) => directory::acquire(&absolute(path), store).await,
        Source::Tarball { location: Location::Path(path), sha256 } => {
            tarball::from_path(&absolute(path), sha256.as_deref(), store).await
        }
        Source::Tarball { location: Location::Url(url), sha256 } => {
            tarball::from_url(url, sha256.as_deref(), store).await
        }
        Source::Debian { package } => debian::acquire(package, Path::new("/usr/src"), store).await,
    }
}

/// Children run in directories of their own, so a path that they are given has to be absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
