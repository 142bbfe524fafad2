// SPDX-License-Identifier: MIT OR Apache-2.0
//! Isolated CPUs: the kernel parameters that keep them free of other work, and how the guest proves that
//! they are. Pure. Whether the proof holds is judged elsewhere.

use std::time::Duration;

use twinboot_protocol::{IsolationProof, Spin, cpu_list};

use crate::config::{Disturbance, EmulatorThreads, Isolate};
use crate::vm::qemu::Engine;

/// The kernel parameters for it, in a guest with so many CPUs. Of several `isolcpus` or `nohz_full` Linux
/// keeps the first and refuses those with other CPUs, of `rcu_nocbs` and `irqaffinity` it keeps the last: what
/// the experiment adds stands behind these and shows either way.
pub(super) fn parameters(isolate: &Isolate, cpus: u32) -> Vec<String> {
    let isolated = cpu_list::format(&isolate.cpus);
    let others: Vec<u32> = (0..cpus).filter(|cpu| !isolate.cpus.contains(cpu)).collect();
    let others = cpu_list::format(&others);
    let mut parameters = Vec::new();
    let flags = [(Disturbance::Tasks, "domain"), (Disturbance::Interrupts, "managed_irq")];
    let flags: Vec<&str> =
        flags.iter().filter(|(from, _)| isolate.from.contains(from)).map(|(_, flag)| *flag).collect();
    if !flags.is_empty() {
        parameters.push(format!("isolcpus={},{isolated}", flags.join(",")));
    }
    for (from, parameter, list) in [
        (Disturbance::Tick, "nohz_full", &isolated),
        (Disturbance::Rcu, "rcu_nocbs", &isolated),
        (Disturbance::Interrupts, "irqaffinity", &others),
    ] {
        if isolate.from.contains(&from) {
            parameters.push(format!("{parameter}={list}"));
        }
    }
    parameters
}

/// How the guest proves it. The window is long enough for a tick that runs to show, and for one that the kernel
/// needs now and then not to. An emulator gets only as many busy CPUs at one time as it can feed: threads of
/// their own for few, turns that a yield hint keeps short for more. Under the virtual clock all busy CPUs share
/// the time, which stretches the window.
pub(super) fn proof(isolate: &Isolate, engine: Engine, threads: EmulatorThreads) -> IsolationProof {
    const MS: u64 = 1_000_000;
    let (window_ns, at_once, spin) = match (engine, threads) {
        (Engine::Kvm, _) => (500 * MS, u32::MAX, Spin::Plain),
        (Engine::Tcg, EmulatorThreads::Each) => (300 * MS, 4, Spin::Plain),
        (Engine::Tcg, EmulatorThreads::One) => (300 * MS, 16, Spin::Hint),
        (Engine::TcgVirtual, _) => (200 * MS, 16, Spin::Plain),
    };
    let isolated = u32::try_from(isolate.cpus.len()).unwrap_or(u32::MAX);
    IsolationProof { cpus: isolate.cpus.clone(), window_ns, at_once: at_once.min(isolated), spin }
}

/// How long the proof takes by the guest's clock: each group of CPUs settles for a quarter of its window.
pub(super) fn duration(proof: &IsolationProof) -> Duration {
    let groups = proof.cpus.len().div_ceil(proof.at_once.max(1) as usize);
    Duration::from_nanos(proof.window_ns / 4 * 5) * u32::try_from(groups).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cpus: &[u32], from: &[Disturbance], expected: &[&str]) {
        assert_eq!(parameters(&Isolate { cpus: cpus.to_vec(), from: from.to_vec() }, 8), expected);
    }

    #[test]
    fn each_disturbance_has_its_parameters() {
        use Disturbance::{Interrupts, Rcu, Tasks, Tick};
        check(
            &[1, 2, 3, 5, 6, 7],
            &Disturbance::ALL,
            &[
                "isolcpus=domain,managed_irq,1-3,5-7",
                "nohz_full=1-3,5-7",
                "rcu_nocbs=1-3,5-7",
                "irqaffinity=0,4",
            ],
        );
        check(&[0, 1], &[Tasks], &["isolcpus=domain,0-1"]);
        check(&[7], &[Tick, Rcu], &["nohz_full=7", "rcu_nocbs=7"]);
        check(&[0, 7], &[Interrupts], &["isolcpus=managed_irq,0,7", "irqaffinity=1-6"]);
    }

    #[test]
    fn the_proof_suits_the_engine() {
        let isolate = |cpus| Isolate { cpus: (1..=cpus).collect(), from: vec![Disturbance::Tasks] };
        let at_once = |engine, threads| [1, 100].map(|cpus| proof(&isolate(cpus), engine, threads).at_once);
        use EmulatorThreads::{Each, One};
        assert_eq!(at_once(Engine::Kvm, Each), [1, 100]);
        assert_eq!(at_once(Engine::Tcg, Each), [1, 4]);
        assert_eq!(at_once(Engine::Tcg, One), [1, 16]);
        assert_eq!(at_once(Engine::TcgVirtual, Each), [1, 16]);
    }
}
