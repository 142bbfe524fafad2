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

/// Estimates a plan.
pub(crate) fn estimate(plan: &Plan, engine: Engine) -> Estimate {
    let seconds = Duration::from_secs_f64;
    // What comes before the window is slowed down by what each engine makes of busy CPUs.
    let slowdown = match engine {
        Engine::Kvm => 2,
        Engine::Tcg => 5,
        Engine::TcgVirtual => 10,
    };
    let each_trial = plan.boot_time(engine) + plan.before_window(engine) * slowdown + seconds(1.0);
    let (source, first_build, other_build) = (seconds(25.0), seconds(300.0), seconds(30.0));
    let arms = u32::try_from(plan.experiment.arms.len()).unwrap_or(u32::MAX);
    let trials = u32::try_from(plan.trials.len()).unwrap_or(u32::MAX);
    let builds = first_build + if plan.aa { Duration::ZERO } else { other_build * (arms - 1) };
    let total = source + builds + each_trial * trials;
    Estimate { source, first_build, other_build, each_trial, total }
}
