// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's packages `linux-source-X`, which put one archive into /usr/src. Installing is left to the user.

use std::path::{Path, PathBuf};

use super::error::SourceError;
use super::tarball;
use super::tree::Tree;

/// Unpacks what the package put into `directory`.
pub(super) async fn acquire(package: &str, directory: &Path, store: &Path) -> Result<Tree, SourceError> {
    let Some(archive) = find_archive(directory, package) else {
        return Err(SourceError::Absent {
            what: format!("Debian's package {package}"),
            why: format!(
                "no {}/{package}.tar.*; install it with `apt-get install {package}` \
                 (on Debian 12, a version above 6.1 needs `-t bookworm-backports`)",
                directory.display()
            ),
        });
    };
    let tree = tarball::from_path(&archive, None, store).await?;
    Ok(Tree { origin: format!("Debian's package {package}, {}", tree.origin), ..tree })
}

fn find_archive(directory: &Path, package: &str) -> Option<PathBuf> {
    let named = |compression| directory.join(format!("{package}.tar.{compression}"));
    ["xz", "zst", "bz2", "gz"].into_iter().map(named).find(|file| file.is_file())
}
