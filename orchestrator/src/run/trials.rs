// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second half of a run: which engine executes the guests, and the trials.

use std::path::PathBuf;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::checkpoints::{self, Recipe};
use super::event::{Event, Listener};
use super::host::CpuTime;
use super::kernels::Kernels;
use super::outlook::{self, Stop};
use super::store::Store;
use super::{Host, RunError};
use crate::agent::{self, verify::Expected};
use crate::cache::Cache;
use crate::collect::trial::{self, Identity, TrialRecord};
use crate::config::{Accel, Metric};
use crate::fs;
use crate::plan::{Plan, PlannedTrial};
use crate::vm::accel;
use crate::vm::deadline::{Limits, limits};
use crate::vm::fault::{Fault, FaultClass};
use crate::vm::guest::{self, GuestError, GuestRun, Sign};
use crate::vm::qemu::{Engine, GuestSpec};

/// What all trials of a run share.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) kernels: &'a Kernels,
    pub(crate) engine: Engine,
    pub(crate) guests_at_once: u32,
    pub(crate) agent: &'a [u8],
    pub(crate) cache: &'a Cache,
    pub(crate) qemu_version: &'a str,
    pub(crate) store: &'a Store,
    pub(crate) listener: &'a dyn Listener,
}

/// Decides what executes the guests, by a probe where only a probe can tell.
pub(crate) async fn choose_engine(
    plan: &Plan,
    cache: &Cache,
    kernels: &Kernels,
    agent: &[u8],
    host: &Host,
    store: &Store,
    listener: &dyn Listener,
) -> Result<(Engine, String), RunError> {
    if plan.engine() == Some(Engine::TcgVirtual) {
        return Ok((Engine::TcgVirtual, "the virtual clock counts emulated instructions".to_owned()));
    }
    if plan.engine() == Some(Engine::Tcg) {
        return Ok((Engine::Tcg, "the experiment asks for emulation".to_owned()));
    }
    let arch = plan.arch();
    let known = accel::without_probe(arch).or_else(|| accel::remembered(cache, arch, &host.qemu_version));
    let finding = match known {
        Some(finding) => finding,
        None => {
            listener.hear(&Event::ProbeStarted);
            let file = store.root().join(".guest-probe.cpio");
            fs::write_atomic(&file, &agent::initramfs(agent, None, &[]))?;
            let kernel = kernels.kernels[0].files();
            let finding = accel::probe(cache, arch, &host.qemu_version, kernel, &file).await;
            let _ = std::fs::remove_file(&file);
            finding?
        }
    };
    match (finding.usable, plan.experiment.guest.accel) {
        (true, _) => Ok((Engine::Kvm, finding.why)),
        (false, Accel::Kvm) => Err(RunError::NoKvm { why: finding.why }),
        (false, _) => Ok((Engine::Tcg, format!("KVM is not usable here: {}", finding.why))),
    }
}

/// Runs the trials that have no record yet, until all have or the outcome is settled.
pub(crate) async fn run(bench: &Bench<'_>, records: &mut Vec<TrialRecord>) -> Result<Option<Stop>, RunError> {
    let arms = bench.plan.arm_names();
    let done: Vec<u32> = records.iter().map(|record| record.number).collect();
    let settled = outlook::stop(records, &arms);
    if settled.is_some() {
        return Ok(settled);
    }
    let to_do = bench.plan.trials.iter().filter(|trial| !done.contains(&trial.number));
    let mut trials =
        stream::iter(to_do.map(|trial| bench.trial(trial))).buffered(bench.guests_at_once as usize);
    while let Some((record, console)) = trials.try_next().await? {
        bench.store.save_trial(&record, &console)?;
        bench.listener.hear(&Event::TrialEnded {
            number: record.number,
            block: record.block,
            arm: record.arm.clone(),
            digest: record.digest.clone(),
            seconds: record.seconds,
            trouble: trouble(&record),
        });
        records.push(record);
        // Dropping the stream ends the guests that run ahead.
        let settled = outlook::stop(records, &arms);
        if settled.is_some() {
            return Ok(settled);
        }
    }
    Ok(None)
}

impl Bench<'_> {
    /// Runs one trial, a second time where trouble on the host ended it. Returns the record and the console.
    pub(super) async fn trial(&self, planned: &PlannedTrial) -> Result<(TrialRecord, Vec<u8>), RunError> {
        let (record, console) = self.attempt(planned).await?;
        let host_trouble = |fault: &Fault| fault.class.is_hosts();
        let Some(fault) = record.fault.as_ref().filter(|fault| host_trouble(fault)) else {
            return Ok((record, console));
        };
        if fault.class == FaultClass::QemuRefused {
            return Err(RunError::Qemu { fault: Box::new(fault.clone()) });
        }
        self.listener.hear(&Event::TrialRepeated { number: planned.number, why: fault.headline.clone() });
        let (record, console) = self.attempt(planned).await?;
        match record.fault {
            Some(fault) if host_trouble(&fault) => Err(RunError::Qemu { fault: Box::new(fault) }),
            _ => Ok((record, console)),
        }
    }

    async fn attempt(&self, planned: &PlannedTrial) -> Result<(TrialRecord, Vec<u8>), RunError> {
        let experiment = &self.plan.experiment;
        let arm = &experiment.arms[planned.arm];
        let kernel = &self.kernels.kernels[planned.arm];
        let number = planned.number;
        self.listener.hear(&Event::TrialStarted { number, block: planned.block, arm: arm.name.clone() });

        // Where its initramfs is depends on whether it is booted or restored.
        let guest = self.plan.guest(arm, self.engine, kernel.files(), PathBuf::new(), planned.seed);
        let before = CpuTime::now();
        let run = if self.plan.restores(self.engine) {
            self.restore(planned, &guest).await?
        } else {
            self.boot(planned, &guest).await?
        };
        let mut console = run.console.clone();
        if console.last().is_some_and(|&byte| byte != b'\n') {
            console.push(b'\n');
        }
        let identity = Identity { number, block: planned.block, arm: arm.name.clone(), seed: planned.seed };
        let expected = Expected {
            topology: &experiment.guest.topology,
            release: &kernel.release,
            build_id: &kernel.build_id,
            command_line: &guest.command_line,
        };
        let isolate = experiment.guest.isolate.as_ref();
        let metrics: Vec<Metric> = experiment.judge.metrics().cloned().collect();
        let mut record = trial::record(identity, run, &expected, isolate, &metrics);
        record.stolen = before.zip(CpuTime::now()).map(|(before, after)| after.stolen_since(before));
        Ok((record, console))
    }

    /// Runs a trial in a guest of its own, booted for it.
    async fn boot(&self, planned: &PlannedTrial, guest: &GuestSpec) -> Result<GuestRun, RunError> {
        let file = InitramfsFile(self.store.root().join(format!(".guest-{:04}.cpio", planned.number)));
        let orders = self.plan.orders(Some(self.plan.trial(planned)), self.engine);
        fs::write_atomic(&file.0, &agent::initramfs(self.agent, Some(&orders), &[]))?;
        let guest = GuestSpec { initramfs: file.0.clone(), ..guest.clone() };
        Ok(guest::run(&guest, self.limits(), self.observer(planned)).await?)
    }

    /// Runs a trial in a copy of the arm's saved guest.
    async fn restore(&self, planned: &PlannedTrial, guest: &GuestSpec) -> Result<GuestRun, RunError> {
        let recipe = || Recipe {
            cache: self.cache,
            arm: &self.plan.experiment.arms[planned.arm].name,
            guest: guest.clone(),
            kernel_key: &self.kernels.kernels[planned.arm].key,
            initramfs: agent::initramfs(self.agent, Some(&self.plan.orders(None, self.engine)), &[]),
            qemu_version: self.qemu_version,
            limits: self.limits(),
        };
        let trial = self.plan.trial(planned);
        let mut is_second_try = false;
        loop {
            let ready = match checkpoints::get(recipe(), self.listener).await? {
                Ok(ready) => ready,
                Err(failed) => return Ok(*failed),
            };
            let guest = GuestSpec { initramfs: ready.checkpoint.initramfs(), ..guest.clone() };
            let observer = self.observer(planned);
            match guest::resume(
                &guest,
                ready.saved,
                &ready.checkpoint.state(),
                &trial,
                self.limits(),
                observer,
            )
            .await
            {
                // A host that lost its power may have kept half a state.
                Err(GuestError::Restore { .. }) if !is_second_try => {
                    fs::remove_dir(ready.checkpoint.directory())?;
                }
                ended => return Ok(ended?),
            }
            is_second_try = true;
        }
    }

    fn limits(&self) -> Limits {
        limits(self.engine, self.plan.boot_time(self.engine), self.plan.before_window(self.engine))
    }

    fn observer(&self, planned: &PlannedTrial) -> impl FnMut(Sign) {
        let number = planned.number;
        move |sign| {
            if let Sign::Phase(phase) = sign {
                self.listener.hear(&Event::TrialPhase { number, phase });
            }
        }
    }
}

/// A guest's initramfs on disk, for as long as the guest runs.
struct InitramfsFile(PathBuf);

impl Drop for InitramfsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What was wrong with a trial, in a few words.
fn trouble(record: &TrialRecord) -> Option<String> {
    let fault =
        record.fault.as_ref().map(|fault| format!("{} {}: {}", fault.class, fault.stage, fault.headline));
    fault.or_else(|| record.differences.first().cloned())
}
