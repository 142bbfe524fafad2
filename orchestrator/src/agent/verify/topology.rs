// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs and memory nodes: whether each is where it was asked for. A CPU's sockets, clusters and cores are
//! compared by which CPUs are together, not by number: Linux numbers them as firmware does, with gaps.

use std::collections::BTreeMap;
use std::fmt::Display;

use indexmap::IndexMap;
use twinboot_protocol::{Cpu, Machine, cpu_list};

use crate::config::{MemoryNode, Topology, cpu_words};

/// In words, every way in which CPUs and memory are not as asked for.
pub(super) fn differences(asked: &Topology, seen: &Machine) -> Vec<String> {
    [online(asked, seen), places(asked, seen), nodes(asked, seen), distances(asked, seen)].concat()
}

fn difference(what: &str, asked: &dyn Display, seen: &dyn Display) -> String {
    format!("{what}: asked for {asked}, the guest has {seen}")
}

fn online(asked: &Topology, seen: &Machine) -> Vec<String> {
    let mut differences = Vec::new();
    let all: Vec<u32> = (0..asked.cpus()).collect();
    let online: Vec<u32> = seen.cpus.iter().map(|cpu| cpu.id).collect();
    let verb = |cpus: &[u32]| if cpus.len() == 1 { "is" } else { "are" };
    let missing: Vec<u32> = all.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if !missing.is_empty() {
        differences.push(format!("{} {} not online", cpu_words(&missing), verb(&missing)));
    }
    let extra: Vec<u32> = online.into_iter().filter(|cpu| !all.contains(cpu)).collect();
    if !extra.is_empty() {
        differences.push(format!("nobody asked for {}", cpu_words(&extra)));
    }
    if cpu_list::parse(&seen.possible).as_ref() != Some(&all) {
        differences.push(difference("possible CPUs", &cpu_list::format(&all), &seen.possible));
    }
    differences
}

/// What tells one socket, cluster or core from another.
type Key = (i64, i64, i64);

fn places(asked: &Topology, seen: &Machine) -> Vec<String> {
    let Topology { sockets, clusters, cores, threads, .. } = asked;
    // A machine without clusters may call anything a cluster: x86 does so with caches.
    let cluster = |cpu: &Cpu| if *clusters == 1 { 0 } else { cpu.cluster };
    let mut differences = Vec::new();
    let mut compare = |what: &str, count: u32, key: &dyn Fn(&Cpu) -> Key| {
        let each = asked.cpus() / count;
        differences.extend(grouping(what, count, each, seen, key));
    };
    compare("sockets", *sockets, &|cpu| (cpu.socket, 0, 0));
    if 1 < *clusters {
        compare("clusters", sockets * clusters, &|cpu| (cpu.socket, cpu.cluster, 0));
    }
    compare("cores", sockets * clusters * cores, &|cpu| (cpu.socket, cluster(cpu), cpu.core));

    let mut siblings: IndexMap<usize, Vec<u32>> = IndexMap::new();
    let mut others: Vec<u32> = Vec::new();
    for cpu in &seen.cpus {
        let first = cpu.id / threads * threads;
        let expected: Vec<u32> = seen
            .cpus
            .iter()
            .map(|other| other.id)
            .filter(|id| (first..first + threads).contains(id))
            .collect();
        let found = cpu_list::parse(&cpu.siblings).unwrap_or_default();
        if found.len() != expected.len() {
            siblings.entry(found.len()).or_default().push(cpu.id);
        } else if found != expected {
            others.push(cpu.id);
        }
    }
    for (found, cpus) in siblings {
        differences.push(difference(
            &format!("threads of the core of {}", cpu_words(&cpus)),
            threads,
            &found,
        ));
    }
    if !others.is_empty() {
        differences.push(format!("threads of the core of {}: others than asked for", cpu_words(&others)));
    }
    differences
}

/// Whether the CPUs that are online fall into `count` groups of `each` neighbours.
fn grouping(what: &str, count: u32, each: u32, seen: &Machine, key: &dyn Fn(&Cpu) -> Key) -> Option<String> {
    let mut groups: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
    let mut asked: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in &seen.cpus {
        groups.entry(key(cpu)).or_default().push(cpu.id);
        asked.entry(cpu.id / each).or_default().push(cpu.id);
    }
    if groups.len() != asked.len() {
        return Some(difference(what, &count, &groups.len()));
    }
    let is_asked = |group: &Vec<u32>| asked.get(&(group[0] / each)) == Some(group);
    let wrong: Vec<u32> = groups.into_values().filter(|group| !is_asked(group)).flatten().collect();
    (!wrong.is_empty()).then(|| format!("{what}: {} are not together as asked for", cpu_words(&wrong)))
}

fn nodes(asked: &Topology, seen: &Machine) -> Vec<String> {
    if seen.nodes.is_empty() {
        // A kernel without memory nodes shows none: that is one with everything.
        let whole = MemoryNode { cpus: vec![], memory_mib: asked.memory_mib() };
        return match asked.nodes.len() {
            1 => memory("memory", &whole, seen.memory_kib).into_iter().collect(),
            count => vec![difference("memory nodes", &count, &"none")],
        };
    }
    let mut differences = Vec::new();
    for id in 0..asked.nodes.len().max(seen.nodes.len()) {
        let found = seen.nodes.iter().find(|node| node.id as usize == id);
        match (asked.nodes.get(id), found) {
            (Some(node), Some(found)) => {
                differences.extend(memory(&format!("memory of node {id}"), node, found.memory_kib));
            }
            (Some(_), None) => differences.push(format!("memory node {id} is missing")),
            (None, Some(_)) => differences.push(format!("nobody asked for memory node {id}")),
            (None, None) => {}
        }
    }
    let mut elsewhere: IndexMap<(usize, i64), Vec<u32>> = IndexMap::new();
    for cpu in &seen.cpus {
        let node = asked.nodes.iter().position(|node| node.cpus.contains(&cpu.id));
        if let Some(node) = node.filter(|&node| i64::try_from(node) != Ok(cpu.node)) {
            elsewhere.entry((node, cpu.node)).or_default().push(cpu.id);
        }
    }
    for ((asked, seen), cpus) in elsewhere {
        let seen = if seen < 0 { "none".to_owned() } else { seen.to_string() };
        differences.push(difference(&format!("memory node of {}", cpu_words(&cpus)), &asked, &seen));
    }
    differences
}

/// The kernel keeps memory for itself before it counts: its image and tables, and what its configuration
/// sets aside. That is less than a quarter, and 64 MiB in a small guest.
fn memory(what: &str, asked: &MemoryNode, seen_kib: u64) -> Option<String> {
    let (asked, seen) = (asked.memory_mib, seen_kib / 1024);
    let least = (asked - asked / 4).saturating_sub(64);
    (seen < least || asked < seen)
        .then(|| difference(what, &format_args!("{asked} MiB"), &format_args!("{seen} MiB")))
}

fn distances(asked: &Topology, seen: &Machine) -> Vec<String> {
    let mut wrong: IndexMap<(u32, u32), Vec<String>> = IndexMap::new();
    let mut differences = Vec::new();
    for node in &seen.nodes {
        let Some(row) = asked.distances.get(node.id as usize) else { continue };
        if row.len() != node.distances.len() {
            let count = node.distances.len();
            differences.push(difference(&format!("distances of node {}", node.id), &row.len(), &count));
            continue;
        }
        for (to, (&asked, &seen)) in row.iter().zip(&node.distances).enumerate() {
            if asked != seen {
                wrong.entry((asked, seen)).or_default().push(format!("{} to {to}", node.id));
            }
        }
    }
    let grouped = wrong.into_iter().map(|((asked, seen), pairs)| {
        difference(&format!("distance from node {}", pairs.join(", ")), &asked, &seen)
    });
    differences.extend(grouped);
    differences
}

#[cfg(test)]
pub(super) mod tests {
    use twinboot_protocol::Node;

    use super::*;

    /// The machine that was asked for, with gaps in its numbers.
    pub(in super::super) fn machine(asked: &Topology) -> Machine {
        let Topology { sockets, clusters, cores, threads, .. } = asked;
        let all: Vec<u32> = (0..asked.cpus()).collect();
        let cpu = |id: u32| {
            let core = id / threads;
            let number = |number: u32| i64::from(number);
            Cpu {
                id,
                socket: 3 * number(id / (asked.cpus() / sockets)),
                cluster: number(core / cores % clusters),
                core: 4 * number(core % cores),
                siblings: cpu_list::format(&Vec::from_iter(core * threads..(core + 1) * threads)),
                node: asked.nodes.iter().position(|node| node.cpus.contains(&id)).unwrap() as i64,
            }
        };
        let node = |(id, node): (usize, &MemoryNode)| Node {
            id: id as u32,
            cpus: cpu_list::format(&node.cpus),
            memory_kib: node.memory_mib * 1000,
            distances: asked.distances[id].clone(),
        };
        Machine {
            possible: cpu_list::format(&all),
            cpus: all.iter().map(|&id| cpu(id)).collect(),
            nodes: asked.nodes.iter().enumerate().map(node).collect(),
            memory_kib: asked.memory_mib() * 1000,
            ..Machine::default()
        }
    }

    /// Switches CPUs off, as the kernel shows it.
    pub(in super::super) fn switch_off(seen: &mut Machine, off: &[u32]) {
        let stays = |cpu: &u32| !off.contains(cpu);
        seen.cpus.retain(|cpu| stays(&cpu.id));
        for cpu in &mut seen.cpus {
            let siblings = cpu_list::parse(&cpu.siblings).unwrap();
            cpu.siblings = cpu_list::format(&siblings.into_iter().filter(stays).collect::<Vec<_>>());
        }
    }

    /// Sockets of two clusters of two cores of four threads, each socket a node, and a node without CPUs.
    fn asked() -> Topology {
        let node = |cpus: std::ops::Range<u32>, memory_mib| MemoryNode { cpus: cpus.collect(), memory_mib };
        Topology {
            sockets: 2,
            clusters: 2,
            cores: 2,
            threads: 4,
            nodes: vec![node(0..16, 1024), node(16..32, 1024), node(0..0, 512)],
            distances: vec![vec![10, 21, 31], vec![21, 10, 31], vec![31, 31, 10]],
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Machine), expected: &[&str]) {
        let asked = asked();
        let mut seen = machine(&asked);
        change(&mut seen);
        assert_eq!(differences(&asked, &seen), expected);
    }

    #[test]
    fn cpus_that_are_missing() {
        check(|_| {}, &[]);
        check(|seen| switch_off(seen, &[7]), &["CPU 7 is not online"]);
        check(|seen| switch_off(seen, &Vec::from_iter(1..32)), &["CPUs 1-31 are not online"]);
        check(
            |seen| {
                let extra = Cpu { id: 32, socket: 6, siblings: "32".to_owned(), ..Cpu::default() };
                seen.cpus.push(extra);
                seen.possible = "0-32".to_owned();
            },
            &["nobody asked for CPU 32", "possible CPUs: asked for 0-31, the guest has 0-32"],
        );
    }

    #[test]
    fn cpus_in_other_places() {
        let all = |seen: &mut Machine, change: fn(&mut Cpu)| seen.cpus.iter_mut().for_each(change);
        check(
            |seen| all(seen, |cpu| cpu.socket = 0),
            &[
                "sockets: asked for 2, the guest has 1",
                "clusters: asked for 4, the guest has 2",
                "cores: asked for 8, the guest has 4",
            ],
        );
        check(
            |seen| all(seen, |cpu| cpu.cluster = -1),
            &["clusters: asked for 4, the guest has 2", "cores: asked for 8, the guest has 4"],
        );
        check(
            |seen| all(seen, |cpu| cpu.siblings = cpu.id.to_string()),
            &["threads of the core of CPUs 0-31: asked for 4, the guest has 1"],
        );
        check(
            |seen| {
                let [first, second] = [seen.cpus[3].core, seen.cpus[4].core];
                (seen.cpus[3].core, seen.cpus[4].core) = (second, first);
                seen.cpus[3].siblings = "3,5-7".to_owned();
            },
            &[
                "cores: CPUs 0-7 are not together as asked for",
                "threads of the core of CPU 3: others than asked for",
            ],
        );
    }

    /// What an x86 machine calls a cluster is of no concern.
    #[test]
    fn a_machine_without_clusters() {
        let asked = Topology::flat(2, 2, 2, 512);
        let mut seen = machine(&asked);
        seen.cpus.iter_mut().for_each(|cpu| cpu.cluster = cpu.id.into());
        assert_eq!(differences(&asked, &seen), Vec::<String>::new());
    }

    #[test]
    fn memory_nodes() {
        check(
            |seen| seen.cpus[16..].iter_mut().for_each(|cpu| cpu.node = 0),
            &["memory node of CPUs 16-31: asked for 1, the guest has 0"],
        );
        check(|seen| seen.cpus[5].node = -1, &["memory node of CPU 5: asked for 0, the guest has none"]);
        check(|seen| drop(seen.nodes.pop()), &["memory node 2 is missing"]);
        check(|seen| seen.nodes.clear(), &["memory nodes: asked for 3, the guest has none"]);
        let fits = |memory_mib: u64| move |seen: &mut Machine| seen.nodes[1].memory_kib = memory_mib * 1024;
        check(fits(1024), &[]);
        check(fits(704), &[]);
        check(fits(703), &["memory of node 1: asked for 1024 MiB, the guest has 703 MiB"]);
        check(fits(1025), &["memory of node 1: asked for 1024 MiB, the guest has 1025 MiB"]);
    }

    #[test]
    fn distances_between_nodes() {
        check(
            |seen| {
                for node in &mut seen.nodes {
                    node.distances
                        .iter_mut()
                        .filter(|distance| **distance == 31)
                        .for_each(|distance| *distance = 20);
                }
                seen.nodes[0].distances[1] = 22;
            },
            &[
                "distance from node 0 to 1: asked for 21, the guest has 22",
                "distance from node 0 to 2, 1 to 2, 2 to 0, 2 to 1: asked for 31, the guest has 20",
            ],
        );
        check(|seen| seen.nodes[2].distances.clear(), &["distances of node 2: asked for 3, the guest has 0"]);
    }

    #[test]
    fn a_kernel_without_memory_nodes() {
        let asked = Topology::flat(1, 2, 2, 512);
        let without = |memory_kib| Machine { nodes: vec![], memory_kib, ..machine(&asked) };
        assert_eq!(differences(&asked, &without(490_000)), Vec::<String>::new());
        assert_eq!(differences(&asked, &without(1000)), ["memory: asked for 512 MiB, the guest has 0 MiB"]);
    }
}
