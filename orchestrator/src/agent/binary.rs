// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the agent's program is: beside Twinboot's own, built from the same source. A shell for interactive
//! guests of another architecture is there too.

use std::path::PathBuf;

use crate::fs::{self, FileError};
use crate::vm::arch::ArchSpec;

/// No agent for an architecture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error(
        "find the agent for {arch}: there is no {}; `{made_by}` makes it, TWINBOOT_AGENT_DIR names another place",
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", no ")
    )]
    Missing { arch: &'static str, tried: Vec<PathBuf>, made_by: &'static str },
    #[error(transparent)]
    File(#[from] FileError),
}

/// The agent's program for an architecture.
pub(crate) fn read(arch: &ArchSpec) -> Result<Vec<u8>, AgentError> {
    let name = format!("twinboot-agent-{}", arch.uname);
    let tried: Vec<PathBuf> = directories().into_iter().map(|directory| directory.join(&name)).collect();
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => Ok(fs::read(path)?),
        None => Err(AgentError::Missing { arch: arch.uname, tried, made_by: made_by(arch) }),
    }
}

/// A static busybox for guests of an architecture, if there is one. The host's own serves guests of the
/// host's architecture.
pub(crate) fn shell(arch: &ArchSpec) -> Option<PathBuf> {
    let name = format!("busybox-{}", arch.uname);
    let mut places: Vec<PathBuf> = directories().into_iter().map(|directory| directory.join(&name)).collect();
    if arch.is_hosts() {
        places.extend(["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from));
    }
    places.into_iter().find(|path| path.is_file())
}

/// What makes the agent, typed in Twinboot's repository.
pub(crate) fn made_by(arch: &ArchSpec) -> &'static str {
    if arch.is_hosts() { "ci/build" } else { "ci/setup --cross && ci/build" }
}

/// `TWINBOOT_AGENT_DIR`, else the program's own directory and, for an installed one, ../lib/twinboot.
fn directories() -> Vec<PathBuf> {
    if let Some(directory) = std::env::var_os("TWINBOOT_AGENT_DIR") {
        return vec![PathBuf::from(directory)];
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = fs::parent(&program).to_owned();
    let library = beside.join("../lib/twinboot");
    vec![beside, library]
}
