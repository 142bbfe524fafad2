// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment file as a person writes it. The comments here are what an editor shows.
//!
//! Only the kinds of values are settled here; what they may say is `check`'s part. A choice between
//! kinds is a mapping with one key, held as a struct of which `check` wants exactly one field: derived
//! enums with content would take `- pingpong` and swallow the entry that follows.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use twinboot_protocol::{Channel, Partners, Spin as ProtocolSpin};

use super::located::{Located, Maybe};
use super::{Accel, Arch, Clock, Compiler, Disturbance, EmulatorThreads};

/// One question about a kernel patch: the arms to compare, the guest to boot them in, the load to put
/// on them and how to judge what was measured.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Twinboot experiment")]
pub(super) struct Experiment {
    /// Names the experiment in results.
    pub(super) name: Located<Name>,
    /// What the experiment asks, in a sentence; the report begins with it.
    #[serde(default)]
    pub(super) question: Maybe<Located<String>>,
    pub(super) kernel: Kernel,
    pub(super) guest: Located<Guest>,
    /// The variants to compare, in order. The first is the base; at least two.
    #[schemars(extend("minProperties" = 2))]
    pub(super) arms: Located<IndexMap<Located<Name>, Arm>>,
    pub(super) trial: Trial,
    pub(super) judge: Judge,
}

/// Letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct Name(#[schemars(regex(pattern = "^[A-Za-z0-9_-]+$"))] pub(super) String);

/// What the kernels of all arms have in common.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    /// Where the source comes from: alternatives, of which the first that is there is used.
    #[schemars(extend("minItems" = 1))]
    pub(super) sources: Located<Vec<Located<Source>>>,
    /// Configuration fragments beside the base's: a bare word is one of Twinboot's own, anything with a
    /// `/` or ending in `.config` is a file, relative to this one.
    #[serde(default)]
    pub(super) fragments: Vec<Located<String>>,
    /// Single options, applied last: `CONFIG_FOO: y`, `n`, a number or a string.
    #[serde(default)]
    pub(super) options: Options,
    /// What compiles the kernels; `gcc` unless said otherwise.
    #[serde(default)]
    pub(super) compiler: Compiler,
}

/// Single options of the kernel's configuration, without modules.
pub(super) type Options = IndexMap<Located<OptionName>, Located<OptionValue>>;

/// An option of the kernel's configuration, such as `CONFIG_PREEMPT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct OptionName(#[schemars(regex(pattern = "^CONFIG_[A-Za-z0-9_]+$"))] pub(super) String);

/// `y`, `n`, a number or a string.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct OptionValue(
    #[schemars(extend("type" = ["string", "integer"], "not" = {"const": "m"}))] pub(super) String,
);

/// Where a kernel source comes from: exactly one of these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct Source {
    /// A source package of Debian, when it is installed.
    #[schemars(regex(pattern = r"^linux-source-[0-9.]+$"))]
    pub(super) debian: Maybe<Located<String>>,
    /// A tar archive.
    pub(super) tarball: Maybe<Located<Tarball>>,
    /// A git repository and a revision of it.
    pub(super) git: Maybe<Located<Git>>,
    /// An unpacked source, never written to.
    pub(super) directory: Maybe<Located<String>>,
}

/// A tar archive: a `path`, or a `url` with its `sha256`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tarball {
    /// A file, relative to this one.
    pub(super) path: Maybe<Located<String>>,
    /// An address to download it from.
    #[schemars(regex(pattern = "^https://"))]
    pub(super) url: Maybe<Located<String>>,
    /// The SHA-256 of the archive, in hexadecimal. A download must have it.
    #[schemars(regex(pattern = "^[0-9A-Fa-f]{64}$"))]
    pub(super) sha256: Maybe<Located<String>>,
}

/// A git repository, by `path` or `url`, and a revision of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Git {
    /// A directory, relative to this file.
    #[serde(default)]
    pub(super) path: Maybe<Located<String>>,
    /// An address to clone from.
    #[serde(default)]
    #[schemars(regex(pattern = "^https://"))]
    pub(super) url: Maybe<Located<String>>,
    /// A tag, a branch or a commit.
    pub(super) revision: Located<String>,
}

/// The guest that every arm boots: a `machine` by name, or `arch`, `topology` and `memory`, or a machine
/// of which some of these are replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{"required": ["machine"]}, {"required": ["arch", "topology"]}]))]
pub(super) struct Guest {
    /// A machine that a file of its own describes: a bare word is one of Twinboot's own, anything with a
    /// `/` or ending in `.yaml` is a file, relative to this one. What else stands here replaces its parts.
    #[serde(default)]
    pub(super) machine: Maybe<Located<String>>,
    #[serde(default)]
    pub(super) arch: Maybe<Located<Arch>>,
    #[serde(default)]
    pub(super) topology: Maybe<Located<Topology>>,
    /// All memory: a whole number and K, M or G, at least 128M. May be left out where each of `nodes` has
    /// its own.
    #[serde(default)]
    #[schemars(regex(pattern = "^[0-9]+[KMG]$"))]
    pub(super) memory: Maybe<Located<String>>,
    #[serde(default)]
    pub(super) nodes: Maybe<Located<Nodes>>,
    /// How far it is from each memory node to each, as firmware says it: 10 within a node, 11 to 254 from
    /// one to another, the same in both directions. Without it, nodes are 20 apart.
    #[serde(default)]
    pub(super) distances: Maybe<Located<Distances>>,
    /// What executes the guest's instructions.
    #[serde(default = "default_accel")]
    pub(super) accel: Located<Accel>,
    /// Threads of plain emulation, whose figures are never judged: `one` for all CPUs, or `each` CPU its own.
    /// Without it, what suits the architecture and the number of CPUs.
    #[serde(default)]
    pub(super) emulator_threads: Maybe<EmulatorThreads>,
    /// What the guest's clock counts.
    #[serde(default = "default_clock")]
    pub(super) clock: Located<Clock>,
    /// Whether each arm's guest boots once, is saved when its agent is ready, and is restored for each trial. Under the
    /// virtual clock alone, where that is what happens unless it says `false`: then each trial boots.
    #[serde(default)]
    pub(super) checkpoint: Maybe<Located<bool>>,
    #[serde(default)]
    pub(super) isolate: Maybe<Isolate>,
    /// Kernel parameters beside Twinboot's own, each one entry.
    #[serde(default)]
    pub(super) cmdline: Vec<Located<String>>,
}

/// A machine: the content of a file that a guest names, and what a guest amounts to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) arch: Located<Arch>,
    pub(super) topology: Located<Topology>,
    #[serde(default)]
    pub(super) memory: Maybe<Located<String>>,
    #[serde(default)]
    pub(super) nodes: Maybe<Located<Nodes>>,
    #[serde(default)]
    pub(super) distances: Maybe<Located<Distances>>,
}

/// How the CPUs are arranged: sockets of clusters of cores of threads. They are numbered in this order,
/// the threads of a core next to each other.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    #[schemars(range(min = 1))]
    pub(super) sockets: Located<u32>,
    /// Clusters of each socket; without it there are none. Only aarch64 has them.
    #[serde(default = "default_clusters")]
    #[schemars(range(min = 1))]
    pub(super) clusters: Located<u32>,
    /// Cores of each cluster, or of each socket where there are no clusters.
    #[schemars(range(min = 1))]
    pub(super) cores: Located<u32>,
    /// Threads of each core.
    #[schemars(range(min = 1))]
    pub(super) threads: Located<u32>,
}

/// Memory nodes: how many, which share CPUs and memory evenly, or each of them; 1 when left out.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Nodes {
    /// So many: each has whole sockets, or an equal part of one.
    Even(#[schemars(range(min = 1, max = 128))] u32),
    /// Each with its CPUs, in the order of their CPUs. Those without CPUs come last.
    Each(#[schemars(length(min = 1, max = 128))] Vec<Located<Node>>),
}

/// A memory node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    /// The CPUs near to this memory, all threads of a core together; without it there are none.
    #[serde(default)]
    pub(super) cpus: Maybe<Located<CpuList>>,
    /// A whole number and K, M or G, at least 16M.
    #[schemars(regex(pattern = "^[0-9]+[KMG]$"))]
    pub(super) memory: Located<String>,
}

/// A row for each memory node, with its distance to each.
pub(super) type Distances = Vec<Located<Vec<Located<u32>>>>;

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;

        impl<'de> Visitor<'de> for Forms {
            type Value = Nodes;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("how many nodes, or a list of `{cpus: 0-3, memory: 1G}`")
            }

            fn visit_u64<E>(self, count: u64) -> Result<Nodes, E> {
                Ok(Nodes::Even(u32::try_from(count).unwrap_or(u32::MAX)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Nodes, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = entries.next_element()? {
                    nodes.push(node);
                }
                Ok(Nodes::Each(nodes))
            }
        }

        deserializer.deserialize_any(Forms)
    }
}

/// CPUs that are kept free of other work. The kernel parameters for it, the kernel fragment `isolation` and
/// the proof in the guest come with it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Isolate {
    /// Such as `1-31,33-63` (inside `{ }` in quotes). Workloads may use them.
    pub(super) cpus: Located<CpuList>,
    /// Of what they are kept free; of all of it when left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) from: Maybe<Located<Vec<Located<Disturbance>>>>,
}

/// One variant: what it has beyond the common kernel and guest. `{}` is the plain kernel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Arm {
    /// Patches, mailboxes (also gzipped) or directories of them, relative to this file; applied in order.
    pub(super) patches: Vec<Located<String>>,
    /// Commits of a repository, applied after `patches`.
    pub(super) range: Maybe<Range>,
    /// A commit to undo, after `patches` and `range`.
    pub(super) revert: Maybe<Revert>,
    /// Configuration fragments of this arm alone.
    pub(super) fragments: Vec<Located<String>>,
    /// Configuration options of this arm alone.
    pub(super) options: Options,
    /// Kernel parameters of this arm alone.
    pub(super) cmdline: Vec<Located<String>>,
}

/// Commits of a repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    /// The commits after A up to B: `A..B`.
    #[schemars(regex(pattern = r"^[^.-].*\.\."))]
    pub(super) commits: Located<String>,
    /// A directory, relative to this file. Without it, the repository of the kernel source.
    #[serde(default)]
    pub(super) repository: Maybe<Located<String>>,
}

/// A commit to undo.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Revert {
    pub(super) commit: Located<String>,
    /// A directory, relative to this file. Without it, the repository of the kernel source.
    #[serde(default)]
    pub(super) repository: Maybe<Located<String>>,
}

/// What one trial does: warm up, then run until every workload that ends by itself has ended.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// How long everything runs before measuring begins: a whole number and ns, us, ms or s.
    #[schemars(regex(pattern = "^[0-9]+(ns|us|ms|s)$"))]
    pub(super) warm_up: Located<String>,
    /// What runs; at least one must measure.
    #[schemars(extend("minItems" = 1))]
    pub(super) workloads: Located<Vec<Located<Workload>>>,
}

/// What makes the load, or measures: exactly one of these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct Workload {
    /// Two partners wake each other in turn. Measures the latency of each wake-up.
    pub(super) pingpong: Maybe<Pingpong>,
    /// Busy threads. Load only.
    pub(super) hogs: Maybe<Hogs>,
}

/// Two partners that wake each other in turn.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pingpong {
    pub(super) via: Via,
    pub(super) between: Between,
    /// The CPU of each partner, such as `[0, 1]`; may be the same one.
    #[schemars(length(equal = 2))]
    pub(super) cpus: Located<Vec<Located<u32>>>,
    /// Measured exchanges, of two samples each.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) rounds: Located<u64>,
    /// The name of its results; `pingpong` when left out.
    #[serde(default)]
    pub(super) name: Maybe<Located<Name>>,
}

/// What carries a wake-up from one partner to the other.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Via {
    /// `futex(2)` wait and wake on a shared word.
    Futex,
    /// A pair of pipes, one byte an exchange.
    Pipe,
    /// A pair of eventfds.
    Eventfd,
    /// A stream socket pair, one byte an exchange.
    Socketpair,
    /// `sched_yield(2)` until the shared word changes.
    Yield,
}

/// Who the two partners are.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Between {
    /// Two threads of one process: the switch keeps the address space.
    Threads,
    /// Two processes: the switch changes it.
    Processes,
}

/// Busy threads pinned to CPUs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Hogs {
    /// The CPUs that get hogs, such as `0-3,8` (inside `{ }` in quotes) or `[0, 1]`.
    pub(super) cpus: Located<CpuList>,
    /// How many on each.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) per_cpu: Located<u32>,
    /// The share of time that each is busy, 1% to 100%.
    #[schemars(regex(pattern = "^[0-9]+%$"))]
    pub(super) load: Located<String>,
    pub(super) spin: Spin,
    /// The name of its results; `hogs` when left out.
    #[serde(default)]
    pub(super) name: Maybe<Located<Name>>,
}

/// What a busy hog executes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Spin {
    /// The architecture's yield hint: the emulator ends the CPU's turn, Linux still sees a busy task.
    /// The choice for the virtual clock.
    Hint,
    /// Plain arithmetic, as on a real machine.
    Plain,
}

/// CPUs as numbers and ranges with commas between, or as a YAML list of those; kept in the first form.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(inline, extend("type" = ["string", "integer", "array"], "items" = {"type": ["string", "integer"]}))]
pub(super) struct CpuList(
    #[schemars(regex(pattern = "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"))] pub(super) String,
);

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;

        impl<'de> Visitor<'de> for Forms {
            type Value = CpuList;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("CPUs such as 0-3,8 or [0, 1]")
            }

            fn visit_u64<E>(self, cpu: u64) -> Result<CpuList, E> {
                Ok(CpuList(cpu.to_string()))
            }

            fn visit_str<E>(self, list: &str) -> Result<CpuList, E> {
                Ok(CpuList(list.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<CpuList, A::Error> {
                let mut list = Vec::new();
                while let Some(part) = parts.next_element::<String>()? {
                    list.push(part);
                }
                Ok(CpuList(list.join(",")))
            }
        }

        deserializer.deserialize_any(Forms)
    }
}

/// How the trials are judged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Judge {
    /// Decides the verdict: a workload's name, a dot and a statistic.
    #[schemars(regex(pattern = METRIC))]
    pub(super) primary: Located<String>,
    /// Judged beside it, corrected for their number.
    #[serde(default)]
    #[schemars(inner(regex(pattern = METRIC)))]
    pub(super) also: Vec<Located<String>>,
    /// Changes below this do not count as such.
    #[serde(default = "default_minimum_effect")]
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?%$"))]
    pub(super) minimum_effect: Located<String>,
    /// How often each arm runs. Below 6 nothing can be concluded at 5 %.
    #[serde(default = "default_blocks")]
    #[schemars(range(min = 1, max = 200))]
    pub(super) blocks: Located<u32>,
    /// Draws the order of the arms and what differs between blocks.
    #[serde(default = "default_seed")]
    pub(super) seed: Located<u64>,
}

const METRIC: &str = r"^[A-Za-z0-9_-]+\.(mean|median|p90|p99|p999|max)$";

fn default_accel() -> Located<Accel> {
    Located::default_of(Accel::Auto)
}

fn default_clusters() -> Located<u32> {
    Located::default_of(1)
}

fn default_clock() -> Located<Clock> {
    Located::default_of(Clock::Virtual)
}

fn default_minimum_effect() -> Located<String> {
    Located::default_of("5%".to_owned())
}

fn default_blocks() -> Located<u32> {
    Located::default_of(8)
}

fn default_seed() -> Located<u64> {
    Located::default_of(1)
}

impl From<Via> for Channel {
    fn from(via: Via) -> Self {
        match via {
            Via::Futex => Self::Futex,
            Via::Pipe => Self::Pipe,
            Via::Eventfd => Self::Eventfd,
            Via::Socketpair => Self::Socketpair,
            Via::Yield => Self::Yield,
        }
    }
}

impl From<Between> for Partners {
    fn from(between: Between) -> Self {
        match between {
            Between::Threads => Self::Threads,
            Between::Processes => Self::Processes,
        }
    }
}

impl From<Spin> for ProtocolSpin {
    fn from(spin: Spin) -> Self {
        match spin {
            Spin::Hint => Self::Hint,
            Spin::Plain => Self::Plain,
        }
    }
}
