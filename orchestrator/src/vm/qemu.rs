// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's command line as a pure function of what a guest is to be. Nothing is left to QEMU's defaults
//! that could differ between versions: no default devices, no user configuration, explicit topology.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::arch::ArchSpec;
use crate::config::{EmulatorThreads, Topology};

/// What executes a guest's instructions, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// The host's CPU.
    Kvm,
    /// Emulation, against the host's clock.
    Tcg,
    /// Emulation in one thread whose clock counts instructions.
    TcgVirtual,
}

/// How a guest comes to life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It boots, and its orders have the trial.
    Boot,
    /// It boots to be saved when its agent is ready.
    Save,
    /// It was saved, and gets its state before anything runs.
    Restore,
}

/// One guest, complete.
#[derive(Clone, Debug)]
pub(crate) struct GuestSpec {
    pub(crate) arch: &'static ArchSpec,
    pub(crate) engine: Engine,
    pub(crate) start: Start,
    /// Of plain emulation; the virtual clock has one always.
    pub(crate) threads: EmulatorThreads,
    pub(crate) topology: Topology,
    pub(crate) kernel: KernelFiles,
    pub(crate) initramfs: PathBuf,
    pub(crate) command_line: String,
    pub(crate) seed: u64,
}

/// A kernel's files.
#[derive(Clone, Debug)]
pub(crate) struct KernelFiles {
    /// What QEMU loads.
    pub(crate) image: PathBuf,
    /// The linked kernel with its symbols.
    pub(crate) symbols: PathBuf,
}

/// The numbers of the three sockets that a QEMU inherits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    pub(crate) console: i32,
    pub(crate) port: i32,
    pub(crate) qmp: i32,
}

/// Where a guest's console and port lead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Console {
    /// To Twinboot.
    Channels(Channels),
    /// To the terminal, for a person; nobody listens to the port.
    Terminal,
}

/// The kernel's command line: the architecture's parameters, then `more`: those of isolated CPUs, the
/// experiment's, the arm's.
pub(crate) fn command_line(arch: &ArchSpec, engine: Engine, more: &[&[String]]) -> String {
    let emulated = if engine == Engine::Kvm { &[] } else { arch.tcg_parameters };
    let fixed = arch.parameters.iter().chain(emulated).map(|parameter| parameter.text);
    let asked = more.iter().copied().flatten().map(String::as_str);
    fixed.chain(asked).collect::<Vec<_>>().join(" ")
}

/// QEMU's arguments, without the program.
pub(crate) fn arguments(guest: &GuestSpec, console: Console) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));

    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-name", "twinboot,debug-threads=on"]);
    add(&["-machine", guest.arch.machine]);
    if let Some(firmware) = guest.arch.firmware {
        add(&["-bios", firmware]);
    }
    match guest.engine {
        Engine::Kvm => add(&["-accel", "kvm", "-cpu", "host"]),
        Engine::Tcg => {
            let threads = match guest.threads {
                EmulatorThreads::One => "tcg,thread=single",
                EmulatorThreads::Each => "tcg,thread=multi",
            };
            add(&["-accel", threads, "-cpu", guest.arch.tcg_cpu]);
        }
        Engine::TcgVirtual => {
            add(&["-accel", "tcg,thread=single", "-cpu", guest.arch.tcg_cpu]);
            // One instruction is one nanosecond, and an idle guest does not wait for the host.
            add(&["-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm"]);
        }
    }
    add(&["-seed", &(guest.seed & u64::from(u32::MAX)).to_string()]);
    arguments_of_topology(&guest.topology, &mut add);

    match console {
        Console::Channels(channels) => {
            add(&["-chardev", &format!("socket,id=console,fd={}", channels.console)]);
            add(&["-chardev", &format!("socket,id=port,fd={}", channels.port)]);
            add(&["-chardev", &format!("socket,id=qmp,fd={}", channels.qmp)]);
            add(&["-mon", "chardev=qmp,mode=control"]);
        }
        Console::Terminal => {
            add(&["-chardev", "stdio,id=console,mux=on,signal=off", "-mon", "chardev=console,mode=readline"]);
            add(&["-chardev", "null,id=port"]);
        }
    }
    let (option, value) = guest.arch.console;
    add(&[option, value]);
    // A doorbell handled in another thread comes when the host pleases: the virtual clock wants it at once.
    add(&["-device", "virtio-serial-pci,ioeventfd=off"]);
    add(&["-device", &format!("virtserialport,chardev=port,name={}", twinboot_protocol::PORT_NAME)]);
    if let Some(device) = guest.arch.panic_device {
        add(&["-device", device]);
    }
    match guest.start {
        Start::Boot => add(&["-action", "panic=none"]),
        // The agent has the watchdog stop the machine where it is to be saved.
        Start::Save => add(&["-device", "i6300esb", "-action", "panic=none,watchdog=pause"]),
        Start::Restore => {
            add(&["-device", "i6300esb", "-action", "panic=none,watchdog=pause", "-incoming", "defer"]);
        }
    }

    add(&["-kernel", &guest.kernel.image.to_string_lossy(), "-initrd", &guest.initramfs.to_string_lossy()]);
    add(&["-append", &guest.command_line]);
    arguments
}

/// CPUs and memory, everything explicit: what QEMU assumes differs between its versions.
fn arguments_of_topology(topology: &Topology, add: &mut impl FnMut(&[&str])) {
    let Topology { sockets, clusters, cores, threads, nodes, distances } = topology;
    let cpus = topology.cpus();
    let clusters = if *clusters == 1 { String::new() } else { format!("clusters={clusters},") };
    add(&[
        "-smp",
        &format!("{cpus},maxcpus={cpus},sockets={sockets},{clusters}cores={cores},threads={threads}"),
    ]);
    add(&["-m", &format!("{}M", topology.memory_mib())]);
    for (id, node) in nodes.iter().enumerate() {
        let memory = node.memory_mib;
        add(&["-object", &format!("memory-backend-ram,id=memory{id},size={memory}M")]);
        let near = twinboot_protocol::cpu_list::format(&node.cpus);
        let near: String =
            near.split(',').filter(|range| !range.is_empty()).map(|range| format!(",cpus={range}")).collect();
        add(&["-numa", &format!("node,nodeid={id}{near},memdev=memory{id}")]);
    }
    for (from, row) in distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|(to, _)| from != *to) {
            add(&["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arch, MemoryNode};
    use crate::vm::arch;

    /// Options with their values, a line each.
    fn lines(arguments: &[String]) -> String {
        let mut text = String::new();
        for argument in arguments {
            text.push_str(if argument.starts_with('-') { "\n" } else { " " });
            text.push_str(argument);
        }
        text.trim_start().to_owned()
    }

    fn guest(arch: Arch, topology: Topology, engine: Engine) -> GuestSpec {
        let arch = arch::spec(arch);
        GuestSpec {
            arch,
            engine,
            start: Start::Boot,
            threads: arch.emulator_threads(topology.cpus()),
            topology,
            kernel: KernelFiles { image: "kernel".into(), symbols: "vmlinux".into() },
            initramfs: "initramfs".into(),
            command_line: command_line(arch, engine, &[]),
            seed: 7,
        }
    }

    /// Each of Twinboot's own machines, emulated with either clock.
    #[test]
    fn own_machines() {
        let console = Console::Channels(Channels { console: 3, port: 4, qmp: 5 });
        for (name, (arch, topology)) in crate::config::own_machines() {
            for (clock, engine) in [("wall", Engine::Tcg), ("virtual", Engine::TcgVirtual)] {
                let arguments = arguments(&guest(arch, topology.clone(), engine), console);
                insta::with_settings!({
                    snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines"),
                    prepend_module_to_snapshot => false,
                    omit_expression => true,
                }, { insta::assert_snapshot!(format!("{name}_{clock}"), lines(&arguments)) });
            }
        }
    }

    #[test]
    fn nodes_with_several_ranges_and_without_cpus() {
        let node = |cpus: &[u32], memory_mib| MemoryNode { cpus: cpus.to_vec(), memory_mib };
        let topology = Topology {
            sockets: 1,
            clusters: 1,
            cores: 4,
            threads: 1,
            nodes: vec![node(&[0, 1, 3], 512), node(&[2], 256), node(&[], 128)],
            distances: vec![vec![10, 20, 30], vec![20, 10, 40], vec![30, 40, 10]],
        };
        let mut arguments = Vec::new();
        arguments_of_topology(&topology, &mut |words| {
            arguments.extend(words.iter().map(|&word| word.to_owned()));
        });
        let expected = "-smp 4,maxcpus=4,sockets=1,cores=4,threads=1
-m 896M
-object memory-backend-ram,id=memory0,size=512M
-numa node,nodeid=0,cpus=0-1,cpus=3,memdev=memory0
-object memory-backend-ram,id=memory1,size=256M
-numa node,nodeid=1,cpus=2,memdev=memory1
-object memory-backend-ram,id=memory2,size=128M
-numa node,nodeid=2,memdev=memory2
-numa dist,src=0,dst=1,val=20
-numa dist,src=0,dst=2,val=30
-numa dist,src=1,dst=0,val=20
-numa dist,src=1,dst=2,val=40
-numa dist,src=2,dst=0,val=30
-numa dist,src=2,dst=1,val=40";
        assert_eq!(lines(&arguments), expected);
    }
}
