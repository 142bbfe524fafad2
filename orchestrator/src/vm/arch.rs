// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that depends on the architecture, in one table. Code elsewhere asks the table and never
//! matches on [`Arch`].

use std::time::Duration;

use super::qemu::Engine;
use crate::config::{Arch, EmulatorThreads, Topology};

/// What an architecture needs.
#[derive(Debug)]
pub(crate) struct ArchSpec {
    /// The program that emulates it.
    pub(crate) qemu: &'static str,
    /// Debian's package of that program.
    pub(crate) qemu_package: &'static str,
    pub(crate) machine: &'static str,
    /// Firmware other than the machine's own, out of QEMU's data directory.
    pub(crate) firmware: Option<&'static str>,
    /// The CPU model under emulation; under KVM it is always `host`.
    pub(crate) tcg_cpu: &'static str,
    /// How long a boot takes on two cores.
    pub(crate) boot: BootTimes,
    /// The most CPUs that plain emulation gives a thread each; above, one thread serves all.
    pub(crate) threads_up_to: u32,
    /// Why a saved guest cannot be restored, where it cannot.
    pub(crate) no_checkpoints: Option<&'static str>,
    /// How QEMU is told of the console's character device: an option and its value.
    pub(crate) console: (&'static str, &'static str),
    /// `uname -m` of a guest, and of a host on which KVM can run it.
    pub(crate) uname: &'static str,
    /// The same in Rust's words.
    pub(crate) rust_name: &'static str,
    /// `ARCH=` of the kernel's make.
    pub(crate) make_arch: &'static str,
    /// The directory below `arch/` in the kernel's source.
    pub(crate) source_dir: &'static str,
    /// The fragment out of kernel-configs/ that every guest of it has.
    pub(crate) fragment: &'static str,
    /// Files that a build from nothing makes, before one was counted on this host.
    pub(crate) build_steps: u32,
    /// Prefix of the compiler's programs on another architecture's host.
    pub(crate) cross_prefix: &'static str,
    /// The make target of what QEMU loads.
    pub(crate) image: &'static str,
    /// The file that this makes, in the build directory.
    pub(crate) image_path: &'static str,
    pub(crate) limits: Limits,
    /// Device that tells the host of a guest's panic, where the machine does not do so by itself.
    pub(crate) panic_device: Option<&'static str>,
    /// Kernel parameters of every guest, each with its reason.
    pub(crate) parameters: &'static [Parameter],
    /// Kernel parameters of every emulated guest.
    pub(crate) tcg_parameters: &'static [Parameter],
    /// Layout of `struct bug_entry` in `__bug_table`, to compare kernels without their line numbers.
    pub(crate) bug_entry: BugEntry,
}

/// Seconds from QEMU's start to the agent's first sign, measured on two cores without KVM: for any guest, and
/// for each of its CPUs.
#[derive(Debug)]
pub(crate) struct BootTimes {
    pub(crate) emulated: (f64, f64),
    pub(crate) virtual_clock: (f64, f64),
}

/// What a machine cannot have more of, with the reason.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) cpus: u32,
    pub(crate) why_cpus: &'static str,
    /// The numbers of threads that a core may have.
    pub(crate) threads: &'static [u32],
    pub(crate) why_threads: &'static str,
    /// Whether sockets may have clusters.
    pub(crate) clusters: bool,
    /// Each node's memory is a multiple of this, in MiB.
    pub(crate) node_memory_mib: u64,
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
    // A disk controller and a bus that nobody uses would be probed at each boot.
    machine: "q35,sata=off,smbus=off,usb=off",
    // The usual one, SeaBIOS, starts every CPU once to count them: 3 s of a boot with 128. This one does not.
    firmware: Some("qboot.rom"),
    // By itself `max` is an AMD model whose cores cannot have threads. Its MONITOR would be a busy wait.
    tcg_cpu: "max,vendor=GenuineIntel,monitor=off",
    // Linux calibrates the local timer in a loop of 100 ms, each round of which gives every emulated CPU a turn: that
    // is where the virtual clock's time goes.
    boot: BootTimes { emulated: (2.0, 0.08), virtual_clock: (3.0, 1.5) },
    // 128 CPUs are up in 15 s with a thread each, and in over 40 s with one: its CPUs wait for each other in
    // loops that would last a whole turn.
    threads_up_to: u32::MAX,
    no_checkpoints: None,
    console: ("-serial", "chardev:console"),
    uname: "x86_64",
    rust_name: "x86_64",
    make_arch: "x86_64",
    source_dir: "x86",
    fragment: "x86_64",
    build_steps: 1250,
    cross_prefix: "x86_64-linux-gnu-",
    image: "vmlinux",
    image_path: "vmlinux",
    limits: Limits {
        cpus: 255,
        why_cpus: "the machine q35 without an interrupt remapper",
        threads: &[1, 2, 4, 8],
        why_threads: "thread numbers are bits of an APIC id",
        clusters: false,
        node_memory_mib: 1,
    },
    panic_device: Some("pvpanic"),
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
        Parameter {
            text: "cpuhp.parallel=0",
            reason: "128 CPUs that start together fight for two cores: 14 s",
        },
    ],
    bug_entry: BugEntry { size: 12, line_offset: 8, line_size: 2 },
};

const AARCH64: ArchSpec = ArchSpec {
    qemu: "qemu-system-aarch64",
    qemu_package: "qemu-system-arm",
    // Interrupt controllers of version 2 end at 8 CPUs. Its translation service has tables for each CPU, which
    // take Linux a fifth of its boot, and one port needs no message interrupts. A device tree without random
    // seeds boots alike each time.
    machine: "virt,gic-version=3,its=off,dtb-randomness=off",
    firmware: None,
    // The core of Ampere's Altra: the atomics of Armv8.1, and nothing that is slow to emulate.
    tcg_cpu: "neoverse-n1",
    boot: BootTimes { emulated: (1.5, 0.1), virtual_clock: (1.0, 0.2) },
    // On two cores 128 CPUs take 14 s with one thread and 35 s with 128, which wait for each other's locks.
    threads_up_to: 16,
    no_checkpoints: None,
    console: ("-serial", "chardev:console"),
    uname: "aarch64",
    rust_name: "aarch64",
    make_arch: "arm64",
    source_dir: "arm64",
    fragment: "aarch64",
    build_steps: 1100,
    cross_prefix: "aarch64-linux-gnu-",
    image: "Image",
    image_path: "arch/arm64/boot/Image",
    limits: Limits {
        cpus: 512,
        why_cpus: "the machine virt with an interrupt controller GICv3",
        threads: &[1, 2, 4, 8],
        why_threads: "thread numbers are bits of an affinity value",
        clusters: true,
        node_memory_mib: 1,
    },
    panic_device: Some("pvpanic-pci"),
    parameters: &[
        Parameter { text: "console=ttyAMA0", reason: "the PL011 serial port is the console" },
        Parameter { text: "panic=-1", reason: "a panic ends QEMU at once" },
        Parameter { text: "loglevel=5", reason: "warnings and worse reach the console, chatter does not" },
    ],
    tcg_parameters: &[],
    bug_entry: BugEntry { size: 12, line_offset: 8, line_size: 2 },
};

const PPC64LE: ArchSpec = ArchSpec {
    qemu: "qemu-system-ppc64",
    qemu_package: "qemu-system-ppc",
    // The virtual firmware takes the place of SLOF, which alone runs for seconds. There is nothing to guard
    // against in an emulated CPU that does not speculate, and QEMU says so for each guard not switched off.
    machine: "pseries,x-vof=on,cap-htm=off,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off",
    firmware: None,
    tcg_cpu: "power9",
    boot: BootTimes { emulated: (3.0, 0.07), virtual_clock: (3.0, 0.17) },
    // On two cores 104 CPUs take 10 s with one thread and 66 s with 104.
    threads_up_to: 16,
    // Restored, every CPU waits for ever: QEMU does not save when the decrementers are due.
    no_checkpoints: Some("an emulated POWER guest loses its timers"),
    console: ("-serial", "chardev:console"),
    uname: "ppc64le",
    rust_name: "powerpc64",
    make_arch: "powerpc",
    source_dir: "powerpc",
    fragment: "ppc64le",
    build_steps: 1300,
    cross_prefix: "powerpc64le-linux-gnu-",
    image: "vmlinux",
    image_path: "vmlinux",
    limits: Limits {
        cpus: 4096,
        why_cpus: "the machine pseries",
        threads: &[1, 2, 4, 8],
        why_threads: "a POWER core has 1, 2, 4 or 8 threads",
        clusters: false,
        node_memory_mib: 256,
    },
    panic_device: None,
    parameters: &[
        Parameter { text: "console=hvc0", reason: "the hypervisor's virtual terminal is the console" },
        Parameter { text: "panic=-1", reason: "a panic ends QEMU at once" },
        Parameter { text: "loglevel=5", reason: "warnings and worse reach the console, chatter does not" },
    ],
    tcg_parameters: &[],
    bug_entry: BugEntry { size: 12, line_offset: 8, line_size: 2 },
};

/// The table's row.
pub(crate) fn spec(arch: Arch) -> &'static ArchSpec {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Aarch64 => &AARCH64,
        Arch::Ppc64le => &PPC64LE,
    }
}

impl ArchSpec {
    /// How long a guest of so many CPUs probably takes to its agent's first sign.
    pub(crate) fn boot_time(&self, engine: Engine, cpus: u32) -> Duration {
        let (any, each) = match engine {
            Engine::Kvm => (1.0, 0.05),
            Engine::Tcg => self.boot.emulated,
            Engine::TcgVirtual => self.boot.virtual_clock,
        };
        Duration::from_secs_f64(any + each * f64::from(cpus))
    }

    /// How many threads emulate a guest of so many CPUs, unless the experiment says.
    pub(crate) fn emulator_threads(&self, cpus: u32) -> EmulatorThreads {
        if cpus <= self.threads_up_to { EmulatorThreads::Each } else { EmulatorThreads::One }
    }

    /// Whether it is this host's own.
    pub(crate) fn is_hosts(&self) -> bool {
        self.rust_name == std::env::consts::ARCH
    }

    /// The prefix of its compiler's programs; none where it is the host's own.
    pub(crate) fn compiler_prefix(&self) -> &'static str {
        if self.is_hosts() { "" } else { self.cross_prefix }
    }

    /// Why this machine cannot have that topology, if so.
    pub(crate) fn refuse(&self, topology: &Topology) -> Option<String> {
        let Limits { cpus, why_cpus, threads, why_threads, clusters, node_memory_mib } = &self.limits;
        let asked = topology.cpus();
        if *cpus < asked {
            return Some(format!("{asked} CPUs are more than the {cpus} that {why_cpus} takes here"));
        }
        if !threads.contains(&topology.threads) {
            let valid: Vec<String> = threads.iter().map(ToString::to_string).collect();
            let (asked, valid) = (topology.threads, valid.join(", "));
            return Some(format!(
                "{asked} threads to a core are not among the {valid} that are possible: {why_threads}"
            ));
        }
        if !clusters && topology.clusters != 1 {
            return Some(format!("the machine {} has no clusters of cores", self.machine_name()));
        }
        let odd = topology.nodes.iter().position(|node| !node.memory_mib.is_multiple_of(*node_memory_mib))?;
        Some(format!(
            "memory node {odd} has {} MiB, and the machine {} takes multiples of {node_memory_mib} MiB",
            topology.nodes[odd].memory_mib,
            self.machine_name()
        ))
    }

    /// The machine without its properties.
    fn machine_name(&self) -> &str {
        self.machine.split(',').next().unwrap_or_default()
    }
}

/// Every row of the table.
pub(crate) const ALL: &[&ArchSpec] = &[&X86_64, &AARCH64, &PPC64LE];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MemoryNode;

    #[track_caller]
    fn check(arch: Arch, topology: &Topology, expected: Option<&str>) {
        assert_eq!(spec(arch).refuse(topology).as_deref(), expected);
    }

    #[test]
    fn impossible_machines_are_refused_with_the_reason() {
        let threads = |threads| Topology::flat(1, 2, threads, 512);
        for arch in [Arch::X86_64, Arch::Aarch64, Arch::Ppc64le] {
            check(arch, &threads(1), None);
            check(arch, &threads(8), None);
        }
        let not_three = "3 threads to a core are not among the 1, 2, 4, 8 that are possible: a POWER core has \
                         1, 2, 4 or 8 threads";
        check(Arch::Ppc64le, &threads(3), Some(not_three));

        let cpus = |cores| Topology::flat(1, cores, 1, 512);
        check(Arch::X86_64, &cpus(255), None);
        let too_many = "256 CPUs are more than the 255 that the machine q35 without an interrupt remapper takes \
                        here";
        check(Arch::X86_64, &cpus(256), Some(too_many));
        check(Arch::Aarch64, &cpus(512), None);
        let too_many = "513 CPUs are more than the 512 that the machine virt with an interrupt controller GICv3 \
                        takes here";
        check(Arch::Aarch64, &cpus(513), Some(too_many));

        let clusters = Topology { clusters: 2, ..cpus(1) };
        check(Arch::Aarch64, &clusters, None);
        check(Arch::X86_64, &clusters, Some("the machine q35 has no clusters of cores"));

        let second = MemoryNode { cpus: vec![], memory_mib: 384 };
        let nodes = Topology { nodes: [cpus(1).nodes, vec![second]].concat(), ..cpus(1) };
        check(Arch::X86_64, &nodes, None);
        let odd = "memory node 1 has 384 MiB, and the machine pseries takes multiples of 256 MiB";
        check(Arch::Ppc64le, &nodes, Some(odd));
    }
}
