// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that depends on the architecture, in one table. Code elsewhere asks the table and never
//! matches on [`Arch`].

use crate::config::{Arch, Topology};

/// What an architecture needs.
#[derive(Debug)]
pub(crate) struct ArchSpec {
    /// The program that emulates it.
    pub(crate) qemu: &'static str,
    /// Debian's package of that program.
    pub(crate) qemu_package: &'static str,
    pub(crate) machine: &'static str,
    /// The CPU model under emulation; under KVM it is always `host`.
    pub(crate) tcg_cpu: &'static str,
    /// `uname -m` of a guest, and of a host on which KVM can run it.
    pub(crate) uname: &'static str,
    /// `ARCH=` of the kernel's make.
    pub(crate) make_arch: &'static str,
    /// The directory below `arch/` in the kernel's source.
    pub(crate) source_dir: &'static str,
    /// The fragment out of kernel-configs/ that every guest of it has.
    pub(crate) fragment: &'static str,
    /// Files that a build from nothing makes, before one was counted on this host.
    pub(crate) build_steps: u32,
    /// Prefix of the compiler's programs; empty for the host's own.
    pub(crate) cross_prefix: &'static str,
    /// The make target and the file, in the build directory, that QEMU loads.
    pub(crate) image: &'static str,
    pub(crate) max_cpus: u32,
    /// Device that tells the host of a guest's panic.
    pub(crate) panic_device: &'static str,
    /// Kernel parameters of every guest, each with its reason.
    pub(crate) parameters: &'static [Parameter],
    /// Kernel parameters of every emulated guest.
    pub(crate) tcg_parameters: &'static [Parameter],
    /// Layout of `struct bug_entry` in `__bug_table`, to compare kernels without their line numbers.
    pub(crate) bug_entry: BugEntry,
}

/// A kernel parameter and why it is there.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) text: &'static str,
    pub(crate) reason: &'static str,
}

/// Where `struct bug_entry` keeps the source line (include/asm-generic/bug.h, with relative pointers).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BugEntry {
    pub(crate) size: usize,
    pub(crate) line_offset: usize,
    pub(crate) line_size: usize,
}

const X86_64: ArchSpec = ArchSpec {
    qemu: "qemu-system-x86_64",
    qemu_package: "qemu-system-x86",
    machine: "q35",
    tcg_cpu: "max",
    uname: "x86_64",
    make_arch: "x86_64",
    source_dir: "x86",
    fragment: "x86_64",
    build_steps: 1250,
    cross_prefix: "",
    image: "vmlinux",
    max_cpus: 255,
    panic_device: "pvpanic",
    parameters: &[
        Parameter { text: "console=ttyS0", reason: "the serial port is the console" },
        Parameter { text: "panic=-1", reason: "a panic ends QEMU at once" },
        Parameter { text: "reboot=t", reason: "a restart is a triple fault: nothing to wait for" },
        Parameter { text: "loglevel=5", reason: "warnings and worse reach the console, chatter does not" },
    ],
    tcg_parameters: &[
        Parameter { text: "tsc=reliable", reason: "the watchdog misjudges a clock that the host may stop" },
        Parameter { text: "no_timer_check", reason: "the check races with a CPU that waits for its turn" },
        Parameter { text: "lpj=4000000", reason: "delay loops need no calibration: they read the TSC" },
    ],
    bug_entry: BugEntry { size: 12, line_offset: 8, line_size: 2 },
};

/// The table's row.
pub(crate) fn spec(arch: Arch) -> &'static ArchSpec {
    match arch {
        Arch::X86_64 => &X86_64,
    }
}

impl ArchSpec {
    /// Why this machine cannot have that topology, if so.
    pub(crate) fn refuse(&self, topology: Topology) -> Option<String> {
        let cpus = topology.cpus();
        (self.max_cpus < cpus).then(|| {
            format!(
                "{cpus} CPUs are more than the {} that the machine {} takes here",
                self.max_cpus, self.machine
            )
        })
    }
}

/// Every row of the table.
pub(crate) const ALL: &[&ArchSpec] = &[&X86_64];
