// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the guest is what was asked for, from what the agent read back. Pure. Anything unproven
//! makes the run invalid, and is named: what was asked for, what was seen, and for which CPUs. CPUs with the
//! same difference share a sentence.

mod topology;

use twinboot_protocol::{Machine, PROTOCOL};

use crate::config::Topology;

/// What a guest has to be.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) topology: &'a Topology,
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

    differences.extend(topology::differences(expected.topology, machine));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Machine), expected: &[&str]) {
        let topology = Topology::flat(1, 2, 2, 512);
        let mut seen = Machine {
            release: "6.12.0".to_owned(),
            build_id: "abc".to_owned(),
            command_line: "panic=-1\n".to_owned(),
            ..topology::tests::machine(&topology)
        };
        change(&mut seen);
        let asked =
            Expected { topology: &topology, release: "6.12.0", build_id: "abc", command_line: "panic=-1" };
        assert_eq!(differences(&asked, &seen), expected);
    }

    #[test]
    fn every_difference_is_named() {
        check(|_| {}, &[]);
        check(
            |seen| seen.build_id = "abd".to_owned(),
            &["kernel build id: asked for abc, the guest has abd"],
        );
        check(
            |seen| seen.release = "6.13.0".to_owned(),
            &["kernel release: asked for 6.12.0, the guest has 6.13.0"],
        );
        check(
            |seen| seen.command_line = "panic=1".to_owned(),
            &["command line: asked for panic=-1, the guest has panic=1"],
        );
        check(|seen| topology::tests::switch_off(seen, &[3]), &["CPU 3 is not online"]);
        check(
            |seen| seen.unknown_parameters.push("isolcpu=1".to_owned()),
            &["the kernel does not know the parameter `isolcpu=1`"],
        );
    }
}
