// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the machine that a guest is: by name, out of a file, or in the experiment itself; its CPUs, its
//! memory nodes, and which CPUs are kept free. What an architecture allows is asked at planning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_yaml::Error as YamlError;

use super::super::located::{Located, Mark, Maybe};
use super::super::{ConfigError, Disturbance, Isolate, MemoryNode, Topology, diagnose, names, raw, size};
use super::{Findings, Place, Problem, kernel, quantity};
use crate::fs;

/// Twinboot's own machines, by the name that experiments use. They lie in configs/topologies/.
pub(crate) const OWN_MACHINES: [(&str, &str); 4] = [
    ("altra-128", include_str!("../../../../configs/topologies/altra-128.yaml")),
    ("laptop-8", include_str!("../../../../configs/topologies/laptop-8.yaml")),
    ("power9-104", include_str!("../../../../configs/topologies/power9-104.yaml")),
    ("x86-server-128", include_str!("../../../../configs/topologies/x86-server-128.yaml")),
];

/// The most CPUs that Linux can be built for.
const MOST_CPUS: u32 = 8192;
/// The most memory nodes that QEMU takes.
const MOST_NODES: u32 = 128;
/// The distance within a node, and the usual one to another (ACPI specification, "System Locality
/// Information Table").
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// The machine that a guest asks for: what stands in the experiment, and for the rest what the file says
/// that it names. `None` only when there are findings; an error when that file is wrong in itself.
pub(super) fn of_guest(
    guest: &Located<raw::Guest>,
    place: &Place,
    findings: &mut Findings,
) -> Result<Option<Located<raw::Machine>>, ConfigError> {
    let named = match &guest.value.machine.0 {
        Some(name) => match findings.keep(find(name, place)) {
            // What it cannot have together with the experiment's own keys is wrong there, not in its file.
            Some((file, text)) => Some(moved_to(from_file(&file, &text)?, name.mark)),
            None => return Ok(None),
        },
        None => None,
    };
    Ok(merge(guest, named.as_ref(), findings))
}

/// The file that describes a machine, and its text.
fn find(name: &Located<String>, place: &Place) -> Result<(PathBuf, Vec<u8>), Problem> {
    let text = name.value.as_str();
    if text.contains('/') || text.ends_with(".yaml") {
        let file = kernel::path(name, place)?;
        let content = fs::read(&file).map_err(|error| {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            name.problem(format!("cannot {error}"), format!("{why}; the path is relative to this file"))
        })?;
        return Ok((file, content));
    }
    match OWN_MACHINES.iter().find(|(own, _)| *own == text) {
        Some((own, content)) => {
            Ok((format!("configs/topologies/{own}.yaml").into(), content.as_bytes().to_owned()))
        }
        None => {
            let valid = names::one_of(text, OWN_MACHINES.map(|(own, _)| own));
            Err(name.problem(format!("`{text}` is neither a path nor one of Twinboot's machines"), valid))
        }
    }
}

/// A machine that is valid in itself.
fn from_file(file: &Path, content: &[u8]) -> Result<raw::Machine, ConfigError> {
    let text = diagnose::decode(file, content.to_owned())?;
    let options = serde_yaml::options! { with_snippet: false };
    let machine: Located<raw::Machine> =
        serde_yaml::from_str_with_options(&text, options).map_err(|error| {
            let problem = match error {
                YamlError::Eof { .. } => Problem::new(
                    Mark { line: 1, column: 1, length: 0 },
                    "the file is empty",
                    "expected a machine: arch, topology, memory",
                ),
                error => diagnose::translate(&error, &text),
            };
            ConfigError::invalid(file, &text, vec![problem])
        })?;
    let mut findings = Findings::default();
    if let Some(cpus) = findings.keep(cpu_count(&machine.value.topology)) {
        topology(&machine, cpus, &mut findings);
    }
    if !findings.problems.is_empty() {
        return Err(ConfigError::invalid(file, &text, findings.problems));
    }
    Ok(machine.value)
}

/// A machine as if all of it stood at one place: all that may be found wrong once it is valid in itself.
fn moved_to(machine: raw::Machine, mark: Mark) -> raw::Machine {
    let raw::Machine { arch, topology, memory, nodes, distances } = machine;
    let node = |node: Located<raw::Node>| {
        let raw::Node { cpus, memory } = node.value;
        let cpus = Maybe(cpus.0.map(|cpus| cpus.moved_to(mark)));
        Located { value: raw::Node { cpus, memory: memory.moved_to(mark) }, mark }
    };
    let nodes = nodes.0.map(|nodes| match nodes.value {
        raw::Nodes::Each(each) => raw::Nodes::Each(each.into_iter().map(node).collect()),
        even @ raw::Nodes::Even(_) => even,
    });
    raw::Machine {
        arch: arch.moved_to(mark),
        topology: topology.moved_to(mark),
        memory: Maybe(memory.0.map(|memory| memory.moved_to(mark))),
        nodes: Maybe(nodes.map(|value| Located { value, mark })),
        distances: Maybe(distances.0.map(|distances| distances.moved_to(mark))),
    }
}

/// What the experiment says goes before what the machine's file says.
fn merge(
    guest: &Located<raw::Guest>,
    named: Option<&raw::Machine>,
    findings: &mut Findings,
) -> Option<Located<raw::Machine>> {
    let raw::Guest { arch, topology, memory, nodes, distances, .. } = &guest.value;
    let arch = arch.0.as_ref().or(named.map(|named| &named.arch));
    let topology = topology.0.as_ref().or(named.map(|named| &named.topology));
    for (key, is_there) in [("arch", arch.is_some()), ("topology", topology.is_some())] {
        if !is_there {
            findings.add(Problem::new(
                guest.mark,
                format!("missing key `{key}`"),
                format!("expected `{key}` as well in this mapping, or a `machine`"),
            ));
        }
    }
    // Nodes with their own memory say how much there is of it.
    let each = nodes.0.as_ref().is_some_and(|nodes| matches!(nodes.value, raw::Nodes::Each(_)));
    let named_memory = named.filter(|_| !each).map(|named| &named.memory);
    let machine = raw::Machine {
        arch: arch?.clone(),
        topology: topology?.clone(),
        memory: or(memory, named_memory),
        nodes: or(nodes, named.map(|named| &named.nodes)),
        distances: or(distances, named.map(|named| &named.distances)),
    };
    Some(Located { value: machine, mark: guest.mark })
}

fn or<T: Clone>(here: &Maybe<T>, there: Option<&Maybe<T>>) -> Maybe<T> {
    Maybe(here.0.as_ref().or(there.and_then(|there| there.0.as_ref())).cloned())
}

/// How many CPUs a topology has, from 1 to the most that Linux can be built for.
pub(super) fn cpu_count(topology: &Located<raw::Topology>) -> Result<u32, Problem> {
    let raw::Topology { sockets, clusters, cores, threads } = &topology.value;
    let parts = [sockets, clusters, cores, threads];
    if let Some(part) = parts.iter().find(|part| part.value == 0) {
        return Err(part.problem("a topology without CPUs", "expected at least 1"));
    }
    let cpus = parts.iter().try_fold(1_u32, |cpus, part| cpus.checked_mul(part.value));
    cpus.filter(|&cpus| cpus <= MOST_CPUS).ok_or_else(|| {
        topology.problem(
            "a topology with more CPUs than Linux can have",
            format!("expected sockets x clusters x cores x threads of at most {MOST_CPUS}"),
        )
    })
}

/// `cpus` is how many its topology has. `None` only when there are findings.
pub(super) fn topology(
    machine: &Located<raw::Machine>,
    cpus: u32,
    findings: &mut Findings,
) -> Option<Topology> {
    let nodes = match &machine.value.nodes.0 {
        Some(Located { value: raw::Nodes::Each(each), mark }) => {
            each_node(machine, &Located { value: each, mark: *mark }, cpus, findings)
        }
        Some(Located { value: raw::Nodes::Even(count), mark }) => {
            even_nodes(machine, &Located { value: *count, mark: *mark }, findings)
        }
        None => even_nodes(machine, &Located::default_of(1), findings),
    }?;
    let distances = findings.keep(distances(machine.value.distances.0.as_ref(), nodes.len()))?;
    let raw::Topology { sockets, clusters, cores, threads } = &machine.value.topology.value;
    Some(Topology {
        sockets: sockets.value,
        clusters: clusters.value,
        cores: cores.value,
        threads: threads.value,
        nodes,
        distances,
    })
}

/// Nodes that share CPUs and memory evenly, along whole sockets or as equal parts of each.
fn even_nodes(
    machine: &Located<raw::Machine>,
    count: &Located<u32>,
    findings: &mut Findings,
) -> Option<Vec<MemoryNode>> {
    let Some(memory) = &machine.value.memory.0 else {
        findings.add(machine.problem("missing key `memory`", "expected `memory` as well in this mapping"));
        return None;
    };
    let memory_mib = findings.keep(quantity("an amount of memory", memory, size::memory_mib));
    let raw::Topology { sockets, clusters, cores, threads } = &machine.value.topology.value;
    let (sockets, cores) = (sockets.value, sockets.value * clusters.value * cores.value);
    if !(1..=MOST_NODES).contains(&count.value) {
        findings.add(count.problem("not a number of memory nodes", format!("expected 1 to {MOST_NODES}")));
        return None;
    }
    let along_sockets = sockets.is_multiple_of(count.value) || count.value.is_multiple_of(sockets);
    if !along_sockets || !cores.is_multiple_of(count.value) {
        findings.add(count.problem(
            format!("{} nodes cannot share {sockets} sockets with {cores} cores evenly", count.value),
            "expected so many that each has whole sockets or an equal part of one, or a list of nodes",
        ));
        return None;
    }
    let (nodes, memory_mib) = (u64::from(count.value), memory_mib?);
    if !memory_mib.is_multiple_of(nodes) || (1 < nodes && memory_mib / nodes < size::LEAST_NODE_MEMORY_MIB) {
        findings.add(memory.problem(
            format!("{nodes} nodes cannot share {} evenly", memory.value),
            format!("expected {nodes} times a whole number of megabytes, at least 16 each"),
        ));
        return None;
    }
    let each = cores / count.value * threads.value;
    let node = |first| MemoryNode {
        cpus: (first * each..(first + 1) * each).collect(),
        memory_mib: memory_mib / nodes,
    };
    Some((0..count.value).map(node).collect())
}

/// Nodes as listed. Together they have every CPU once, whole cores, and all the memory.
fn each_node(
    machine: &Located<raw::Machine>,
    list: &Located<&Vec<Located<raw::Node>>>,
    cpus: u32,
    findings: &mut Findings,
) -> Option<Vec<MemoryNode>> {
    let before = findings.problems.len();
    if list.value.is_empty() || (MOST_NODES as usize) < list.value.len() {
        findings.add(list.problem("not a number of memory nodes", format!("expected 1 to {MOST_NODES}")));
    }
    let mut nodes: Vec<MemoryNode> = Vec::new();
    let mut free: BTreeSet<u32> = (0..cpus).collect();
    for raw in list.value {
        let memory = quantity("an amount of memory", &raw.value.memory, size::node_memory_mib);
        let near =
            raw.value.cpus.0.as_ref().map(|list| node_cpus(list, machine, cpus, &mut free)).transpose();
        let (Some(memory_mib), Some(near)) = (findings.keep(memory), findings.keep(near)) else { continue };
        let cpus = near.unwrap_or_default();
        let number = |cpus: &[u32]| cpus.first().copied().unwrap_or(u32::MAX);
        if nodes.last().is_some_and(|last| number(&cpus) < number(&last.cpus)) {
            findings.add(raw.problem(
                "a memory node out of order",
                "expected nodes in the order of their CPUs, those without CPUs last: Linux numbers them so",
            ));
        }
        nodes.push(MemoryNode { cpus, memory_mib });
    }
    if findings.problems.len() != before {
        return None;
    }
    if !free.is_empty() {
        let free = names::cpus(&Vec::from_iter(free));
        findings.add(list.problem(format!("no memory node has {free}"), "expected each CPU in one"));
    }
    let sum: u64 = nodes.iter().map(|node| node.memory_mib).sum();
    if sum < size::LEAST_MEMORY_MIB {
        let least = size::LEAST_MEMORY_MIB;
        findings.add(list.problem(
            format!("{sum}M of memory in all nodes"),
            format!("expected at least {least}M together, which a kernel needs to boot"),
        ));
    }
    if let Some(memory) = &machine.value.memory.0
        && let Some(asked) = findings.keep(quantity("an amount of memory", memory, size::memory_mib))
        && asked != sum
    {
        findings.add(memory.problem(
            format!("the nodes have {sum}M of memory together, not {asked}M"),
            "expected their sum, or no `memory` beside such nodes",
        ));
    }
    (findings.problems.len() == before).then_some(nodes)
}

/// The CPUs of one node, taken from those that no node has yet.
fn node_cpus(
    list: &Located<raw::CpuList>,
    machine: &Located<raw::Machine>,
    count: u32,
    free: &mut BTreeSet<u32>,
) -> Result<Vec<u32>, Problem> {
    let cpus = super::cpu_list(list, count)?;
    let taken: Vec<u32> = cpus.iter().copied().filter(|cpu| !free.remove(cpu)).collect();
    if !taken.is_empty() {
        let taken = names::cpus(&taken);
        return Err(list.problem(format!("another node has {taken} already"), "expected each CPU in one"));
    }
    let threads = machine.value.topology.value.threads.value;
    let has = |cpu: &u32| cpus.binary_search(cpu).is_ok();
    match cpus.iter().find(|&&cpu| !(cpu / threads * threads..).take(threads as usize).all(|cpu| has(&cpu))) {
        Some(cpu) => {
            let first = cpu / threads * threads;
            Err(list.problem(
                "a memory node with part of a core",
                format!("expected whole cores, such as CPUs {first}-{}", first + threads - 1),
            ))
        }
        None => Ok(cpus),
    }
}

/// Symmetric, because a device tree says each distance once for both directions.
fn distances(raw: Option<&Located<raw::Distances>>, nodes: usize) -> Result<Vec<Vec<u32>>, Problem> {
    let Some(raw) = raw else {
        let row = |from| (0..nodes).map(|to| if from == to { LOCAL } else { REMOTE }).collect();
        return Ok((0..nodes).map(row).collect());
    };
    let is_square = raw.value.len() == nodes && raw.value.iter().all(|row| row.value.len() == nodes);
    if !is_square {
        return Err(raw.problem(
            format!("not a distance from each of {nodes} nodes to each"),
            format!("expected {nodes} rows of {nodes}, such as [[10, 21], [21, 10]] for two nodes"),
        ));
    }
    for (from, row) in raw.value.iter().enumerate() {
        for (to, distance) in row.value.iter().enumerate() {
            let back = raw.value[to].value[from].value;
            let expected = match distance.value {
                LOCAL if from == to => continue,
                _ if from == to => "expected 10: the distance within a node".to_owned(),
                11..=254 if distance.value == back => continue,
                11..=254 => format!("expected the same in both directions; from node {to} it is {back}"),
                _ => "expected 11 to 254 from one node to another".to_owned(),
            };
            let what = format!("{} is no distance from node {from} to node {to}", distance.value);
            return Err(distance.problem(what, expected));
        }
    }
    Ok(raw.value.iter().map(|row| row.value.iter().map(|distance| distance.value).collect()).collect())
}

/// `cpus` is how many the guest has. `None` only when there are findings.
pub(super) fn isolate(raw: &raw::Isolate, cpus: u32, findings: &mut Findings) -> Option<Isolate> {
    let isolated = findings.keep(super::cpu_list(&raw.cpus, cpus));
    let from = match &raw.from.0 {
        Some(from) => findings.keep(disturbances(from)),
        None => Some(Disturbance::ALL.to_vec()),
    };
    let (isolated, from) = (isolated?, from?);
    if isolated.len() == cpus as usize {
        findings.add(
            raw.cpus
                .problem("no CPU is left for other work", "expected at least one CPU that is not isolated"),
        );
    } else if isolated[0] == 0 && from.contains(&Disturbance::Tick) {
        findings.add(raw.cpus.problem(
            "CPU 0 cannot be kept free of the tick",
            "expected CPUs from 1 on, or `from` without tick: the CPU that boots keeps the time for all",
        ));
    }
    Some(Isolate { cpus: isolated, from })
}

fn disturbances(raw: &Located<Vec<Located<Disturbance>>>) -> Result<Vec<Disturbance>, Problem> {
    if raw.value.is_empty() {
        return Err(raw.problem(
            "isolated from nothing",
            "expected some of tasks, tick, rcu, interrupts; without `from` it is all of them",
        ));
    }
    let mut from = BTreeSet::new();
    for disturbance in &raw.value {
        if !from.insert(disturbance.value) {
            return Err(disturbance.problem("isolated from the same twice", "expected each once"));
        }
    }
    Ok(Vec::from_iter(from))
}
