// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest is, read back from the guest, so that the host can compare it with what it asked for.
//! A file that is missing gives an empty value: the host then has no proof, and says so.

mod build_id;
mod kernel_log;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use twinboot_protocol::{Cpu, Machine, Node, cpu_list};

use crate::error::{AgentError, Context};
use crate::{console, sys};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// How often, and how far apart, the clock source is looked at until it is no longer an early one.
const LOOKS: u32 = 300;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Waits until the kernel has exchanged its early clock source (`tsc-early`) for the final one, which it
/// does up to a second after boot: it stops all CPUs for that, which would be in the middle of a window.
/// A kernel that keeps the early one for long keeps it for good; the host sees it among the facts.
pub(crate) fn wait_for_clock_source() {
    let is_early = || optional(CLOCK_SOURCE).ends_with("-early");
    for _ in 0..LOOKS {
        if !is_early() {
            return;
        }
        thread::sleep(LOOK_PAUSE);
    }
}

/// Reads everything there is to know.
pub(crate) fn read() -> Result<Machine, AgentError> {
    let sys::Uname { release, version, machine } = sys::uname().context("ask for the kernel's name")?;
    let of_cpus = |name| optional(Path::new(CPUS).join(name));
    let online = of_cpus("online");
    let online_cpus = cpu_list::parse(&online)
        .ok_or_else(|| AgentError::new(format!("{CPUS}/online is no CPU list: `{online}`")))?;
    let nodes = read_nodes();
    Ok(Machine {
        release,
        version,
        machine,
        build_id: build_id::find(&fs::read("/sys/kernel/notes").unwrap_or_default()).unwrap_or_default(),
        command_line: optional("/proc/cmdline"),
        unknown_parameters: read_unknown_parameters(),
        possible: of_cpus("possible"),
        online,
        isolated: of_cpus("isolated"),
        nohz_full: or_none(of_cpus("nohz_full")),
        cpus: online_cpus.into_iter().map(|id| read_cpu(id, &nodes)).collect(),
        nodes,
        clocksource: optional(CLOCK_SOURCE),
        memory_kib: memory_kib(&optional("/proc/meminfo")).unwrap_or_default(),
    })
}

fn read_unknown_parameters() -> Vec<String> {
    match sys::kernel_log() {
        Ok(log) => kernel_log::unknown_parameters(&String::from_utf8_lossy(&log)),
        Err(error) => {
            console::say(&format!("unknown kernel parameters are not known: read the kernel log: {error}"));
            Vec::new()
        }
    }
}

fn read_nodes() -> Vec<Node> {
    let online = optional(Path::new(NODES).join("online"));
    let read = |id| {
        let directory = Path::new(NODES).join(format!("node{id}"));
        Node {
            id,
            cpus: optional(directory.join("cpulist")),
            memory_kib: memory_kib(&optional(directory.join("meminfo"))).unwrap_or_default(),
            distances: numbers(&optional(directory.join("distance"))),
        }
    };
    cpu_list::parse(&online).unwrap_or_default().into_iter().map(read).collect()
}

fn read_cpu(id: u32, nodes: &[Node]) -> Cpu {
    let directory = Path::new(CPUS).join(format!("cpu{id}/topology"));
    let place = |name| optional(directory.join(name)).parse().unwrap_or(-1);
    let holds = |node: &&Node| cpu_list::parse(&node.cpus).is_some_and(|cpus| cpus.contains(&id));
    Cpu {
        id,
        socket: place("physical_package_id"),
        cluster: cluster(place("cluster_id")),
        core: place("core_id"),
        siblings: optional(directory.join("thread_siblings_list")),
        node: nodes.iter().find(holds).map_or(-1, |node| node.id.into()),
    }
}

/// x86 has 65535 where a machine has no clusters.
fn cluster(id: i64) -> i64 {
    if id == 65_535 { -1 } else { id }
}

/// The kernel prints an empty CPU mask that was never allocated as `(null)`.
fn or_none(list: String) -> String {
    if list == "(null)" { String::new() } else { list }
}

/// `MemTotal` of /proc/meminfo or of a node's meminfo.
fn memory_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
    line.split_whitespace().next()?.parse().ok()
}

fn numbers(line: &str) -> Vec<u32> {
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A file's text without the white space around it; nothing if it cannot be read.
pub(crate) fn optional(path: impl Into<PathBuf>) -> String {
    fs::read_to_string(path.into()).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "so the lines below read well")]
    fn check<T: PartialEq + std::fmt::Debug>(found: T, expected: T) {
        assert_eq!(found, expected);
    }

    #[test]
    fn small_parsers() {
        check(memory_kib("MemTotal:         488012 kB\nMemFree: 1 kB"), Some(488_012));
        check(memory_kib("\nNode 1 MemTotal:       4096 kB"), Some(4_096));
        check(memory_kib("MemFree: 1 kB"), None);
        check(numbers("10 20 20\n"), vec![10, 20, 20]);
        check(or_none("(null)".to_owned()), String::new());
        check(or_none("1-3".to_owned()), "1-3".to_owned());
        check(cluster(65_535), -1);
        check(cluster(2), 2);
    }
}
