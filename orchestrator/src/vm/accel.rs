// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether KVM works on this host. That /dev/kvm exists, opens and makes a virtual machine proves
//! nothing: on some hosts Linux then hangs. So a probe guest has to run, once per boot of the host.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arch::ArchSpec;
use super::deadline::Limits;
use super::guest::{self, GuestError, Outcome};
use super::qemu::{Engine, GuestSpec, KernelFiles, Start, command_line};
use crate::cache::{Cache, digest};
use crate::config::{EmulatorThreads, Topology};
use crate::fs;

/// What is known about KVM here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) usable: bool,
    /// In words, with what mends it where something does.
    pub(crate) why: String,
}

/// A probe guest that runs, runs within two seconds; one that hangs is not waited for longer than this.
const PROBE_SILENCE: Duration = Duration::from_secs(8);

/// What can be said without starting a guest; `None` when only a probe can tell.
pub(crate) fn without_probe(arch: &ArchSpec) -> Option<Finding> {
    let no = |why: String| Some(Finding { usable: false, why });
    if !arch.is_hosts() {
        return no(format!(
            "this host is {}, the guest {}: it is emulated",
            std::env::consts::ARCH,
            arch.uname
        ));
    }
    let device = Path::new("/dev/kvm");
    if !device.exists() {
        return no("there is no /dev/kvm: load the module kvm_intel or kvm_amd, or allow nested virtual \
                   machines on the host above"
            .to_owned());
    }
    match std::fs::File::options().read(true).write(true).open(device) {
        Ok(_) => None,
        Err(error) => no(format!(
            "/dev/kvm does not open ({error}): add this user to the group kvm (`sudo usermod -aG kvm $USER`, then \
             log in again)"
        )),
    }
}

/// What an earlier probe found since the host booted.
pub(crate) fn remembered(cache: &Cache, arch: &ArchSpec, qemu_version: &str) -> Option<Finding> {
    let stored = fs::read(&cache.fact(&fact_name(arch, qemu_version))).ok()?;
    serde_json::from_slice(&stored).ok()
}

/// Runs a probe guest: KVM is usable when the agent in it speaks.
pub(crate) async fn probe(
    cache: &Cache,
    arch: &'static ArchSpec,
    qemu_version: &str,
    kernel: KernelFiles,
    initramfs: &Path,
) -> Result<Finding, GuestError> {
    let guest = GuestSpec {
        arch,
        engine: Engine::Kvm,
        start: Start::Boot,
        threads: EmulatorThreads::Each,
        topology: Topology::flat(1, 1, 1, 256),
        kernel,
        initramfs: initramfs.to_owned(),
        command_line: command_line(arch, Engine::Kvm, &[]),
        seed: 0,
    };
    let limits = Limits { silence: PROBE_SILENCE, life: PROBE_SILENCE * 2 };
    let run = guest::run(&guest, limits, |_| ()).await?;
    let finding = match (run.times.hello, run.outcome) {
        (Some(after), _) => {
            let why = format!("a probe guest ran under KVM ({} ms to its first sign)", after.as_millis());
            Finding { usable: true, why }
        }
        (None, Outcome::Fault(fault)) => {
            Finding { usable: false, why: format!("a probe guest did not run under KVM: {}", fault.headline) }
        }
        (None, Outcome::Done) => {
            Finding { usable: false, why: "the probe guest ended without a sign".to_owned() }
        }
    };
    if let Ok(stored) = serde_json::to_vec_pretty(&finding) {
        // A finding that cannot be stored is found again.
        let _ = fs::write_atomic(&cache.fact(&fact_name(arch, qemu_version)), &stored);
    }
    Ok(finding)
}

/// A finding holds for one boot of the host and one QEMU.
fn fact_name(arch: &ArchSpec, qemu_version: &str) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("kvm-{}-{}.json", arch.uname, &digest([boot.trim(), qemu_version])[..16])
}
