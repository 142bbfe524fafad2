// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's command line as a pure function of what a guest is to be. Nothing is left to QEMU's defaults
//! that could differ between versions: no default devices, no user configuration, explicit topology.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::arch::ArchSpec;
use crate::config::Topology;

/// What executes a guest's instructions, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// The host's CPU.
    Kvm,
    /// Emulation with a thread for each CPU, against the host's clock.
    TcgMulti,
    /// Emulation in one thread whose clock counts instructions.
    TcgVirtual,
}

/// One guest, complete.
#[derive(Clone, Debug)]
pub(crate) struct GuestSpec {
    pub(crate) arch: &'static ArchSpec,
    pub(crate) engine: Engine,
    pub(crate) topology: Topology,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) command_line: String,
    pub(crate) seed: u64,
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

/// The kernel's command line: the architecture's parameters, the experiment's, the arm's.
pub(crate) fn command_line(arch: &ArchSpec, engine: Engine, more: &[&[String]]) -> String {
    let emulated = if engine == Engine::Kvm { &[] } else { arch.tcg_parameters };
    let fixed = arch.parameters.iter().chain(emulated).map(|parameter| parameter.text);
    let asked = more.iter().copied().flatten().map(String::as_str);
    fixed.chain(asked).collect::<Vec<_>>().join(" ")
}

/// QEMU's arguments, without the program.
pub(crate) fn arguments(guest: &GuestSpec, console: Console) -> Vec<String> {
    let Topology { sockets, cores, threads } = guest.topology;
    let mut arguments = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));

    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-name", "twinboot,debug-threads=on"]);
    add(&["-machine", guest.arch.machine]);
    match guest.engine {
        Engine::Kvm => add(&["-accel", "kvm", "-cpu", "host"]),
        Engine::TcgMulti => add(&["-accel", "tcg,thread=multi", "-cpu", guest.arch.tcg_cpu]),
        Engine::TcgVirtual => {
            add(&["-accel", "tcg,thread=single", "-cpu", guest.arch.tcg_cpu]);
            // One instruction is one nanosecond, and an idle guest does not wait for the host.
            add(&["-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm"]);
        }
    }
    add(&["-seed", &(guest.seed & u64::from(u32::MAX)).to_string()]);
    let cpus = guest.topology.cpus();
    add(&["-smp", &format!("{cpus},maxcpus={cpus},sockets={sockets},cores={cores},threads={threads}")]);
    add(&["-m", &format!("{}M", guest.memory_mib)]);

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
    add(&["-serial", "chardev:console"]);
    // A doorbell handled in another thread comes when the host pleases: the virtual clock wants it at once.
    add(&["-device", "virtio-serial-pci,ioeventfd=off"]);
    add(&["-device", &format!("virtserialport,chardev=port,name={}", twinboot_protocol::PORT_NAME)]);
    add(&["-device", guest.arch.panic_device, "-action", "panic=none"]);

    add(&["-kernel", &guest.kernel.to_string_lossy(), "-initrd", &guest.initramfs.to_string_lossy()]);
    add(&["-append", &guest.command_line]);
    arguments
}
