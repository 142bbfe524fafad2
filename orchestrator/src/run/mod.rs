// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run from plan to result: kernels, engine, trials, judgement, reports. It executes the plan and
//! appends to the run directory; what it does, it tells its listeners, and it prints nothing itself.

pub(crate) mod budget;
mod checkpoints;
pub(crate) mod event;
pub(crate) mod host;
mod kernels;
mod outlook;
mod replay;
pub(crate) mod store;
mod trials;
mod verification;

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::agent::binary::{self, AgentError};
use crate::build::BuildError;
use crate::cache::Cache;
use crate::collect::assemble::{self, Findings, Outcome};
use crate::collect::result::RunResult;
use crate::collect::trial::TrialRecord;
use crate::fs::FileError;
use crate::plan::Plan;
use crate::process::ProcessError;
use crate::report::{self, ReportError};
use crate::source::{PatchError, SourceError};
use crate::vm::fault::Fault;
use crate::vm::guest::GuestError;
use crate::vm::qemu::Engine;
use budget::Budget;
use event::{Event, Listener};
use host::Host;
use kernels::Kernels;
use outlook::Stop;
use replay::ReplayError;
use store::{Store, StoreError};
use trials::Bench;

pub(crate) use kernels::make as make_kernels;
pub(crate) use replay::{Replayed, replay};
pub(crate) use trials::choose_engine;

/// A run that came to no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("get the kernel's source")]
    Source(#[from] SourceError),
    #[error("apply the patches")]
    Patch(#[from] PatchError),
    #[error("build the kernel of arm `{arm}`")]
    Build { arm: String, source: Box<BuildError> },
    #[error("use KVM, which the experiment demands: {why}")]
    NoKvm { why: String },
    #[error("run a guest")]
    Guest(#[from] GuestError),
    #[error("run a guest: {fault}")]
    Qemu { fault: Box<Fault> },
    #[error(
        "the kernel of arm `{arm}` is not the one that the earlier trials ran (its patches, source, \
         configuration or compiler have changed); start a new run"
    )]
    OtherKernel { arm: String },
    #[error("replay a trial")]
    Replay(#[from] ReplayError),
    #[error("write the run directory")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Config(#[from] BuildError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("write the report")]
    Report(#[from] ReportError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// What all trials of a run have in common, settled before the first; `setting.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) kernels: Kernels,
    pub(crate) host: Host,
    /// With the reason; absent when nothing has to be booted.
    pub(crate) engine: Option<(Engine, String)>,
}

/// Executes a plan, or what is left of it. The result is in the run directory, with its reports.
pub(crate) async fn run(
    plan: &Plan,
    store: &Store,
    cache: &Cache,
    budget: Budget,
    listener: &dyn Listener,
) -> Result<RunResult, RunError> {
    let mut records = store::read_trials(store.root())?;
    let mut again = store::read_again(store.root())?;
    listener.hear(&Event::Started {
        experiment: plan.experiment.name.clone(),
        trials: plan.trials.len().try_into().unwrap_or(u32::MAX),
        done: records.len().try_into().unwrap_or(u32::MAX),
    });
    // What would end the run later is found out first.
    let agent = binary::read(plan.arch())?;
    let host = Host::look(plan.arch()).await?;
    let (kernels, _held) = kernels::make(plan, cache, listener).await?;
    if store.has_setting() {
        refuse_other_kernels(plan, &store::read_setting(store.root())?.kernels, &kernels)?;
    }
    // Looking at all of the cache takes seconds; it has only grown when something was built.
    if kernels.kernels.iter().any(|kernel| !kernel.cached) {
        prune(cache, listener);
    }

    let arms = &plan.experiment.arms;
    let same =
        kernels.same_as_base.len() == arms.len() - 1 && arms.iter().all(|arm| arm.cmdline == arms[0].cmdline);
    let engine = if same && !plan.aa {
        None
    } else {
        let (engine, why) = choose_engine(plan, cache, &kernels, &agent, &host, store, listener).await?;
        listener.hear(&Event::EngineChosen { engine, why: why.clone() });
        let guest_memory = plan.experiment.guest.topology.memory_mib();
        if let Some(text) = budget.shortage(guest_memory) {
            listener.hear(&Event::Warning { text });
        }
        listener.hear(&Event::GuestsAtOnce { guests: budget.guests(engine, guest_memory) });
        Some((engine, why))
    };
    let setting = Setting { kernels, host, engine };
    store.save_setting(&setting)?;
    let stopped = match &setting.engine {
        Some((engine, _)) => {
            let bench = Bench {
                plan,
                kernels: &setting.kernels,
                engine: *engine,
                guests_at_once: budget.guests(*engine, plan.experiment.guest.topology.memory_mib()),
                agent: &agent,
                cache,
                qemu_version: &setting.host.qemu_version,
                store,
                listener,
            };
            let stopped = trials::run(&bench, &mut records).await?;
            if stopped.is_none() {
                verification::run(&bench, &records, &mut again).await?;
            }
            stopped
        }
        None => None,
    };
    let result =
        conclude(plan, &setting, store.root(), &Records { first: &records, again: &again }, stopped)?;
    store.save_text("report.md", &report::markdown(&result)?)?;
    store.save_result(&result)?;
    listener.hear(&Event::Ended { verdict: result.sentence.clone(), exit_code: result.exit_code });
    Ok(result)
}

/// The result of a run, finished or not.
pub(crate) fn result_so_far(root: &Path) -> Result<RunResult, RunError> {
    if let Some(result) = store::read_result(root)? {
        return Ok(result);
    }
    let plan = store::read_plan(root)?;
    let setting = store::read_setting(root)?;
    let (records, again) = (store::read_trials(root)?, store::read_again(root)?);
    let stopped = outlook::stop(&records, &plan.arm_names());
    let is_measured = stopped.is_none();
    let both = Records { first: &records, again: &again };
    let mut result = conclude(&plan, &setting, root, &both, stopped)?;
    let (done, all) = (records.len(), plan.trials.len());
    if done < all {
        result.warnings.push(format!("the run is not finished: {done} of {all} trials are there"));
    }
    let (done, all) = (again.len(), plan.to_verify().len());
    if is_measured && done < all {
        result.warnings.push(format!("the run is not finished: {done} of {all} trials to verify ran again"));
    }
    Ok(result)
}

/// What all guests left behind.
struct Records<'a> {
    first: &'a [TrialRecord],
    /// Of the trials that ran again.
    again: &'a [TrialRecord],
}

fn conclude(
    plan: &Plan,
    setting: &Setting,
    root: &Path,
    records: &Records<'_>,
    stopped: Option<Stop>,
) -> Result<RunResult, RunError> {
    let started = Instant::now();
    let events = store::read_events(root)?;
    let excused = outlook::excused(records.first, &plan.arm_names());
    let outcome = match stopped {
        _ if setting.engine.is_none() => Outcome::NoCodeChange,
        None => Outcome::Measured,
        Some(Stop::BaseFails(record)) => Outcome::BaseFails(record),
        Some(Stop::ArmFails(record)) => Outcome::ArmFails(record),
        Some(Stop::Unproven(record)) => Outcome::Unproven(record),
    };
    let Records { first: records, again } = *records;
    let findings = Findings { plan, setting, events: &events, records, again, excused: &excused, outcome };
    let mut result = assemble::assemble(&findings);
    result.timings.analyse = started.elapsed().as_secs_f64();
    Ok(result)
}

/// A resumed run must go on with the kernels that it began with.
fn refuse_other_kernels(plan: &Plan, before: &Kernels, now: &Kernels) -> Result<(), RunError> {
    let mut pairs = before.kernels.iter().zip(&now.kernels);
    let changed = pairs.position(|(before, now)| before.key != now.key);
    match changed {
        Some(index) => Err(RunError::OtherKernel { arm: plan.experiment.arms[index].name.clone() }),
        None => Ok(()),
    }
}

/// Keeps the cache within its limit; a cache that cannot be pruned is no reason to stop.
fn prune(cache: &Cache, listener: &dyn Listener) {
    match cache.prune(Cache::limit()) {
        Ok(removed) if !removed.is_empty() => {
            let mib = removed.iter().map(|entry| entry.bytes).sum::<u64>() >> 20;
            let text = format!(
                "the cache was over its limit; {} old entries ({mib} MiB) were removed",
                removed.len()
            );
            listener.hear(&Event::Warning { text });
        }
        Ok(_) => {}
        Err(error) => {
            listener.hear(&Event::Warning { text: format!("the cache could not be pruned: {error}") });
        }
    }
}
