// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent sees of the isolated CPUs: raw observations, which the host judges. A file that the
//! guest does not have gives an empty value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything observed, before the workloads start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Ticks of each CPU that was kept busy or is not isolated, by number.
    pub ticks: Vec<Ticks>,
    /// The CPUs after "Full dynticks CPUs" in the kernel's log, as a CPU list.
    pub dynticks_log: String,
    /// The CPUs after "Offload RCU callbacks from CPUs" in the kernel's log, as a CPU list.
    pub rcu_offloaded_log: String,
    /// Other lines of the kernel's log that tell of isolation that failed, such as a clock source marked
    /// unstable or a boot CPU taken out of `nohz_full`.
    pub complaints: Vec<String>,
    /// Interrupts that may be delivered to an isolated CPU.
    pub irqs: Vec<Irq>,
    /// /sys/devices/virtual/workqueue/cpumask, as a CPU list.
    pub workqueues: String,
    /// Kernel threads that may run on an isolated CPU though they are not bound to it, but for those whose
    /// CPUs the kernel has set for good.
    pub unbound: Vec<Task>,
    /// Tasks that ran last on an isolated CPU though they are not bound to it.
    pub strays: Vec<Task>,
    /// Why the tick of an isolated CPU could not stop, from the tracepoint `timer:tick_stop`; empty where
    /// the kernel has no such tracepoint.
    pub tick_dependencies: Vec<TickDependency>,
    /// Settings below /proc/sys that matter beside isolation, by path: RT throttling, watchdogs,
    /// `vm.stat_interval`.
    pub settings: BTreeMap<String, String>,
}

/// Timer ticks of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// Linux's number.
    pub cpu: u32,
    /// Whether the CPU was kept busy by one thread while its ticks were counted.
    pub busy: bool,
    /// Local timer interrupts.
    pub count: u64,
    /// In nanoseconds of the guest's clock.
    pub window_ns: u64,
}

/// One interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// What it serves, from /proc/interrupts.
    pub name: String,
    /// Where it is delivered: `effective_affinity_list`, or else `smp_affinity_list`, as a CPU list.
    pub cpus: String,
    /// Where it may be moved, `smp_affinity_list`; the same as `cpus` where nobody can move it.
    pub allowed: String,
}

/// One task of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its number.
    pub pid: u32,
    /// `comm`.
    pub name: String,
    /// The CPUs that it may run on, as a CPU list.
    pub allowed: String,
    /// The CPU that it ran on last.
    pub cpu: u32,
}

/// What kept a tick running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickDependency {
    /// Linux's number of the CPU.
    pub cpu: u32,
    /// The kernel's word, such as `SCHED` or `CLOCK_UNSTABLE`.
    pub why: String,
    /// How often.
    pub count: u64,
}
