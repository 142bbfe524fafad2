// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place that starts, bounds and reaps children. A child leads its own process group, runs in
//! the C locale, has a deadline, and ends with Twinboot: dropping the future kills its group, and the
//! kernel kills the child when Twinboot itself is killed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::fs::{FileError, PathContext};
use crate::sys;

/// A child to run to its end.
#[derive(Debug)]
pub(crate) struct Task {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    bare: bool,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    log: Option<PathBuf>,
    deadline: Duration,
}

/// What a child that ended well has written to its standard output (empty when that went to a log).
pub(crate) type Output = Vec<u8>;

/// A child that could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("start {program}: it is not installed (see `twinboot doctor`)")]
    Missing { program: String },
    #[error("start {program}")]
    Start { program: String, source: io::Error },
    #[error("talk to {program}")]
    Talk { program: String, source: io::Error },
    #[error("`{command}` ended with {status}{}", tail_block(tail))]
    Failed { command: String, status: ExitStatus, stdout: Vec<u8>, tail: String },
    #[error("`{command}` was stopped after {} s without an end", after.as_secs())]
    TimedOut { command: String, after: Duration },
    #[error(transparent)]
    Log(#[from] FileError),
}

impl ProcessError {
    /// The end of what a failed child wrote to its standard error, or to its log.
    pub(crate) fn tail(&self) -> &str {
        match self {
            Self::Failed { tail, .. } => tail,
            _ => "",
        }
    }
}

impl Task {
    /// A child with nothing on its standard input and ten minutes to end.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            bare: false,
            directory: None,
            input: Vec::new(),
            log: None,
            deadline: Duration::from_secs(600),
        }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Keeps the caller's environment from the child but for where things are: a stray `ARCH`, `CC` or
    /// `MAKEFLAGS` would change what is built.
    pub(crate) fn bare_environment(mut self) -> Self {
        self.bare = true;
        self
    }

    pub(crate) fn in_dir(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Bytes for the child's standard input.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sends standard output and standard error to the end of this file instead of capturing them.
    pub(crate) fn log_to(mut self, file: &Path) -> Self {
        self.log = Some(file.to_owned());
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs the child and waits for a good end.
    pub(crate) async fn run(self) -> Result<Output, ProcessError> {
        let shown = self.shown();
        let mut command = command(&self.program);
        if self.bare {
            let kept = ["PATH", "HOME", "TMPDIR"].map(|name| (name, std::env::var_os(name)));
            let kept = kept.into_iter().filter_map(|(name, value)| Some((name, value?)));
            command.env_clear().env("LC_ALL", "C").envs(kept);
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() });
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        match &self.log {
            Some(path) => {
                let file = File::options().create(true).append(true).open(path).at("open", path)?;
                command.stdout(file.try_clone().at("open", path)?).stderr(file);
            }
            None => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
        }
        let mut running = spawn(&mut command)?;
        let talk = |source| ProcessError::Talk { program: name(&self.program), source };
        let input = running.child.stdin.take();
        let feed = async {
            if let Some(mut input) = input {
                // A child that ends early closes its input; its status tells the story.
                let _ = input.write_all(&self.input).await;
            }
        };
        let ended =
            tokio::time::timeout(self.deadline, async { tokio::join!(running.wait_with_output(), feed).0 });
        let Ok(ended) = ended.await else {
            return Err(ProcessError::TimedOut { command: shown, after: self.deadline });
        };
        let (status, stdout, stderr) = ended.map_err(talk)?;
        if status.success() {
            return Ok(stdout);
        }
        let tail = match &self.log {
            Some(path) => last_lines(&crate::fs::read(path)?, 30),
            None => last_lines(&stderr, 30),
        };
        Err(ProcessError::Failed { command: shown, status, stdout, tail })
    }

    fn shown(&self) -> String {
        let mut shown = name(&self.program);
        for argument in &self.arguments {
            let _ = write!(shown, " {}", quote(&argument.to_string_lossy()));
        }
        shown
    }
}

/// A started child; dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    group: u32,
}

impl Running {
    /// Kills the group and reaps the child.
    pub(crate) async fn kill(&mut self) {
        if self.child.id().is_some() {
            sys::kill_group(self.group);
            let _ = self.child.wait().await;
        }
    }

    async fn wait_with_output(&mut self) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let (first, second) = tokio::join!(read_all(out, &mut stdout), read_all(err, &mut stderr));
        first.and(second)?;
        Ok((self.child.wait().await?, stdout, stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An id is only there while the child was not reaped, so it cannot be another's.
        if self.child.id().is_some() {
            sys::kill_group(self.group);
        }
    }
}

/// A command in the C locale. Callers add arguments and descriptors, then [`spawn`] it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    // A git hook's variables would point git at the wrong repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    command.env("LC_ALL", "C").env_remove("LANGUAGE").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Starts a child that ends with Twinboot.
pub(crate) fn spawn(command: &mut Command) -> Result<Running, ProcessError> {
    spawn_keeping(command, Vec::new())
}

/// The same for a child that inherits descriptors under their numbers.
pub(crate) fn spawn_keeping(
    command: &mut Command,
    keep: Vec<std::os::fd::OwnedFd>,
) -> Result<Running, ProcessError> {
    let program = name(command.as_std().get_program());
    command.process_group(0);
    sys::bind_to_parent(command, keep);
    let child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProcessError::Missing { program: program.clone() },
        _ => ProcessError::Start { program: program.clone(), source },
    })?;
    let group = child.id().unwrap_or_default();
    Ok(Running { child, group })
}

/// Runs a child on Twinboot's own terminal until it ends.
pub(crate) async fn run_in_foreground(mut command: Command) -> Result<ExitStatus, ProcessError> {
    let program = name(command.as_std().get_program());
    sys::bind_to_parent(&mut command, Vec::new());
    command.stdin(Stdio::inherit());
    command.status().await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProcessError::Missing { program },
        _ => ProcessError::Start { program, source },
    })
}

/// The path of a program on PATH, if it is there.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// An error when a program is not on PATH.
pub(crate) fn require(program: &str) -> Result<(), ProcessError> {
    match find(program) {
        Some(_) => Ok(()),
        None => Err(ProcessError::Missing { program: program.to_owned() }),
    }
}

/// The last `count` lines of some output, as text.
pub(crate) fn last_lines(output: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A word as a shell would want it typed.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

async fn read_all(pipe: Option<impl tokio::io::AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        tokio::io::AsyncReadExt::read_to_end(&mut pipe, into).await?;
    }
    Ok(())
}

fn name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

fn tail_block(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!(":\n{tail}") }
}
