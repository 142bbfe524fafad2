// SPDX-License-Identifier: MIT OR Apache-2.0
//! /proc/interrupts: the timer's counts, which are the ticks, and the interrupts that may be delivered to
//! isolated CPUs. Reading it disturbs no other CPU.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use twinboot_protocol::{Irq, cpu_list};

use crate::facts;

const INTERRUPTS: &str = "/proc/interrupts";

/// The owner's right to write.
const OWNER_WRITES: u32 = 0o200;

/// The local timer's interrupts of each online CPU since boot.
pub(super) fn ticks() -> BTreeMap<u32, u64> {
    ticks_in(&facts::optional(INTERRUPTS))
}

/// The interrupts that may be delivered to one of these CPUs.
pub(super) fn reaching(isolated: &[u32]) -> Vec<Irq> {
    let reaches =
        |list: &str| cpu_list::parse(list).is_some_and(|cpus| cpus.iter().any(|cpu| isolated.contains(cpu)));
    let text = facts::optional(INTERRUPTS);
    let irqs = numbered(&text).into_iter().map(|(number, name)| read_irq(number, name));
    irqs.filter(|irq| reaches(&irq.cpus) || reaches(&irq.allowed)).collect()
}

/// Only an interrupt that can be moved has a list of CPUs that can be written. One that cannot belongs to
/// each CPU by itself, as timers on arm64 do, and then has no effective list; or the kernel places it.
fn read_irq(number: u32, name: String) -> Irq {
    let directory = Path::new("/proc/irq").join(number.to_string());
    let list = |name| facts::optional(directory.join(name));
    let effective = list("effective_affinity_list");
    if !can_be_written(directory.join("smp_affinity_list")) {
        return Irq { number, name, allowed: effective.clone(), cpus: effective };
    }
    let allowed = list("smp_affinity_list");
    let cpus = if effective.is_empty() { allowed.clone() } else { effective };
    Irq { number, name, cpus, allowed }
}

fn can_be_written(path: PathBuf) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & OWNER_WRITES != 0)
}

/// A row: its label, the counts of the online CPUs, and what it serves.
struct Row<'a> {
    label: &'a str,
    counts: Vec<u64>,
    name: &'a str,
}

fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let cpus = online(text).len();
    text.lines().skip(1).filter_map(move |line| {
        let (label, rest) = line.split_once(':')?;
        let counts: Vec<u64> =
            rest.split_whitespace().take(cpus).map_while(|count| count.parse().ok()).collect();
        // The chip and its own number come before the name, each with a gap behind.
        let name = rest.trim_end().rsplit_once("  ").map_or(rest, |(_, name)| name).trim();
        Some(Row { label: label.trim(), counts, name })
    })
}

/// The online CPUs, from the head.
fn online(text: &str) -> Vec<u32> {
    let head = text.lines().next().unwrap_or_default();
    head.split_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}

/// `LOC` on x86 and PowerPC, the latter with a second row for what was no event; `arch_timer` on arm64.
fn ticks_in(text: &str) -> BTreeMap<u32, u64> {
    let cpus = online(text);
    let mut ticks = BTreeMap::new();
    for row in rows(text).filter(|row| row.label == "LOC" || row.name == "arch_timer") {
        for (cpu, count) in cpus.iter().zip(row.counts) {
            *ticks.entry(*cpu).or_default() += count;
        }
    }
    ticks
}

/// Number and name of the interrupts that have a number: those of devices, and on some machines those
/// that each CPU has by itself.
fn numbered(text: &str) -> Vec<(u32, String)> {
    rows(text).filter_map(|row| Some((row.label.parse().ok()?, row.name.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "            CPU0       CPU1       CPU3       
   0:         36          0          0    IO-APIC    2-edge      timer
  24:          0          5          0  PCI-MSIX-0000:00:02.0    0-edge      virtio0-config
 NMI:          0          0          0   Non-maskable interrupts
 LOC:        518         11         12   Local timer interrupts
 ERR:          0
";
    const ARM64: &str = "           CPU0       CPU1       
 10:          0          0     GICv3  27 Level     kvm guest vtimer
 11:       1482         33     GICv3  30 Level     arch_timer
 14:         87          0     GICv3  33 Level     uart-pl011, other
IPI0:        52         20       Rescheduling interrupts
Err:          0
";
    const PPC64: &str = "           CPU0       CPU8       
 16:         14         11      XICS   2 Edge      IPI
LOC:        740         20   Local timer interrupts for timer event device
BCT:          0          0   Broadcast timer interrupts for timer event device
LOC:          3          1   Local timer interrupts for others
";

    fn check(text: &str, ticks: &[(u32, u64)], names: &[(u32, &str)]) {
        assert_eq!(ticks_in(text).into_iter().collect::<Vec<_>>(), ticks);
        let found = numbered(text);
        assert_eq!(found.iter().map(|(number, name)| (*number, &**name)).collect::<Vec<_>>(), names);
    }

    #[test]
    fn tables() {
        check(X86, &[(0, 518), (1, 11), (3, 12)], &[(0, "timer"), (24, "virtio0-config")]);
        let names = [(10, "kvm guest vtimer"), (11, "arch_timer"), (14, "uart-pl011, other")];
        check(ARM64, &[(0, 1482), (1, 33)], &names);
        check(PPC64, &[(0, 743), (8, 21)], &[(16, "IPI")]);
        check("", &[], &[]);
    }
}
