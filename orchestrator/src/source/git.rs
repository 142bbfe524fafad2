// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel sources in git, and the way in which all of this stage calls git: no configuration but the one
//! given here, no hooks, no prompts, and no other repository than the one named.
//!
//! A user's repository is only read. A remote one is fetched into a bare repository of the store, one
//! commit deep where the server allows it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SourceError;
use super::store::{self, make_once};
use super::tarball::untar;
use super::tree::Tree;
use crate::fs;
use crate::process::{ProcessError, Task};

/// A whole history of Linux is some gigabytes.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// What git is told instead of the user's configuration; a repository's own could change bytes otherwise.
const SETTINGS: [(&str, &str); 9] = [
    ("safe.directory", "*"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.excludesFile", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.eol", "lf"),
    ("core.quotePath", "true"),
    ("tar.umask", "0022"),
];

/// git on files alone, where no repository is to be found, not even one that encloses them: `git apply`
/// would skip what lies outside of its own directory of such a repository.
pub(super) fn git() -> Task {
    git_in(Path::new("/dev/null"))
}

/// git on one repository, given by its git directory.
pub(super) fn git_in(git_dir: &Path) -> Task {
    let mut task = Task::new("git")
        .env("GIT_DIR", git_dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_PARAMETERS", "")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_DIFF_OPTS", "")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_COUNT", SETTINGS.len().to_string());
    for (index, (name, value)) in SETTINGS.into_iter().enumerate() {
        task =
            task.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    task
}

/// The git directory of a repository, bare or with a working tree, given by its top.
pub(super) fn git_dir(repository: &Path) -> Option<PathBuf> {
    let repository = super::absolute(repository);
    let inside = repository.join(".git");
    if inside.exists() {
        return Some(inside);
    }
    (repository.join("HEAD").is_file() && repository.join("objects").is_dir()).then_some(repository)
}

/// The commit that a revision names; `None` when it names none.
pub(super) async fn resolve(git_dir: &Path, revision: &str) -> Result<Option<String>, ProcessError> {
    if revision.starts_with('-') {
        return Ok(None);
    }
    let task =
        git_in(git_dir).args(["rev-parse", "--verify", "--quiet"]).arg(format!("{revision}^{{commit}}"));
    match task.run().await {
        Ok(output) => Ok(Some(String::from_utf8_lossy(&output).trim().to_owned())),
        Err(ProcessError::Failed { status, .. }) if status.code() == Some(1) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes a revision of a local repository.
pub(super) async fn from_path(path: &Path, revision: &str, store: &Path) -> Result<Tree, SourceError> {
    let repository = path.display().to_string();
    let Some(git_dir) = git_dir(path) else {
        let why = if path.exists() { "this is no git repository" } else { "no such directory" };
        return Err(SourceError::Absent {
            what: format!("git repository {repository}"),
            why: why.to_owned(),
        });
    };
    let Some(commit) = resolve(&git_dir, revision).await? else {
        return Err(SourceError::NoRevision {
            repository,
            revision: revision.to_owned(),
            why: "it knows no such commit, tag or branch",
        });
    };
    take(&git_dir, &repository, revision, commit, store).await
}

/// Takes a revision of a remote repository. A full commit id, and a tag once fetched, need no connection.
pub(super) async fn from_url(url: &str, revision: &str, store: &Path) -> Result<Tree, SourceError> {
    fs::create_dir(store)?;
    let name = format!("{}.git", store::sha256(url.as_bytes()));
    let git_dir = store.join(&name);
    let lock = fs::lock(&store.join(format!("{name}.lock"))).await?;
    if !git_dir.join("HEAD").is_file() {
        Task::new("git").args(["init", "--quiet", "--bare", "--template="]).arg(&git_dir).run().await?;
    }
    let commit = match known_commit(&git_dir, revision).await? {
        Some(commit) => commit,
        None => fetch(&git_dir, url, revision).await?,
    };
    drop(lock);
    take(&git_dir, url, revision, commit, store).await
}

async fn take(
    git_dir: &Path,
    repository: &str,
    revision: &str,
    commit: String,
    store: &Path,
) -> Result<Tree, SourceError> {
    let origin = format!("`{revision}` ({}) of {repository}", &commit[..commit.len().min(12)]);
    let fill = async |tree: &Path| export(git_dir, &commit, tree).await;
    let root = make_once(store, &commit, &origin, fill).await?;
    Ok(Tree::new(root, commit, &origin, Some(git_dir.to_owned())))
}

/// Writes a commit's files out. The archive goes through a named pipe, and whichever end fails first ends
/// the other; a tree counts only when both have ended well.
async fn export(git_dir: &Path, commit: &str, tree: &Path) -> Result<(), SourceError> {
    let pipe = tree.with_file_name("pipe");
    Task::new("mkfifo").arg(&pipe).run().await?;
    let mut output = std::ffi::OsString::from("--output=");
    output.push(&pipe);
    let archive =
        git_in(git_dir).args(["archive", "--format=tar"]).arg(output).arg(commit).deadline(PATIENCE);
    tokio::try_join!(archive.run(), untar(&pipe, tree).run())?;
    Ok(())
}

/// What needs no question to the server because it cannot change.
async fn known_commit(git_dir: &Path, revision: &str) -> Result<Option<String>, ProcessError> {
    let is_commit_id = matches!(revision.len(), 40 | 64) && revision.bytes().all(|b| b.is_ascii_hexdigit());
    let fixed = if is_commit_id { revision.to_owned() } else { format!("refs/tags/{revision}") };
    resolve(git_dir, &fixed).await
}

/// Fetches one commit, by tag, by whatever else the server knows it as, or with everything there is.
async fn fetch(git_dir: &Path, url: &str, revision: &str) -> Result<String, SourceError> {
    let unknown =
        |why| SourceError::NoRevision { repository: url.to_owned(), revision: revision.to_owned(), why };
    if revision.starts_with('-') || revision.contains([':', ' ', '*']) {
        return Err(unknown("this is no name of a commit, tag or branch"));
    }
    let tag = format!("+refs/tags/{revision}:refs/tags/{revision}");
    let attempts: [(&[&str], &[&str], &str); 3] = [
        (&["--depth=1"], &[&tag], "FETCH_HEAD"),
        (&["--depth=1"], &[revision], "FETCH_HEAD"),
        (&[], &["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"], revision),
    ];
    for (depth, references, name) in attempts {
        let task = fetch_task(git_dir).args(depth).args(["--end-of-options", url]).args(references);
        match task.run().await {
            Ok(_) => {
                if let Some(commit) = resolve(git_dir, name).await? {
                    return Ok(commit);
                }
            }
            Err(error) if is_unknown_there(&error) => {}
            Err(source) => return Err(SourceError::Fetch { url: url.to_owned(), source }),
        }
    }
    Err(unknown("the server knows no such commit, tag or branch"))
}

/// A connection is the one place for the user's own configuration: proxies, credentials and keys are in it.
fn fetch_task(git_dir: &Path) -> Task {
    let task = Task::new("git").env("GIT_DIR", git_dir).env("GIT_TERMINAL_PROMPT", "0").in_dir(git_dir);
    task.args(["fetch", "--quiet", "--no-tags", "--no-auto-maintenance"]).deadline(PATIENCE)
}

fn is_unknown_there(error: &ProcessError) -> bool {
    let answers = ["couldn't find remote ref", "unadvertised object", "not our ref"];
    answers.iter().any(|answer| error.tail().contains(answer))
}
