// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual machines: what an architecture needs, QEMU's command line, a guest's life from start to end,
//! and what can go wrong with it.
//!
//! `arch` and `qemu` are pure, `accel` finds out whether KVM works here, `guest` runs one guest. This
//! stage hands the agent's messages on as they came; it neither checks nor judges them.

pub(crate) mod accel;
pub(crate) mod arch;
pub(crate) mod checkpoint;
pub(crate) mod deadline;
pub(crate) mod fault;
pub(crate) mod guest;
pub(crate) mod known_bad;
pub(crate) mod qemu;
mod qmp;
mod stuck;
