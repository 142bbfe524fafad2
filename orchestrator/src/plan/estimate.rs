// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a run will probably take. Rough: from figures measured on two cores, so that nobody starts
//! hours by accident.

use std::time::Duration;

use super::Plan;
use crate::vm::qemu::Engine;

/// Times on a machine with two cores, kernels not yet built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) source: Duration,
    pub(crate) first_build: Duration,
    /// For each arm after the first.
    pub(crate) other_build: Duration,
    pub(crate) each_trial: Duration,
    pub(crate) total: Duration,
}

/// What it takes to restore a saved guest.
const RESTORE: Duration = Duration::from_secs(1);

/// Estimates a plan.
pub(crate) fn estimate(plan: &Plan, engine: Engine) -> Estimate {
    let seconds = Duration::from_secs_f64;
    // What comes before the window is slowed down by what each engine makes of busy CPUs.
    let slowdown = match engine {
        Engine::Kvm => 2,
        Engine::Tcg => 5,
        Engine::TcgVirtual => 10,
    };
    let (boot, before_window) = (plan.boot_time(engine), plan.before_window(engine) * slowdown);
    // A saved guest has booted, and its isolation is proven.
    let (boots, each_trial) = if plan.restores(engine) {
        let warm_up = Duration::from_nanos(plan.experiment.trial.warm_up_ns) * slowdown;
        (boot + before_window, RESTORE + warm_up + seconds(1.0))
    } else {
        (Duration::ZERO, boot + before_window + seconds(1.0))
    };
    let (source, first_build, other_build) = (seconds(25.0), seconds(300.0), seconds(30.0));
    let arms = u32::try_from(plan.experiment.arms.len()).unwrap_or(u32::MAX);
    let trials = u32::try_from(plan.trials.len()).unwrap_or(u32::MAX);
    let builds = first_build + if plan.aa { Duration::ZERO } else { other_build * (arms - 1) };
    let boots = boots * if plan.aa { 1 } else { arms };
    let total = source + builds + boots + each_trial * trials;
    Estimate { source, first_build, other_build, each_trial, total }
}
