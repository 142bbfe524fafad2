// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line from outside: the real program, with fakes of QEMU and make first on PATH and a
//! kernel of one file. What people read is kept as snapshots. No real kernel is built or booted here.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/builds.rs"]
mod builds;
#[path = "cli/guests.rs"]
mod guests;
#[path = "cli/run_directory.rs"]
mod run_directory;
#[path = "cli/surroundings.rs"]
mod surroundings;
#[path = "cli/usage.rs"]
mod usage;
