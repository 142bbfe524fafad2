// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiment files: from YAML as typed to an [`Experiment`] that is valid by construction.
//!
//! `raw` is what a person wrote, `check` turns it into what can be planned, `diagnose` words what is
//! wrong with file, line, column and the nearest valid name, `schema` is the same structure for editors.
//! Reading the file, and that of a machine it names, is all the input this stage does; it never looks at
//! the host.

mod check;
mod diagnose;
mod located;
mod names;
mod raw;
mod schema;
mod size;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use twinboot_protocol::Workload;

pub(crate) use diagnose::ConfigError;
pub(crate) use names::cpus as cpu_words;
pub(crate) use schema::schema;
#[cfg(test)]
pub(crate) use tests::{own_machines, with_guest};

/// One experiment, checked. Every path in it is absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Experiment {
    /// Letters, digits, `-` and `_`.
    pub(crate) name: String,
    /// What the experiment asks, for the report's first line.
    pub(crate) question: Option<String>,
    /// The file it was read from.
    pub(crate) file: PathBuf,
    pub(crate) kernel: Kernel,
    pub(crate) guest: Guest,
    /// At least two; the first is the base.
    pub(crate) arms: Vec<Arm>,
    pub(crate) trial: Trial,
    pub(crate) judge: Judge,
}

impl Experiment {
    /// Gives the second arm these patches instead of its own.
    pub(crate) fn replace_patches(&mut self, patches: Vec<PatchSource>) {
        self.arms[1].patches = patches;
    }

    /// Compares the base with itself.
    pub(crate) fn as_aa(&mut self) {
        self.arms.truncate(1);
        let again = Arm { name: Arm::AGAIN.to_owned(), ..self.arms[0].clone() };
        self.arms.push(again);
    }
}

/// What the kernels of all arms have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kernel {
    /// Alternatives; the first that is there is used.
    pub(crate) sources: Vec<Source>,
    /// Configuration beside the base's and the architecture's fragments, applied in order.
    pub(crate) config: KernelConfig,
    pub(crate) compiler: Compiler,
}

/// What compiles the kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compiler {
    /// GCC and the GNU binary utilities.
    #[default]
    Gcc,
    /// Clang and LLVM's binary utilities: the kernel's `LLVM=1`.
    Clang,
}

/// Kernel configuration asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelConfig {
    /// Fragments: a name out of kernel-configs/, or a path.
    pub(crate) fragments: Vec<Fragment>,
    /// Single options, `CONFIG_X` to `y`, `n`, a number or a string; applied last.
    pub(crate) options: IndexMap<String, String>,
}

/// One configuration fragment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fragment {
    /// One of Twinboot's own, by name.
    Named(String),
    /// A file.
    File(PathBuf),
}

/// Where a kernel source comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// A git repository and a revision of it.
    Git { repository: Location, revision: String },
    /// An unpacked source, never written to.
    Directory(PathBuf),
    /// A tar archive in any compression that `tar` knows. A download has its SHA-256, in hexadecimal.
    Tarball { location: Location, sha256: Option<String> },
    /// Debian's package `linux-source-X`, when it is installed.
    Debian { package: String },
}

/// A path or an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Location {
    Path(PathBuf),
    Url(String),
}

/// The guest that every arm boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub(crate) arch: Arch,
    pub(crate) topology: Topology,
    pub(crate) accel: Accel,
    /// For plain emulation; what suits the architecture when absent.
    pub(crate) emulator_threads: Option<EmulatorThreads>,
    pub(crate) clock: Clock,
    /// Each arm's guest boots once, and is restored for each trial.
    #[serde(default)]
    pub(crate) checkpoint: bool,
    /// CPUs that are kept free of other work.
    pub(crate) isolate: Option<Isolate>,
    /// Kernel parameters beside the architecture's.
    pub(crate) cmdline: Vec<String>,
}

/// An architecture that Twinboot can test. What depends on it stands in `vm::arch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(description = "The architecture to test.")]
pub(crate) enum Arch {
    #[serde(rename = "x86_64")]
    X86_64,
    Aarch64,
    Ppc64le,
}

/// How CPUs and memory are arranged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Topology {
    pub(crate) sockets: u32,
    /// Clusters of each socket; 1 is a machine without them.
    pub(crate) clusters: u32,
    /// Cores of each cluster.
    pub(crate) cores: u32,
    /// Threads of each core.
    pub(crate) threads: u32,
    /// Memory nodes, at least one. Each CPU is in exactly one.
    pub(crate) nodes: Vec<MemoryNode>,
    /// From each node to each, as ACPI counts: 10 within a node.
    pub(crate) distances: Vec<Vec<u32>>,
}

/// A memory node: memory and the CPUs near to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryNode {
    /// Sorted; may be empty.
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory_mib: u64,
}

impl Topology {
    /// One node with everything.
    pub(crate) fn flat(sockets: u32, cores: u32, threads: u32, memory_mib: u64) -> Self {
        let node = MemoryNode { cpus: (0..sockets * cores * threads).collect(), memory_mib };
        Self { sockets, clusters: 1, cores, threads, nodes: vec![node], distances: vec![vec![10]] }
    }

    /// How many CPUs that makes.
    pub(crate) fn cpus(&self) -> u32 {
        self.sockets * self.clusters * self.cores * self.threads
    }

    /// The memory of all nodes, in MiB.
    pub(crate) fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }
}

/// CPUs that are kept free of other work, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Isolate {
    /// Sorted, never empty, never all.
    pub(crate) cpus: Vec<u32>,
    /// Sorted, each once, never empty.
    pub(crate) from: Vec<Disturbance>,
}

/// What an isolated CPU is kept free of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturbance {
    /// Tasks that were not put there: `isolcpus=domain`, and with it unbound workqueues.
    Tasks,
    /// The timer tick, while one task runs: `nohz_full`.
    Tick,
    /// RCU callbacks: `rcu_nocbs`.
    Rcu,
    /// Device interrupts: `irqaffinity`, and `isolcpus=managed_irq`.
    Interrupts,
}

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accel {
    /// KVM where a probe guest ran under it, else emulation.
    Auto,
    /// KVM, or an error.
    Kvm,
    /// Emulation.
    Tcg,
}

/// How many threads emulate the guest's CPUs against the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EmulatorThreads {
    /// One for all CPUs, which take turns.
    One,
    /// One for each CPU.
    Each,
}

/// What the guest's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clock {
    /// Instructions executed: the same on every host.
    Virtual,
    /// The host's time.
    Wall,
}

/// One variant under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arm {
    pub(crate) name: String,
    /// Applied in this order.
    pub(crate) patches: Vec<PatchSource>,
    /// Configuration that this arm has beyond `Kernel::config`.
    pub(crate) config: KernelConfig,
    /// Kernel parameters beyond `Guest::cmdline`.
    pub(crate) cmdline: Vec<String>,
}

impl Arm {
    /// The base's twin when it is compared with itself. No base has this name.
    pub(crate) const AGAIN: &'static str = "again";
}

/// Where patches come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PatchSource {
    /// A patch, a mailbox (also gzipped) or a directory of either, told apart by what is in it.
    Path(PathBuf),
    /// The commits `A..B` of a repository; `None` is the repository of the kernel source.
    Range { repository: Option<PathBuf>, range: String },
    /// The reverse of one commit.
    Revert { repository: Option<PathBuf>, commit: String },
}

/// What one trial does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// In nanoseconds of the guest's clock.
    pub(crate) warm_up_ns: u64,
    pub(crate) workloads: Vec<Workload>,
}

/// How the trials are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judge {
    /// Decides the verdict.
    pub(crate) primary: Metric,
    /// Judged beside it, Holm-corrected.
    pub(crate) also: Vec<Metric>,
    /// A ratio: 0.05 is 5 %.
    pub(crate) minimum_effect: f64,
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
}

impl Judge {
    /// All metrics that are judged, the primary first.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = &Metric> {
        std::iter::once(&self.primary).chain(&self.also)
    }
}

/// One number of each trial: a workload's name and a statistic of what it measured. Smaller is better.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub(crate) workload: String,
    pub(crate) statistic: Statistic,
}

/// A statistic of a latency histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Statistic {
    Mean,
    Median,
    P90,
    P99,
    P999,
    Max,
}

/// Reads and checks one experiment file.
pub(crate) fn load(file: &Path) -> Result<Experiment, ConfigError> {
    check::load(file)
}
