// SPDX-License-Identifier: MIT OR Apache-2.0
//! One trial of a run once more, with the same kernel, orders and seed, and what the guest measured
//! compared with the record. Nothing is written into the run directory.

use std::path::Path;

use super::event::{Event, Listener};
use super::kernels::{self, Kernels};
use super::store::{self, Store};
use super::trials::Bench;
use super::{Host, RunError, Setting, refuse_other_kernels};
use crate::agent::binary;
use crate::build::kernel;
use crate::cache::Cache;
use crate::collect::difference::first_difference;
use crate::collect::trial::TrialRecord;
use crate::fs::{Lock, PathContext};
use crate::plan::{Plan, PlannedTrial};
use crate::vm::qemu::Engine;

/// A trial that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error(
        "the run was under the host's clock, where no trial measures the same twice; a run with \
         `clock: virtual` can be replayed"
    )]
    WallClock,
    #[error("the run has no trial to replay")]
    NoTrials,
    #[error("there is no trial {wanted}; the run has the trials {first} to {last}")]
    NoTrial { wanted: u32, first: u32, last: u32 },
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) before: TrialRecord,
    pub(crate) again: TrialRecord,
    /// The first, in words; nothing when the guest measured the same.
    pub(crate) difference: Option<String>,
    /// QEMU's versions, then and now.
    pub(crate) qemu: [String; 2],
}

/// Runs a trial of the run in this directory again, by default its first.
pub(crate) async fn replay(
    root: &Path,
    number: Option<u32>,
    listener: &dyn Listener,
) -> Result<Replayed, RunError> {
    let plan = store::read_plan(root)?;
    let records = store::read_trials(root)?;
    let (planned, before) = choose(&plan, records, number)?;
    let setting = store::read_setting(root)?;
    // What would end the replay later is found out first.
    let agent = binary::read(plan.arch())?;
    let host = Host::look(plan.arch()).await?;
    let cache = Cache::open()?;
    let (kernels, _held) = kernels_of(&plan, &setting, planned.arm, &cache, listener).await?;

    let temporary = std::env::temp_dir();
    let scratch = tempfile::tempdir_in(&temporary).at("create a directory in", &temporary)?;
    let bench = Bench {
        plan: &plan,
        kernels: &kernels,
        engine: Engine::TcgVirtual,
        guests_at_once: 1,
        agent: &agent,
        cache: &cache,
        qemu_version: &host.qemu_version,
        store: &Store::create(scratch.path(), &plan)?,
        listener,
    };
    listener.hear(&Event::VerificationStarted { trials: 1 });
    let (again, _console) = bench.trial(planned).await?;
    let difference = first_difference(&before, &again);
    Ok(Replayed { before, again, difference, qemu: [setting.host.qemu_version, host.qemu_version] })
}

/// The trial with this number, or the first, as planned and as it went.
fn choose(
    plan: &Plan,
    records: Vec<TrialRecord>,
    number: Option<u32>,
) -> Result<(&PlannedTrial, TrialRecord), ReplayError> {
    if !plan.repeats_exactly() {
        return Err(ReplayError::WallClock);
    }
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Err(ReplayError::NoTrials);
    };
    let (first, last) = (first.number, last.number);
    let wanted = number.unwrap_or(first);
    let planned = plan.trials.iter().find(|planned| planned.number == wanted);
    let record = records.into_iter().find(|record| record.number == wanted);
    planned.zip(record).ok_or(ReplayError::NoTrial { wanted, first, last })
}

/// The kernels of the run, of which the one of this arm is there: out of the cache, or made again as a
/// resumed run would. It stays while the locks live.
async fn kernels_of(
    plan: &Plan,
    setting: &Setting,
    arm: usize,
    cache: &Cache,
    listener: &dyn Listener,
) -> Result<(Kernels, Vec<Lock>), RunError> {
    let key = &setting.kernels.kernels[arm].key;
    let held = cache.hold(&cache.kernel(key)).await?;
    if let Some(kernel) = kernel::from_cache(cache, key) {
        let mut kernels = setting.kernels.clone();
        kernels.kernels[arm] = kernel;
        return Ok((kernels, vec![held]));
    }
    // Whoever builds it wants the lock alone.
    drop(held);
    let (kernels, held) = kernels::make(plan, cache, listener).await?;
    refuse_other_kernels(plan, &setting.kernels, &kernels)?;
    Ok((kernels, held))
}
