// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent tells the host, in the order of the variants of [`Message`].

use serde::{Deserialize, Serialize};

use crate::{Histogram, Isolation};

/// One message, the payload of one frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The first message: the agent runs and has found its port.
    Hello {
        /// [`crate::PROTOCOL`] of the agent.
        protocol: u32,
        /// The agent's package version.
        agent: String,
    },
    /// What the guest is, read back from the guest.
    Machine(Box<Machine>),
    /// What shows that the isolated CPUs are left alone; only when the orders ask for the proof.
    Isolation(Box<Isolation>),
    /// Everything is prepared, and the trial's orders are not there yet: the machine may be saved now. It stops
    /// by itself a little later.
    Ready,
    /// The trial went on to this phase.
    Phase {
        /// The phase that begins now.
        phase: Phase,
        /// `CLOCK_MONOTONIC` of the guest, in nanoseconds.
        guest_ns: u64,
    },
    /// What one workload measured.
    Result(Box<WorkloadResult>),
    /// The agent cannot go on, and says why in plain words. Nothing follows.
    Failed {
        /// What failed.
        reason: String,
    },
    /// The completion frame: everything was sent. Without it a trial does not count.
    Done {
        /// How many results were sent before.
        results: u32,
    },
}

/// The phases of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// All threads exist, are pinned and wait at the gate.
    Armed,
    /// The load runs; nothing is measured.
    WarmUp,
    /// The gate is open; every sample counts.
    WindowOpen,
    /// The window is closed; results follow.
    WindowClosed,
}

/// The guest as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// `uname -m`.
    pub machine: String,
    /// The GNU build id from /sys/kernel/notes, lower-case hexadecimal; empty when there is none.
    pub build_id: String,
    /// /proc/cmdline.
    pub command_line: String,
    /// Parameters that the kernel did not know, from its log.
    pub unknown_parameters: Vec<String>,
    /// /sys/devices/system/cpu/possible, as a CPU list.
    pub possible: String,
    /// /sys/devices/system/cpu/online, as a CPU list.
    pub online: String,
    /// /sys/devices/system/cpu/isolated, as a CPU list.
    pub isolated: String,
    /// /sys/devices/system/cpu/nohz_full, as a CPU list; empty when none.
    pub nohz_full: String,
    /// The online CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// The memory nodes, by number.
    pub nodes: Vec<Node>,
    /// The clock source in use.
    pub clocksource: String,
    /// MemTotal of /proc/meminfo, in KiB.
    pub memory_kib: u64,
}

/// One online CPU's place, from /sys/devices/system/cpu/cpuN/topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Linux's number.
    pub id: u32,
    /// `physical_package_id`.
    pub socket: i64,
    /// `cluster_id`, -1 where the machine has none.
    pub cluster: i64,
    /// `core_id`.
    pub core: i64,
    /// `thread_siblings_list`, as a CPU list.
    pub siblings: String,
    /// The memory node, -1 where the kernel knows none.
    pub node: i64,
}

/// One memory node, from /sys/devices/system/node/nodeN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Linux's number.
    pub id: u32,
    /// `cpulist`.
    pub cpus: String,
    /// MemTotal, in KiB.
    pub memory_kib: u64,
    /// `distance`: one number for each node.
    pub distances: Vec<u32>,
}

/// What one workload measured in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadResult {
    /// A ping-pong's wake-ups.
    Pingpong {
        /// The workload's name.
        name: String,
        /// Samples that the orders asked for: two a round.
        expected: u64,
        /// From just before the wake-up call to the partner running, in nanoseconds.
        latency: Histogram,
        /// How long the window was open, in nanoseconds.
        window_ns: u64,
    },
    /// What the hogs did.
    Hogs {
        /// The workload's name.
        name: String,
        /// How many threads ran.
        threads: u32,
        /// CPU time of all threads in the window, in nanoseconds.
        busy_ns: u64,
        /// How long the window was open, in nanoseconds.
        window_ns: u64,
    },
}

impl WorkloadResult {
    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pingpong { name, .. } | Self::Hogs { name, .. } => name,
        }
    }
}
