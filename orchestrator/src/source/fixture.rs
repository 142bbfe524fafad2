// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small tree that passes for a kernel, in a directory whose name holds what paths may hold, for tests.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::git::{git, git_in};
use crate::process::Task;

/// A directory of a test's own; it goes with the value.
pub(super) struct Fixture {
    directory: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::Builder::new().prefix("-a b,c:d 'é").tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A kernel's tree; `kernel/x.c` has twenty numbered lines.
    pub(super) fn kernel(&self, name: &str) -> PathBuf {
        let makefile = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 3\nEXTRAVERSION = -rc1\n";
        self.write(&format!("{name}/Makefile"), makefile);
        self.write(&format!("{name}/Kbuild"), "obj-y += kernel/\n");
        self.write(&format!("{name}/Kconfig"), "mainmenu \"Linux\"\n");
        self.write(&format!("{name}/kernel/x.c"), numbered(20));
        self.path(name)
    }

    /// Runs git on the repository in `name`.
    pub(super) async fn git(&self, name: &str, arguments: &[&str]) -> String {
        let top = self.path(name);
        let task = git_in(&top.join(".git")).env("GIT_WORK_TREE", &top).in_dir(&top);
        let task = ["AUTHOR", "COMMITTER"].into_iter().fold(task, |task, who| {
            let task =
                task.env(format!("GIT_{who}_NAME"), "Jörg").env(format!("GIT_{who}_EMAIL"), "j@example.org");
            task.env(format!("GIT_{who}_DATE"), "2024-01-02T03:04:05Z")
        });
        String::from_utf8(task.args(arguments).run().await.unwrap()).unwrap()
    }

    /// A repository in `name` with one commit, tagged `v1`, of a kernel's tree.
    pub(super) async fn repository(&self, name: &str) -> PathBuf {
        let top = self.kernel(name);
        Task::new("git").args(["init", "--quiet", "--initial-branch=main"]).arg(&top).run().await.unwrap();
        self.commit(name, "base").await;
        self.git(name, &["tag", "v1"]).await;
        top
    }

    /// Commits all there is and gives the commit's id.
    pub(super) async fn commit(&self, name: &str, message: &str) -> String {
        self.git(name, &["add", "--all", "--force"]).await;
        self.git(name, &["commit", "--quiet", "--allow-empty", "-m", message]).await;
        self.git(name, &["rev-parse", "HEAD"]).await.trim().to_owned()
    }

    /// The repository `name` with commits `one`, `two` and `three` that each change a line of kernel/x.c, and
    /// their mails.
    pub(super) async fn series(&self, name: &str) -> Vec<String> {
        self.repository(name).await;
        for (title, line) in [("one", "line 3"), ("two", "line 10"), ("three", "line 17")] {
            let text = self.read(&format!("{name}/kernel/x.c"));
            self.write(
                &format!("{name}/kernel/x.c"),
                text.replace(&format!("{line}\n"), &format!("{title}\n")),
            );
            self.commit(name, title).await;
        }
        let mailbox = self.git(name, &["format-patch", "--stdout", "--cover-letter", "v1..HEAD"]).await;
        mailbox.split_inclusive("\n\nFrom ").fold(Vec::new(), |mut mails, part| {
            let begin = if mails.is_empty() { "" } else { "From " };
            mails.push(format!("{begin}{}", part.strip_suffix("From ").unwrap_or(part)));
            mails
        })
    }

    /// An archive of the directory `name`, as `NAME.tar.gz`.
    pub(super) async fn archive(&self, name: &str) -> PathBuf {
        let archive = self.path(&format!("{name}.tar.gz"));
        let task = Task::new("tar").args(["--create", "--gzip", "--force-local", "--file"]).arg(&archive);
        task.arg("--directory").arg(self.directory.path()).args(["--", name]).run().await.unwrap();
        archive
    }
}

/// `line 1` to `line COUNT`.
pub(super) fn numbered(count: usize) -> String {
    (1..=count).map(|number| format!("line {number}\n")).collect()
}

/// Every file below, with its content and the time of its last change.
pub(super) fn snapshot(root: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut files = Vec::new();
    for path in crate::fs::list(root).unwrap() {
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else {
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            files.push((path.clone(), std::fs::read(&path).unwrap(), changed));
        }
    }
    files
}

/// A diff of two texts as `diff --git` would have it for `name`.
pub(super) async fn diff(fixture: &Fixture, name: &str, old: &str, new: &str) -> String {
    fixture.write(&format!("diff/a/{name}"), old);
    fixture.write(&format!("diff/b/{name}"), new);
    let task = git().args(["diff", "--no-index", "--no-prefix", &format!("a/{name}"), &format!("b/{name}")]);
    match task.in_dir(&fixture.path("diff")).run().await {
        Err(crate::process::ProcessError::Failed { stdout, .. }) => String::from_utf8(stdout).unwrap(),
        other => panic!("the texts are equal: {other:?}"),
    }
}
