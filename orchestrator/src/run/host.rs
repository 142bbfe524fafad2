// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that runs the guests, as far as a reader of a result wants to know it.

use serde::{Deserialize, Serialize};

use crate::process::{ProcessError, Task};
use crate::vm::arch::ArchSpec;

/// What stands in every result about the host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) qemu_version: String,
    pub(crate) cpu: String,
    pub(crate) cores: u32,
    pub(crate) load: Option<f64>,
    pub(crate) governor: Option<String>,
    pub(crate) kernel: String,
}

impl Host {
    /// Looks at this machine and at the QEMU for an architecture.
    pub(crate) async fn look(arch: &ArchSpec) -> Result<Self, ProcessError> {
        let said = Task::new(arch.qemu).arg("--version").run().await?;
        let said = String::from_utf8_lossy(&said);
        let file = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cpu_info = file("/proc/cpuinfo").unwrap_or_default();
        Ok(Self {
            qemu_version: qemu_version(&said),
            cpu: cpu_model(&cpu_info).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            load: file("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            governor: file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: file("/proc/sys/kernel/osrelease").unwrap_or_default(),
        })
    }
}

/// The time of all the host's CPUs so far, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTime {
    all: u64,
    /// Taken by the hypervisor above this host for others.
    stolen: u64,
}

impl CpuTime {
    /// Of now; nothing where the host does not say.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
    fn parse(stat: &str) -> Option<Self> {
        let times: Vec<u64> =
            stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().flat_map(str::parse).collect();
        Some(Self { all: times.iter().take(8).sum(), stolen: *times.get(7)? })
    }

    /// The share that was stolen between two looks.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

/// `10.0.2 (Debian 1:10.0.2+ds-2)` out of `QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)`.
pub(crate) fn qemu_version(said: &str) -> String {
    let first = said.lines().next().unwrap_or_default();
    first.trim_start_matches("QEMU emulator version ").to_owned()
}

fn cpu_model(cpu_info: &str) -> Option<&str> {
    let line = cpu_info.lines().find(|line| line.starts_with("model name") || line.starts_with("cpu\t"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share() {
        let time = |line| CpuTime::parse(line).unwrap();
        let before = time("cpu  10 0 10 70 0 0 0 10 99 99\ncpu0 1");
        let after = time("cpu  20 0 20 130 0 0 0 30 99 99\n");
        assert_eq!(after.stolen_since(before), 0.2);
        assert_eq!(CpuTime::parse("intr 1"), None);
    }

    #[test]
    fn versions_and_models_are_found() {
        assert_eq!(qemu_version("QEMU emulator version 10.0.2 (Debian 1)\nCopyright"), "10.0.2 (Debian 1)");
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
