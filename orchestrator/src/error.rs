// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command can fail with, which exit code that is, and what may help. The top prints the whole
//! chain once.

use crate::agent::binary::AgentError;
use crate::build::BuildError;
use crate::config::ConfigError;
use crate::exit::Exit;
use crate::fs::FileError;
use crate::plan::PlanError;
use crate::process::ProcessError;
use crate::report::ReportError;
use crate::run::RunError;
use crate::run::store::StoreError;
use crate::source::{PatchError, SourceError};
use crate::vm::guest::GuestError;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{0}")]
    Usage(String),
    #[error("write to standard output")]
    Output(#[source] std::io::Error),
    #[error("start the asynchronous runtime")]
    Runtime(#[source] std::io::Error),
    #[error("stopped by {signal}; `twinboot run --resume {run}` goes on")]
    Stopped { signal: &'static str, run: String },
    #[error("stopped by {signal}")]
    Interrupted { signal: &'static str },
}

impl Error {
    /// Whose fault it is decides the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Usage(_) => Exit::Usage,
            Self::Plan(PlanError::Topology(_)) => Exit::Usage,
            Self::Plan(PlanError::Build(error)) => exit_of_build(error, Exit::Usage),
            Self::Store(error) => exit_of_store(error),
            Self::Run(error) => exit_of_run(error),
            Self::Report(_)
            | Self::File(_)
            | Self::Process(_)
            | Self::Output(_)
            | Self::Runtime(_)
            | Self::Stopped { .. }
            | Self::Interrupted { .. } => Exit::Host,
        }
    }

    /// What may help, beyond what the message says.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            // Whatever wraps it transparently is no link of the chain; the cause itself always is.
            if error.downcast_ref::<std::io::Error>().is_some_and(is_disk_full) {
                return Some(MAKE_ROOM);
            }
            cause = error.source();
        }
        match self {
            Self::Run(RunError::NoKvm { .. }) => {
                Some("`accel: auto` falls back to emulation, `clock: virtual` needs no KVM")
            }
            // QEMU writes the state itself, and has only words for what went wrong.
            Self::Run(RunError::Guest(GuestError::Save { why })) if why.contains("No space left") => {
                Some(MAKE_ROOM)
            }
            _ => None,
        }
    }
}

const MAKE_ROOM: &str =
    "make room, or name another place with --out and TWINBOOT_CACHE, then go on with --resume";

/// An error and its causes, one below the other, each once.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if next != last {
            text.push_str(": ");
            text.push_str(&next);
        }
        last = next;
        cause = error.source();
    }
    text
}

fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn exit_of_run(error: &RunError) -> Exit {
    match error {
        RunError::Source(error) => exit_of_source(error),
        RunError::Patch(error) => exit_of_patch(error),
        RunError::Build { source, .. } => exit_of_build(source, Exit::Build),
        RunError::Config(error) => exit_of_build(error, Exit::Usage),
        RunError::OtherKernel { .. } | RunError::Replay(_) => Exit::Usage,
        RunError::Store(error) => exit_of_store(error),
        RunError::NoKvm { .. }
        | RunError::Guest(_)
        | RunError::Qemu { .. }
        | RunError::Agent(AgentError::Missing { .. } | AgentError::File(_))
        | RunError::Report(_)
        | RunError::Process(_)
        | RunError::File(_) => Exit::Host,
    }
}

fn exit_of_source(error: &SourceError) -> Exit {
    if error.is_users_fault() { Exit::Usage } else { Exit::Host }
}

fn exit_of_patch(error: &PatchError) -> Exit {
    if error.is_hosts_fault() { Exit::Host } else { Exit::Patch }
}

/// `otherwise` is for what is wrong with the configuration: found while planning it is the file's fault.
fn exit_of_build(error: &BuildError, otherwise: Exit) -> Exit {
    match error {
        BuildError::NoFragment { .. } | BuildError::Fragment(_) => Exit::Usage,
        BuildError::Missing(_) | BuildError::ConfigDiffers(_) => otherwise,
        BuildError::Compile { .. } => Exit::Build,
        BuildError::Patch(error) => exit_of_patch(error),
        BuildError::Source(error) => exit_of_source(error),
        BuildError::Process(ProcessError::Failed { .. } | ProcessError::TimedOut { .. }) => Exit::Build,
        BuildError::File(error) if error.is_not_found() => otherwise,
        BuildError::Space { .. }
        | BuildError::Record(_)
        | BuildError::Compare(_)
        | BuildError::Process(_)
        | BuildError::File(_) => Exit::Host,
    }
}

fn exit_of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Occupied(_)
        | StoreError::NoRun(_)
        | StoreError::NoKernels(_)
        | StoreError::Version { .. } => Exit::Usage,
        StoreError::Busy(_) | StoreError::Damaged { .. } | StoreError::File(_) => Exit::Host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::PathContext;

    #[test]
    fn a_full_disk_is_seen_behind_every_wrapper() {
        let failed = |kind: std::io::ErrorKind| {
            let error = Err::<(), _>(std::io::Error::from(kind)).at("write", std::path::Path::new("x"));
            Error::from(RunError::Store(StoreError::File(error.unwrap_err())))
        };
        let hint = failed(std::io::ErrorKind::StorageFull).hint();
        assert!(hint.is_some_and(|hint| hint.starts_with("make room")), "{hint:?}");
        assert_eq!(failed(std::io::ErrorKind::PermissionDenied).hint(), None);
    }
}
