// SPDX-License-Identifier: MIT OR Apache-2.0
//! What shows that isolated CPUs are left alone, gathered before the workloads start: ticks counted while
//! one thread keeps each of them busy, and what the kernel says of its interrupts, work queues and tasks.
//! The host judges. Nothing of this stays: no thread, no trigger, no affinity.

mod interrupts;
mod kernel_log;
mod tasks;
mod tick_stop;
mod ticks;

use std::collections::BTreeMap;
use std::path::Path;

use twinboot_protocol::{Isolation, IsolationProof, cpu_list};

use crate::error::AgentError;
use crate::{console, facts, sys};

/// Below /proc/sys: what matters beside isolation.
const SETTINGS: [&str; 8] = [
    "kernel/sched_rt_runtime_us",
    "kernel/sched_rt_period_us",
    "kernel/watchdog",
    "kernel/nmi_watchdog",
    "kernel/watchdog_thresh",
    "kernel/timer_migration",
    "kernel/numa_balancing",
    "vm/stat_interval",
];

/// Gathers everything.
pub(crate) fn observe(orders: &IsolationProof, online: &[u32]) -> Result<Isolation, AgentError> {
    let ticks::Counted { ticks, tick_dependencies } = ticks::count(orders, online)?;
    let log = kernel_log::read(&read_log());
    let tasks::Found { unbound, strays } = tasks::find(&orders.cpus);
    Ok(Isolation {
        ticks,
        dynticks_log: log.dynticks,
        rcu_offloaded_log: log.rcu_offloaded,
        complaints: log.complaints,
        irqs: interrupts::reaching(&orders.cpus),
        workqueues: mask_as_list(&facts::optional("/sys/devices/virtual/workqueue/cpumask")),
        unbound,
        strays,
        tick_dependencies,
        settings: settings(),
    })
}

fn read_log() -> String {
    match sys::kernel_log() {
        Ok(log) => String::from_utf8_lossy(&log).into_owned(),
        Err(error) => {
            console::say(&format!("what the kernel says of isolation is not known: read its log: {error}"));
            String::new()
        }
    }
}

fn settings() -> BTreeMap<String, String> {
    let read = |path: &str| (path.to_owned(), facts::optional(Path::new("/proc/sys").join(path)));
    SETTINGS.into_iter().map(read).filter(|(_, value)| !value.is_empty()).collect()
}

/// A CPU mask, hexadecimal in groups of eight digits, as a list; nothing if it is none.
fn mask_as_list(mask: &str) -> String {
    let digits = mask.chars().rev().filter(|&digit| digit != ',');
    let mut cpus = Vec::new();
    for (position, digit) in (0..).step_by(4).zip(digits) {
        let Some(bits) = digit.to_digit(16) else { return String::new() };
        cpus.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| position + bit));
    }
    cpu_list::format(&cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mask: &str, expected: &str) {
        assert_eq!(mask_as_list(mask), expected, "{mask}");
    }

    #[test]
    fn masks() {
        check("f", "0-3");
        check("1,00000009", "0,3,32");
        check("00000000,0000000f", "0-3");
        check("", "");
        check("none", "");
    }
}
