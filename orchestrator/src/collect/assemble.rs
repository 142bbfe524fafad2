// SPDX-License-Identifier: MIT OR Apache-2.0
//! From everything a run left behind to its result. Pure.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use twinboot_protocol::{Cpu, Machine, cpu_list};

use super::difference;
use super::result::{
    Accelerator, Arm, Design, Fault as ResultFault, Host as ResultHost, Isolation, Node, Patch, RunResult,
    Shape, Status, Timings, Topology, Trial, VERSION, Verification,
};
use super::trial::TrialRecord;
use crate::agent::isolation::{Proof, Row, TickRates};
use crate::analyse::{self, Better, Judgement, Role, Rule, Series, Unit, Verdict};
use crate::config::{self, Clock, Disturbance, Experiment, Isolate, MemoryNode, Metric, Statistic};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::run::Setting;
use crate::run::event::Event;
use crate::vm::fault::Fault;
use crate::vm::known_bad::known_bad;
use crate::vm::qemu::Engine;

/// Everything that a result is made from.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) setting: &'a Setting,
    pub(crate) events: &'a [Event],
    pub(crate) records: &'a [TrialRecord],
    /// Of the trials that ran again.
    pub(crate) again: &'a [TrialRecord],
    /// Fingerprints of warnings that every arm has.
    pub(crate) excused: &'a BTreeSet<String>,
    pub(crate) outcome: Outcome,
}

/// How the trials ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Every trial that was planned ran.
    Measured,
    /// The arms' kernels are the same; nothing was booted.
    NoCodeChange,
    BaseFails(Box<TrialRecord>),
    ArmFails(Box<TrialRecord>),
    Unproven(Box<TrialRecord>),
}

/// Makes the result.
pub(crate) fn assemble(findings: &Findings<'_>) -> RunResult {
    let Findings { plan, setting, records, .. } = findings;
    let host = &setting.host;
    let experiment = &plan.experiment;
    let judgements = match findings.outcome {
        Outcome::Measured => judge(findings),
        _ => Vec::new(),
    };
    let verification = difference::verification(records, findings.again);
    let (verdict, sentence) = conclude(findings, &judgements, verification.as_ref());
    let warnings = warnings(findings, verification.as_ref());
    RunResult {
        version: VERSION,
        twinboot: env!("CARGO_PKG_VERSION").to_owned(),
        verdict,
        exit_code: exit(verdict).code(),
        sentence,
        experiment: experiment.name.clone(),
        question: experiment.question.clone(),
        command: plan.command.clone(),
        clock: clock_name(experiment.guest.clock).to_owned(),
        accelerator: accelerator(findings),
        host: ResultHost {
            qemu: host.qemu_version.clone(),
            cpu: host.cpu.clone(),
            cores: host.cores,
            load: host.load,
            governor: host.governor.clone(),
            kernel: host.kernel.clone(),
            stolen: records.iter().filter_map(|record| record.stolen).reduce(f64::max),
            guests_at_once: guests_at_once(findings.events),
            known_bad: known_bad(&host.qemu_version, plan.arch().uname).map(str::to_owned),
        },
        source: setting.kernels.origin.clone(),
        arms: arms(findings),
        topology: topology(experiment, records),
        isolation: isolation(experiment, records),
        design: Design {
            blocks: experiment.judge.blocks,
            complete: complete_blocks(findings),
            order: "ABBA".to_owned(),
            seed: experiment.judge.seed,
            minimum_effect: experiment.judge.minimum_effect,
        },
        trials: records.iter().map(trial).collect(),
        verification,
        judgements,
        faults: faults(findings),
        timings: timings(findings),
        warnings,
    }
}

/// As the last start of the run had it.
fn guests_at_once(events: &[Event]) -> u32 {
    let guests = |event: &Event| match event {
        Event::GuestsAtOnce { guests } => Some(*guests),
        _ => None,
    };
    events.iter().rev().find_map(guests).unwrap_or(1)
}

fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Improved | Verdict::NoDifference | Verdict::NoCodeChange => Exit::NoRegression,
        Verdict::Regressed => Exit::Regression,
        Verdict::BaseFails => Exit::Base,
        Verdict::PatchFails => Exit::Arm,
        Verdict::Inconclusive | Verdict::Invalid => Exit::Inconclusive,
    }
}

/// The verdict of the whole run, and the answer in a sentence.
fn conclude(
    findings: &Findings<'_>,
    judgements: &[Judgement],
    verification: Option<&Verification>,
) -> (Verdict, String) {
    // Figures that depend on more than kernel, experiment and seed prove nothing of a kernel.
    if let Some(trial) = verification.and_then(|verification| verification.differing.first()) {
        let what = format!("Trial {} did not measure the same when it ran again", trial.number);
        return (Verdict::Invalid, format!("{what}: {}.", trial.difference));
    }
    let base = &findings.plan.experiment.arms[0].name;
    let told = |record: &TrialRecord| match &record.fault {
        Some(fault) => format!("{} {}: {}", fault.class, fault.stage, fault.headline),
        None => record.differences.join("; "),
    };
    match &findings.outcome {
        Outcome::NoCodeChange => {
            let what = "The kernels of all arms are the same in code and data, so nothing was booted.";
            (Verdict::NoCodeChange, what.to_owned())
        }
        Outcome::BaseFails(record) => {
            (Verdict::BaseFails, format!("The arm `{base}` cannot be tested: {}.", told(record)))
        }
        Outcome::ArmFails(record) => {
            let arm = &record.arm;
            (Verdict::PatchFails, format!("The arm `{arm}` fails and `{base}` does not: {}.", told(record)))
        }
        Outcome::Unproven(record) => {
            let (arm, number) = (&record.arm, record.number);
            let what = format!("Trial {number} of arm `{arm}` was not what was asked for");
            (Verdict::Invalid, format!("{what}: {}.", record.differences.join("; ")))
        }
        Outcome::Measured if only_wall_clock_emulation(findings) => {
            let what = "Figures of the host's clock under emulation are shown, never judged";
            (Verdict::Inconclusive, format!("{what}; `clock: virtual` can be judged."))
        }
        Outcome::Measured => {
            // With several arms the worst primary decides.
            let severity = |judgement: &&Judgement| match judgement.verdict {
                Verdict::Regressed => 5,
                Verdict::Invalid => 4,
                Verdict::Inconclusive => 3,
                Verdict::NoDifference => 2,
                _ => 1,
            };
            let primaries = judgements.iter().filter(|judgement| judgement.role == Role::Primary);
            match primaries.max_by_key(severity) {
                Some(judgement) => (judgement.verdict, judgement.explanation.clone()),
                None => (Verdict::Inconclusive, "There is nothing to judge.".to_owned()),
            }
        }
    }
}

/// Emulation against the host's clock measures the emulator.
fn only_wall_clock_emulation(findings: &Findings<'_>) -> bool {
    findings.setting.engine.as_ref().is_some_and(|(engine, _)| *engine == Engine::Tcg)
}

fn judge(findings: &Findings<'_>) -> Vec<Judgement> {
    let experiment = &findings.plan.experiment;
    let rule = Rule { minimum_effect: experiment.judge.minimum_effect, seed: experiment.judge.seed };
    let mut judgements = Vec::new();
    for arm in &experiment.arms[1..] {
        let series: Vec<Series> = experiment
            .judge
            .metrics()
            .enumerate()
            .map(|(index, metric)| Series {
                metric: metric.to_string(),
                arm: arm.name.clone(),
                role: if index == 0 { Role::Primary } else { Role::Also },
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                resolution: resolution(metric.statistic),
                pairs: pairs(findings, metric, &arm.name),
            })
            .collect();
        judgements.extend(analyse::judge(&series, &rule));
    }
    if only_wall_clock_emulation(findings) {
        for judgement in &mut judgements {
            judgement.verdict = Verdict::Inconclusive;
            judgement.explanation = "Not judged: the host's clock under emulation.".to_owned();
        }
    }
    judgements
}

/// Sum, count, minimum and maximum of a histogram are exact; a quantile is known to its bucket.
fn resolution(statistic: Statistic) -> f64 {
    match statistic {
        Statistic::Mean | Statistic::Max => 0.0,
        _ => twinboot_protocol::histogram::RELATIVE_ERROR,
    }
}

/// For each block in which both arms have a usable trial: the base's value and the arm's.
fn pairs(findings: &Findings<'_>, metric: &Metric, arm: &str) -> Vec<(f64, f64)> {
    let metric = metric.to_string();
    let base = &findings.plan.experiment.arms[0].name;
    let value = |arm: &str, block: u32| {
        let record = findings.records.iter().find(|record| record.arm == arm && record.block == block)?;
        is_usable(findings, record).then(|| record.metrics.get(&metric).copied()).flatten()
    };
    let blocks = 1..=findings.plan.experiment.judge.blocks;
    blocks.filter_map(|block| Some((value(base, block)?, value(arm, block)?))).collect()
}

fn is_usable(findings: &Findings<'_>, record: &TrialRecord) -> bool {
    let excused = |fault: &Fault| findings.excused.contains(&fault.fingerprint());
    record.is_usable(record.fault.as_ref().is_some_and(excused))
}

fn complete_blocks(findings: &Findings<'_>) -> u32 {
    let arms = findings.plan.experiment.arms.len();
    let in_block = |block: u32| {
        let records = findings.records.iter().filter(|record| record.block == block);
        records.filter(|record| is_usable(findings, record)).count()
    };
    (1..=findings.plan.experiment.judge.blocks).map(|block| u32::from(in_block(block) == arms)).sum()
}

fn arms(findings: &Findings<'_>) -> Vec<Arm> {
    let engine = findings.setting.engine.as_ref().map(|(engine, _)| *engine).or(findings.plan.engine());
    let arms = findings.plan.experiment.arms.iter().zip(&findings.setting.kernels.kernels);
    arms.map(|(arm, kernel)| Arm {
        name: arm.name.clone(),
        release: kernel.release.clone(),
        build_id: kernel.build_id.clone(),
        config_hash: kernel.config_hash.clone(),
        patches: kernel
            .patches
            .iter()
            .map(|patch| Patch {
                subject: patch.subject.clone(),
                patch_id: patch.patch_id.clone(),
                message_id: patch.message_id.clone(),
                files: patch.files.clone(),
            })
            .collect(),
        command_line: findings.plan.command_line(arm, engine.unwrap_or(Engine::Tcg)),
    })
    .collect()
}

fn topology(experiment: &Experiment, records: &[TrialRecord]) -> Topology {
    let asked = &experiment.guest.topology;
    let mut differences: Vec<String> = Vec::new();
    for difference in records.iter().flat_map(TrialRecord::other_differences) {
        if !differences.contains(difference) {
            differences.push(difference.clone());
        }
    }
    let observed = observed(records, |machine| seen_shape(asked, machine));
    Topology {
        requested: asked_shape(asked),
        proven: observed.is_some() && differences.is_empty(),
        observed,
        differences,
    }
}

fn asked_shape(asked: &config::Topology) -> Shape {
    let node = |node: &MemoryNode| Node { cpus: cpu_list::format(&node.cpus), memory_mib: node.memory_mib };
    Shape {
        sockets: asked.sockets,
        clusters: asked.clusters,
        cores: asked.cores,
        threads: asked.threads,
        nodes: asked.nodes.iter().map(node).collect(),
        distances: asked.distances.clone(),
    }
}

/// Clusters are only looked at where some were asked for: what x86 calls one is a cache.
fn seen_shape(asked: &config::Topology, machine: &Machine) -> Shape {
    let cluster = |cpu: &Cpu| if asked.clusters == 1 { 0 } else { cpu.cluster };
    let count = |key: &dyn Fn(&Cpu) -> (i64, i64, i64)| {
        let keys: BTreeSet<_> = machine.cpus.iter().map(key).collect();
        u32::try_from(keys.len()).unwrap_or(u32::MAX).max(1)
    };
    let sockets = count(&|cpu| (cpu.socket, 0, 0));
    let clusters = count(&|cpu| (cpu.socket, cluster(cpu), 0));
    let cores = count(&|cpu| (cpu.socket, cluster(cpu), cpu.core));
    let cpus = u32::try_from(machine.cpus.len()).unwrap_or(u32::MAX);
    Shape {
        sockets,
        clusters: clusters / sockets,
        cores: cores / clusters,
        threads: cpus / cores,
        nodes: machine
            .nodes
            .iter()
            .map(|node| Node { cpus: node.cpus.clone(), memory_mib: node.memory_kib / 1024 })
            .collect(),
        distances: machine.nodes.iter().map(|node| node.distances.clone()).collect(),
    }
}

/// Each row as the first guest that could not prove it has it, or else as the first guest; ticks of the
/// guest that had most.
fn isolation(experiment: &Experiment, records: &[TrialRecord]) -> Isolation {
    let proofs: Vec<&Proof> = records.iter().filter_map(|record| record.isolation.as_ref()).collect();
    let mut rows: IndexMap<&str, &Row> = IndexMap::new();
    for row in proofs.iter().flat_map(|proof| &proof.rows) {
        let entry = rows.entry(&row.what).or_insert(row);
        if entry.proven && !row.proven {
            *entry = row;
        }
    }
    let mut differences: Vec<String> = Vec::new();
    for difference in proofs.iter().flat_map(|proof| proof.differences()) {
        if !differences.contains(difference) {
            differences.push(difference.clone());
        }
    }
    let worst = |ticks: &TickRates| ticks.isolated.as_ref().map_or(0.0, |rates| rates.worst);
    let ticks = proofs.iter().filter_map(|proof| proof.ticks.as_ref());
    let isolate = experiment.guest.isolate.as_ref();
    Isolation {
        requested: isolate.map(|isolate| cpu_list::format(&isolate.cpus)).unwrap_or_default(),
        observed: observed(records, |machine| isolated_in(machine, isolate)).unwrap_or_default(),
        proven: isolate.map(|_| !proofs.is_empty() && differences.is_empty()),
        differences,
        rows: rows.into_values().cloned().collect(),
        ticks: ticks.max_by(|one, other| worst(one).total_cmp(&worst(other))).cloned(),
    }
}

/// The isolated CPUs of a guest, in the sense of what was asked for.
fn isolated_in(machine: &Machine, isolate: Option<&Isolate>) -> String {
    let from = |disturbance| isolate.is_some_and(|isolate| isolate.from.contains(&disturbance));
    let is_tick = from(Disturbance::Tick) && !from(Disturbance::Tasks);
    if is_tick { machine.nohz_full.clone() } else { machine.isolated.clone() }
}

/// Something of the first guest that reported; all guests that count have reported the same.
fn observed<T>(records: &[TrialRecord], what: impl Fn(&Machine) -> T) -> Option<T> {
    records.iter().find_map(|record| record.machine.as_ref()).map(what)
}

fn accelerator(findings: &Findings<'_>) -> Accelerator {
    match &findings.setting.engine {
        Some((engine, why)) => {
            let name = if *engine == Engine::Kvm { "kvm" } else { "tcg" };
            Accelerator { name: name.to_owned(), why: why.clone() }
        }
        None => Accelerator { name: "none".to_owned(), why: "nothing was booted".to_owned() },
    }
}

fn trial(record: &TrialRecord) -> Trial {
    let status = match &record.fault {
        None if record.differences.is_empty() => Status::Ok,
        None => Status::Fault { class: "unproven".to_owned(), message: record.differences.join("; ") },
        Some(fault) => Status::Fault { class: class_name(fault), message: fault.to_string() },
    };
    Trial {
        number: record.number,
        arm: record.arm.clone(),
        block: record.block,
        seed: record.seed,
        digest: record.complete.then(|| record.digest.clone()),
        metrics: record.metrics.clone(),
        samples: record.samples.clone(),
        status,
    }
}

/// Alike faults of an arm together.
fn faults(findings: &Findings<'_>) -> Vec<ResultFault> {
    let base = &findings.plan.experiment.arms[0].name;
    let in_base: BTreeSet<String> = findings
        .records
        .iter()
        .filter(|record| record.arm == *base)
        .filter_map(|record| record.fault.as_ref().map(Fault::fingerprint))
        .collect();
    let mut together: IndexMap<(String, String), ResultFault> = IndexMap::new();
    for record in findings.records {
        let Some(fault) = &record.fault else { continue };
        let fingerprint = fault.fingerprint();
        let entry =
            together.entry((record.arm.clone(), fingerprint.clone())).or_insert_with(|| ResultFault {
                class: class_name(fault),
                arm: record.arm.clone(),
                count: 0,
                also_in_base: record.arm != *base && in_base.contains(&fingerprint),
                message: fault.to_string(),
            });
        entry.count += 1;
    }
    together.into_values().collect()
}

/// The class as result.json spells it.
fn class_name(fault: &Fault) -> String {
    match serde_json::to_value(fault.class) {
        Ok(serde_json::Value::String(name)) => name,
        _ => fault.class.to_string(),
    }
}

/// Times of all stages, those before a resumption included: the event log has them.
fn timings(findings: &Findings<'_>) -> Timings {
    let mut timings = Timings::default();
    for arm in &findings.plan.experiment.arms {
        timings.build.insert(arm.name.clone(), 0.0);
    }
    for event in findings.events {
        match event {
            Event::SourceReady { seconds, .. } => timings.source += seconds,
            Event::Built { arm, seconds, .. } => *timings.build.entry(arm.clone()).or_default() += seconds,
            Event::CheckpointSaved { seconds, .. } => timings.boot += seconds,
            _ => {}
        }
    }
    for record in findings.records.iter().chain(findings.again) {
        let restore = record.restore_seconds.unwrap_or(0.0);
        let boot = if 0.0 < restore { 0.0 } else { record.boot_seconds.unwrap_or(record.seconds) };
        timings.restore += restore;
        timings.boot += boot;
        timings.trial += record.seconds - restore - boot;
    }
    timings
}

fn warnings(findings: &Findings<'_>, verification: Option<&Verification>) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    let qemu = &findings.setting.host.qemu_version;
    if let Some(trouble) = known_bad(qemu, findings.plan.arch().uname) {
        warnings.push(format!("QEMU {qemu} is known to be broken for this machine: {trouble}"));
    }
    for trial in verification.iter().flat_map(|verification| &verification.differing) {
        let (number, difference) = (trial.number, &trial.difference);
        warnings.push(format!(
            "the virtual clock did not repeat trial {number}: {difference}; `twinboot replay` runs it once more"
        ));
    }
    let settled_early =
        matches!(findings.outcome, Outcome::BaseFails(_) | Outcome::ArmFails(_) | Outcome::Unproven(_));
    if findings.plan.verify && settled_early {
        warnings.push("no trial was run again, because the run was settled before its last trial".to_owned());
    }
    for event in findings.events {
        match event {
            Event::Warning { text } if !warnings.contains(text) => warnings.push(text.clone()),
            Event::TrialRepeated { number, why } => {
                warnings.push(format!("trial {number} was repeated after trouble on the host: {why}"));
            }
            _ => {}
        }
    }
    for arm in &findings.setting.kernels.same_as_base {
        if findings.plan.experiment.arms.len() > 2 {
            warnings.push(format!("arm `{arm}` has the same code and data as the base"));
        }
    }
    if !findings.excused.is_empty() {
        warnings.push("the kernels of all arms give the same warning; see the faults".to_owned());
    }
    warnings
}

fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::Virtual => "virtual",
        Clock::Wall => "wall",
    }
}
