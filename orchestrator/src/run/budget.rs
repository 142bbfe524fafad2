// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many guests may run side by side: no more than the host has cores and memory for, and one alone
//! where a neighbour would be measured. Pure but for the look at the host.

use crate::vm::qemu::Engine;

/// What the host may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) cores: u32,
    pub(crate) memory_mib: u64,
}

/// What QEMU takes beside the guest's memory: translated code, page tables, devices.
const OVERHEAD_MIB: u64 = 512;

impl Budget {
    /// As asked for; what is not asked for is what the host has to spare.
    pub(crate) fn new(cores: Option<u32>, memory_mib: Option<u64>) -> Self {
        let host_cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        // The rest of the host goes on living.
        let to_spare = available_mib(&info).map_or(u64::MAX, |available| available / 10 * 9);
        Self { cores: cores.unwrap_or(host_cores), memory_mib: memory_mib.unwrap_or(to_spare) }
    }

    /// How many guests of this size run at once, at least one.
    pub(crate) fn guests(self, engine: Engine, guest_memory_mib: u64) -> u32 {
        match engine {
            // The clock does not see what else the host does. An emulator in one thread keeps one core busy.
            Engine::TcgVirtual => {
                let fit = self.memory_mib / (guest_memory_mib + OVERHEAD_MIB);
                self.cores.min(u32::try_from(fit).unwrap_or(u32::MAX)).max(1)
            }
            Engine::Kvm | Engine::Tcg => 1,
        }
    }

    /// Why a guest of this size does not fit, if so.
    pub(crate) fn shortage(self, guest_memory_mib: u64) -> Option<String> {
        (self.memory_mib < guest_memory_mib).then(|| {
            format!(
                "a guest has {guest_memory_mib} MiB of memory, and {} MiB are to spare: it may be slowed down or \
                 killed for want of memory",
                self.memory_mib
            )
        })
    }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cores: u32, memory_mib: u64, engine: Engine, guest_mib: u64, expected: u32) {
        assert_eq!(Budget { cores, memory_mib }.guests(engine, guest_mib), expected);
    }

    #[test]
    fn guests_share_the_host_only_under_the_virtual_clock() {
        check(2, 20_000, Engine::TcgVirtual, 512, 2);
        check(16, 20_000, Engine::TcgVirtual, 4096, 4);
        check(16, 2_000, Engine::TcgVirtual, 4096, 1);
        check(16, 20_000, Engine::Tcg, 512, 1);
        check(16, 20_000, Engine::Kvm, 512, 1);
    }

    #[test]
    fn too_little_memory_is_told() {
        let budget = Budget { cores: 2, memory_mib: 1000 };
        assert!(budget.shortage(2048).is_some());
        assert!(budget.shortage(512).is_none());
        assert_eq!(available_mib("MemTotal: 9 kB\nMemAvailable:   2048000 kB\n"), Some(2000));
        assert_eq!(available_mib(""), None);
    }
}
