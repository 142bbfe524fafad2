// SPDX-License-Identifier: MIT OR Apache-2.0
//! From an experiment to every build, boot, block and command line. Pure: the same experiment gives the
//! same plan, and everything after this stage only executes it.

mod estimate;
mod isolation;
mod verification;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinboot_protocol::{Orders, PROTOCOL, Trial};

use crate::build::fragment::Requests;
use crate::build::{self, BuildError};
use crate::config::{Accel, Arm, Clock, EmulatorThreads, Experiment};
use crate::vm::arch::{self, ArchSpec};
use crate::vm::qemu::{Channels, Console, Engine, GuestSpec, KernelFiles, Start, arguments, command_line};

pub(crate) use estimate::estimate;

/// The version of `plan.json`.
pub(crate) const VERSION: u32 = 1;

/// Everything that a run will do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) version: u32,
    pub(crate) experiment: Experiment,
    /// Whether both arms are the same kernel, to see what the method says then.
    pub(crate) aa: bool,
    /// Whether a tenth of the trials run again, to be compared with the first time.
    #[serde(default)]
    pub(crate) verify: bool,
    /// In the order in which they run.
    pub(crate) trials: Vec<PlannedTrial>,
    /// The command that made this plan, as typed.
    pub(crate) command: String,
}

/// One trial to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedTrial {
    /// From 1, in the order of running.
    pub(crate) number: u32,
    /// From 1.
    pub(crate) block: u32,
    /// Index into the experiment's arms.
    pub(crate) arm: usize,
    pub(crate) seed: u64,
}

/// A plan that cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("plan this guest: {0}")]
    Topology(String),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Makes the plan.
pub(crate) fn plan(experiment: Experiment, aa: bool, command: String) -> Result<Plan, PlanError> {
    let arch = arch::spec(experiment.guest.arch);
    if let Some(reason) = arch.refuse(&experiment.guest.topology) {
        return Err(PlanError::Topology(reason));
    }
    // Fragments that cannot be read are found here, not after an hour of building.
    for arm in &experiment.arms {
        build::requests(&experiment, arm)?;
    }
    let trials = trials(experiment.arms.len(), experiment.judge.blocks, experiment.judge.seed);
    Ok(Plan { version: VERSION, experiment, aa, verify: false, trials, command })
}

impl Plan {
    /// The names of the arms; the first is the base.
    pub(crate) fn arm_names(&self) -> Vec<String> {
        self.experiment.arms.iter().map(|arm| arm.name.clone()).collect()
    }

    pub(crate) fn arch(&self) -> &'static ArchSpec {
        arch::spec(self.experiment.guest.arch)
    }

    /// What executes the guests, where the experiment alone decides it; with `auto` a probe does.
    pub(crate) fn engine(&self) -> Option<Engine> {
        match (self.experiment.guest.clock, self.experiment.guest.accel) {
            (Clock::Virtual, _) => Some(Engine::TcgVirtual),
            (Clock::Wall, Accel::Tcg) => Some(Engine::Tcg),
            (Clock::Wall, Accel::Kvm) => Some(Engine::Kvm),
            (Clock::Wall, Accel::Auto) => None,
        }
    }

    pub(crate) fn requests(&self, arm: &Arm) -> Result<Requests, BuildError> {
        build::requests(&self.experiment, arm)
    }

    /// How long a trial takes by the guest's clock before its window opens: the proof of isolation and the warm-up.
    pub(crate) fn before_window(&self, engine: Engine) -> Duration {
        let isolate = self.experiment.guest.isolate.as_ref();
        let proof = isolate.map(|isolate| isolation::proof(isolate, engine, self.emulator_threads()));
        let proof = proof.as_ref().map(isolation::duration).unwrap_or_default();
        proof + Duration::from_nanos(self.experiment.trial.warm_up_ns)
    }

    /// How long a guest probably takes until its agent speaks.
    pub(crate) fn boot_time(&self, engine: Engine) -> Duration {
        self.arch().boot_time(engine, self.experiment.guest.topology.cpus())
    }

    fn emulator_threads(&self) -> EmulatorThreads {
        let guest = &self.experiment.guest;
        guest.emulator_threads.unwrap_or_else(|| self.arch().emulator_threads(guest.topology.cpus()))
    }

    /// The kernel's command line in the guests of an arm.
    pub(crate) fn command_line(&self, arm: &Arm, engine: Engine) -> String {
        let guest = &self.experiment.guest;
        let isolate = guest.isolate.as_ref();
        let isolation = isolate.map(|isolate| isolation::parameters(isolate, guest.topology.cpus()));
        let mut isolation = isolation.unwrap_or_default();
        // What a person writes takes the place of what follows from the intent; the proof sees what it does.
        let own: Vec<&String> = guest.cmdline.iter().chain(&arm.cmdline).collect();
        isolation.retain(|derived| own.iter().all(|own| parameter_name(own) != parameter_name(derived)));
        command_line(self.arch(), engine, &[&isolation, &guest.cmdline, &arm.cmdline])
    }

    /// Whether each arm's guest boots once, and is restored for each trial.
    pub(crate) fn restores(&self, engine: Engine) -> bool {
        engine == Engine::TcgVirtual
            && self.experiment.guest.checkpoint
            && self.arch().no_checkpoints.is_none()
    }

    /// What a guest's initramfs tells the agent; without a trial it waits for one.
    pub(crate) fn orders(&self, trial: Option<Trial>, engine: Engine) -> Orders {
        let isolate = self.experiment.guest.isolate.as_ref();
        Orders {
            protocol: PROTOCOL,
            isolation: isolate.map(|isolate| isolation::proof(isolate, engine, self.emulator_threads())),
            trial,
        }
    }

    /// What the agent is told of a trial.
    pub(crate) fn trial(&self, planned: &PlannedTrial) -> Trial {
        Trial {
            seed: planned.seed,
            warm_up_ns: self.experiment.trial.warm_up_ns,
            workloads: self.experiment.trial.workloads.clone(),
        }
    }

    /// The guest of an arm, once its kernel and initramfs are there.
    pub(crate) fn guest(
        &self,
        arm: &Arm,
        engine: Engine,
        kernel: KernelFiles,
        initramfs: PathBuf,
        seed: u64,
    ) -> GuestSpec {
        GuestSpec {
            arch: self.arch(),
            engine,
            start: if self.restores(engine) { Start::Restore } else { Start::Boot },
            threads: self.emulator_threads(),
            topology: self.experiment.guest.topology.clone(),
            kernel,
            initramfs,
            command_line: self.command_line(arm, engine),
            seed,
        }
    }

    /// QEMU's command line for an arm, to be shown: files are named, not yet made.
    pub(crate) fn shown_qemu(&self, arm: &Arm, engine: Engine) -> String {
        let image = PathBuf::from(format!("{}-{}", self.arch().image, arm.name));
        let kernel = KernelFiles { symbols: image.clone(), image };
        let guest =
            self.guest(arm, engine, kernel, PathBuf::from("initramfs.cpio"), self.experiment.judge.seed);
        let words = arguments(&guest, Console::Channels(Channels { console: 3, port: 4, qmp: 5 }));
        let words = words.iter().map(|word| crate::process::quote(word));
        std::iter::once(guest.arch.qemu.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// What stands before a parameter's value.
fn parameter_name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

/// Blocks in ABBA order (method.md 1): each runs every arm once, with one seed; every second block runs
/// them the other way round; the first order is drawn from the run's seed.
fn trials(arms: usize, blocks: u32, seed: u64) -> Vec<PlannedTrial> {
    let first_is_reversed = mix(seed, 0) & 1 == 1;
    let mut trials = Vec::new();
    for block in 1..=blocks {
        let mut order: Vec<usize> = (0..arms).collect();
        if (block % 2 == 0) != first_is_reversed {
            order.reverse();
        }
        for arm in order {
            let number = u32::try_from(trials.len()).unwrap_or(u32::MAX).saturating_add(1);
            trials.push(PlannedTrial { number, block, arm, seed: mix(seed, block) });
        }
    }
    trials
}

/// The seed of a block: one step of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014) from the run's seed.
fn mix(seed: u64, block: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(block).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_run_in_abba_order_with_one_seed_each() {
        for seed in 0..20 {
            let trials = trials(2, 4, seed);
            let order: Vec<usize> = trials.iter().map(|trial| trial.arm).collect();
            assert!(order == [0, 1, 1, 0, 0, 1, 1, 0] || order == [1, 0, 0, 1, 1, 0, 0, 1], "{order:?}");
            assert!(trials.chunks(2).all(|block| block[0].seed == block[1].seed));
            assert!(trials.windows(3).all(|three| three[0].seed != three[2].seed));
            assert_eq!(
                trials.iter().map(|trial| trial.number).collect::<Vec<_>>(),
                (1..=8).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn isolated_cpus_bring_fragment_parameters_and_proof() {
        let plan = |isolate: &str| {
            let guest = format!("machine: laptop-8\n  cmdline: [quiet]{isolate}");
            plan(crate::config::with_guest(&guest).unwrap(), false, String::new()).unwrap()
        };
        let found = |plan: &Plan| {
            let arm = &plan.experiment.arms[0];
            let dynticks = plan.requests(arm).unwrap().0.contains_key("CONFIG_NO_HZ_FULL");
            let command_line = plan.command_line(arm, Engine::Kvm);
            let added = command_line.split_once("loglevel=5 ").unwrap().1.to_owned();
            let proof = plan.orders(None, Engine::Kvm).isolation;
            (dynticks, added, proof.map(|proof| proof.cpus))
        };
        assert_eq!(found(&plan("")), (false, "quiet".to_owned(), None));
        let isolate = "\n  isolate: {cpus: 6-7, from: [tick]}";
        assert_eq!(found(&plan(isolate)), (true, "nohz_full=6-7 quiet".to_owned(), Some(vec![6, 7])));
    }

    #[test]
    fn either_arm_may_come_first() {
        let firsts: Vec<usize> = (0..20).map(|seed| trials(2, 1, seed)[0].arm).collect();
        assert!(firsts.contains(&0) && firsts.contains(&1));
    }
}
