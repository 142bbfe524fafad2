// SPDX-License-Identifier: MIT OR Apache-2.0
//! `result.json`: everything a run found out, the one input of every report. A published format: its
//! schema comes from these types, and a change of meaning raises [`VERSION`].
//!
//! Times are in seconds and measured on the host; metrics are in the unit that their judgement states.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::isolation::{Row, TickRates};
use crate::analyse::{Judgement, Verdict};

/// The version of the format that this program writes.
pub(crate) const VERSION: u32 = 1;

/// The result of a run, finished or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunResult {
    /// Of this format: 1.
    pub(crate) version: u32,
    /// Of the program that wrote it.
    pub(crate) twinboot: String,
    /// Of the whole run.
    pub(crate) verdict: Verdict,
    /// The exit code of `twinboot run`.
    pub(crate) exit_code: u8,
    /// The answer to the question, in one plain sentence.
    pub(crate) sentence: String,
    /// The experiment's name.
    pub(crate) experiment: String,
    /// What the experiment asks.
    pub(crate) question: Option<String>,
    /// The command that repeats the run.
    pub(crate) command: String,
    /// What the guest's clock counts: `virtual` (instructions executed) or `wall` (the host's time).
    pub(crate) clock: String,
    /// What executes the guest.
    pub(crate) accelerator: Accelerator,
    /// The machine that ran it.
    pub(crate) host: Host,
    /// Where the kernel's source came from.
    pub(crate) source: String,
    /// The variants; the first is the base.
    pub(crate) arms: Vec<Arm>,
    /// The guest's CPUs and memory nodes.
    pub(crate) topology: Topology,
    /// The guest's CPUs that were kept free of other work.
    pub(crate) isolation: Isolation,
    /// How the trials were planned and judged.
    pub(crate) design: Design,
    /// In the order in which they ran.
    pub(crate) trials: Vec<Trial>,
    /// Trials that ran again under the virtual clock, to see whether they measure the same; absent when none did.
    pub(crate) verification: Option<Verification>,
    /// One for each metric and arm other than the base; the primary metric first.
    pub(crate) judgements: Vec<Judgement>,
    /// What went wrong inside the guests, alike ones together.
    pub(crate) faults: Vec<Fault>,
    /// How long each stage took.
    pub(crate) timings: Timings,
    /// What a reader should know before believing the rest.
    pub(crate) warnings: Vec<String>,
}

/// What executes the guest's instructions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Accelerator {
    /// `kvm` or `tcg`.
    pub(crate) name: String,
    /// Why this one.
    pub(crate) why: String,
}

/// The machine that ran the guests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Host {
    /// QEMU's version.
    pub(crate) qemu: String,
    /// The CPU's model name.
    pub(crate) cpu: String,
    /// CPUs online.
    pub(crate) cores: u32,
    /// One-minute load average when the first trial started.
    pub(crate) load: Option<f64>,
    /// The frequency governor; absent where the host shows none.
    pub(crate) governor: Option<String>,
    /// The host's kernel release.
    pub(crate) kernel: String,
    /// The largest share of its CPU time that its own hypervisor took during a trial: 0.05 is 5 %. Absent
    /// where it does not say.
    pub(crate) stolen: Option<f64>,
    /// Guests that ran side by side; 1 when nothing was booted.
    pub(crate) guests_at_once: u32,
    /// What is known to be wrong with this QEMU for this machine.
    pub(crate) known_bad: Option<String>,
}

/// One variant under test, as built and booted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Arm {
    pub(crate) name: String,
    /// `uname -r` in the guest.
    pub(crate) release: String,
    /// The kernel's GNU build id, hexadecimal.
    pub(crate) build_id: String,
    /// SHA-256 over the final .config, hexadecimal.
    pub(crate) config_hash: String,
    /// In the order in which they were applied.
    pub(crate) patches: Vec<Patch>,
    /// The kernel's command line.
    pub(crate) command_line: String,
}

/// A patch that was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Patch {
    pub(crate) subject: String,
    /// `git patch-id --stable`.
    pub(crate) patch_id: String,
    /// Of the mail it came in.
    pub(crate) message_id: Option<String>,
    /// The files that it changes.
    pub(crate) files: Vec<String>,
}

/// The guest's CPUs and memory nodes, as asked for and as found by the agent in every guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Topology {
    pub(crate) requested: Shape,
    /// Absent when no guest reported.
    pub(crate) observed: Option<Shape>,
    /// Whether every guest that reported had what was asked for.
    pub(crate) proven: bool,
    /// What was not as asked for, in words.
    pub(crate) differences: Vec<String>,
}

/// How CPUs and memory are arranged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Shape {
    pub(crate) sockets: u32,
    /// Of each socket; 1 where the machine has none.
    pub(crate) clusters: u32,
    /// Of each cluster.
    pub(crate) cores: u32,
    /// Of each core.
    pub(crate) threads: u32,
    /// Memory nodes, by number; none where the kernel does not show any.
    pub(crate) nodes: Vec<Node>,
    /// From each memory node to each, as firmware says it: 10 within a node.
    pub(crate) distances: Vec<Vec<u32>>,
}

/// Memory and the CPUs near to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Node {
    /// A CPU list; empty when none is near.
    pub(crate) cpus: String,
    /// As asked for; observed, what the kernel left after taking its own.
    pub(crate) memory_mib: u64,
}

/// The guest's isolated CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Isolation {
    /// A CPU list; empty when none was asked for.
    pub(crate) requested: String,
    /// A CPU list, from the guests.
    pub(crate) observed: String,
    /// Absent when none was asked for.
    pub(crate) proven: Option<bool>,
    /// What was not as asked for, in words.
    pub(crate) differences: Vec<String>,
    /// What was checked; of each, the first guest that could not prove it, or else the first guest.
    pub(crate) rows: Vec<Row>,
    /// Ticks of busy CPUs in the guest that had most; absent when none were counted.
    pub(crate) ticks: Option<TickRates>,
}

/// How the trials were planned and judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Design {
    /// Blocks that were asked for; each is one trial of every arm.
    pub(crate) blocks: u32,
    /// Blocks of which every trial ended well.
    pub(crate) complete: u32,
    /// How the arms take turns, for example `ABBA`.
    pub(crate) order: String,
    /// The seed that all others come from.
    pub(crate) seed: u64,
    /// The smallest change that matters: 0.05 is 5 %.
    pub(crate) minimum_effect: f64,
}

/// One measured run of one arm in one guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trial {
    /// From 1; names the files in trials/ and consoles/.
    pub(crate) number: u32,
    pub(crate) arm: String,
    /// From 1.
    pub(crate) block: u32,
    pub(crate) seed: u64,
    /// A hash over everything that the guest measured; absent when it measured nothing.
    pub(crate) digest: Option<String>,
    /// By the metric's name.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// How many samples each metric is made of, by its name.
    pub(crate) samples: BTreeMap<String, u64>,
    pub(crate) status: Status,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// With the agent's completion frame.
    Ok,
    /// Not as it should.
    Fault {
        /// The kind, for example `panic`.
        class: String,
        /// With the console's last lines.
        message: String,
    },
}

/// What came of the trials that ran again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Verification {
    /// How many ran again.
    pub(crate) trials: u32,
    /// How many of them measured the same again.
    pub(crate) equal: u32,
    /// The others.
    pub(crate) differing: Vec<DifferingTrial>,
}

/// A trial that did not measure the same when it ran again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DifferingTrial {
    /// The trial's number.
    pub(crate) number: u32,
    /// The first difference: where it is, the first value and the second.
    pub(crate) difference: String,
}

/// A kind of fault, and how often it was there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Fault {
    /// For example `panic`.
    pub(crate) class: String,
    pub(crate) arm: String,
    /// Trials that it ended.
    pub(crate) count: u32,
    /// Whether the base has the same one, so that it is not the patch's.
    pub(crate) also_in_base: bool,
    /// Of the first such trial, with the console's last lines.
    pub(crate) message: String,
}

/// How long each stage took, in seconds. What was not done, or came out of the cache at once, is 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Timings {
    /// Finding, unpacking and patching the source.
    pub(crate) source: f64,
    /// By arm, in the order of the arms.
    pub(crate) build: IndexMap<String, f64>,
    /// All guests that boot, from QEMU's start to the agent's first message; or to having been saved.
    pub(crate) boot: f64,
    /// Restoring checkpoints instead of booting.
    pub(crate) restore: f64,
    /// All guests, from the agent's first message to its last.
    pub(crate) trial: f64,
    /// Statistics and reports.
    pub(crate) analyse: f64,
}

impl Shape {
    /// How many CPUs that makes.
    pub(crate) fn cpus(&self) -> u32 {
        self.sockets * self.clusters * self.cores * self.threads
    }
}
