// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the guest is what was asked for, from what the agent read back. Pure. Anything unproven
//! makes the run invalid, and is named.

use twinboot_protocol::{Machine, PROTOCOL};

use crate::config::Topology;

/// What a guest has to be.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) topology: Topology,
    pub(crate) memory_mib: u64,
    pub(crate) release: &'a str,
    pub(crate) build_id: &'a str,
    pub(crate) command_line: &'a str,
}

/// In words, every way in which the guest is not what was asked for.
pub(crate) fn differences(expected: &Expected<'_>, machine: &Machine) -> Vec<String> {
    let mut differences = Vec::new();
    let mut check = |what: &str, asked: &str, seen: &str| {
        if asked != seen {
            differences.push(format!("{what}: asked for {asked}, the guest has {seen}"));
        }
    };
    check("kernel release", expected.release, &machine.release);
    check("kernel build id", expected.build_id, &machine.build_id);
    check("command line", expected.command_line, machine.command_line.trim());

    let Topology { sockets, cores, threads } = expected.topology;
    check("online CPUs", &expected.topology.cpus().to_string(), &machine.cpus.len().to_string());
    let count = |mut ids: Vec<(i64, i64)>| {
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    };
    let seen_sockets = count(machine.cpus.iter().map(|cpu| (cpu.socket, 0)).collect());
    let seen_cores = count(machine.cpus.iter().map(|cpu| (cpu.socket, cpu.core)).collect());
    check("sockets", &sockets.to_string(), &seen_sockets.to_string());
    check("cores", &(sockets * cores).to_string(), &seen_cores.to_string());
    for cpu in &machine.cpus {
        let siblings = count_list(&cpu.siblings);
        check(&format!("threads of CPU {}'s core", cpu.id), &threads.to_string(), &siblings.to_string());
    }

    // The kernel keeps part of the memory for itself before it counts.
    let (asked, seen) = (expected.memory_mib, machine.memory_kib / 1024);
    if seen < asked / 2 || asked < seen {
        differences.push(format!("memory: asked for {asked} MiB, the guest has {seen} MiB"));
    }
    for parameter in &machine.unknown_parameters {
        differences.push(format!("the kernel does not know the parameter `{parameter}`"));
    }
    differences
}

/// Whether host and agent can understand each other.
pub(crate) fn protocol_matches(agents: u32) -> Result<(), String> {
    if agents == PROTOCOL {
        return Ok(());
    }
    Err(format!("the agent speaks protocol {agents}, this Twinboot {PROTOCOL}: build both from one source"))
}

/// How many CPUs a list such as `0-3,8` names.
fn count_list(list: &str) -> u32 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').filter_map(range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinboot_protocol::Cpu;

    fn machine() -> Machine {
        let cpu = |id: u32, core| Cpu {
            id,
            socket: 0,
            cluster: -1,
            core,
            siblings: format!("{}-{}", id / 2 * 2, id / 2 * 2 + 1),
            node: 0,
        };
        Machine {
            release: "6.12.0".to_owned(),
            build_id: "abc".to_owned(),
            command_line: "panic=-1\n".to_owned(),
            cpus: vec![cpu(0, 0), cpu(1, 0), cpu(2, 1), cpu(3, 1)],
            memory_kib: 490_000,
            ..Machine::default()
        }
    }

    fn check(change: impl FnOnce(&mut Machine), expected: &[&str]) {
        let mut seen = machine();
        change(&mut seen);
        let asked = Expected {
            topology: Topology { sockets: 1, cores: 2, threads: 2 },
            memory_mib: 512,
            release: "6.12.0",
            build_id: "abc",
            command_line: "panic=-1",
        };
        assert_eq!(differences(&asked, &seen), expected);
    }

    #[test]
    fn every_difference_is_named() {
        check(|_| {}, &[]);
        check(|seen| drop(seen.cpus.pop()), &["online CPUs: asked for 4, the guest has 3"]);
        check(
            |seen| seen.cpus[0].siblings = "0".to_owned(),
            &["threads of CPU 0's core: asked for 2, the guest has 1"],
        );
        check(
            |seen| seen.cpus[3].socket = 1,
            &["sockets: asked for 1, the guest has 2", "cores: asked for 2, the guest has 3"],
        );
        check(
            |seen| seen.build_id = "abd".to_owned(),
            &["kernel build id: asked for abc, the guest has abd"],
        );
        check(|seen| seen.memory_kib = 1000, &["memory: asked for 512 MiB, the guest has 0 MiB"]);
        check(
            |seen| seen.unknown_parameters.push("isolcpu=1".to_owned()),
            &["the kernel does not know the parameter `isolcpu=1`"],
        );
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(count_list("0-3,8,10-11"), 7);
        assert_eq!(count_list(""), 0);
    }
}
