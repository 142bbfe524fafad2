// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the agent's program is: beside Twinboot's own, built from the same source.

use std::path::PathBuf;

use crate::fs::{self, FileError};
use crate::vm::arch::ArchSpec;

/// No agent for an architecture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error(
        "find the agent for {arch}: there is no {}; `ci/build` makes it, TWINBOOT_AGENT_DIR names another place",
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", no ")
    )]
    Missing { arch: &'static str, tried: Vec<PathBuf> },
    #[error(transparent)]
    File(#[from] FileError),
}

/// The agent's program for an architecture.
pub(crate) fn read(arch: &ArchSpec) -> Result<Vec<u8>, AgentError> {
    let name = format!("twinboot-agent-{}", arch.uname);
    let tried: Vec<PathBuf> = directories().into_iter().map(|directory| directory.join(&name)).collect();
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => Ok(fs::read(path)?),
        None => Err(AgentError::Missing { arch: arch.uname, tried }),
    }
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
