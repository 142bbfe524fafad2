// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what runs in the guest and how it is judged: CPUs within the topology, metrics that something
//! measures and that its sample count supports.

use indexmap::IndexMap;
use twinboot_protocol::{Hogs, Pingpong, Workload};

use super::super::located::{Located, Maybe};
use super::super::{Judge, Metric, Statistic, Trial, names, raw, size};
use super::{Findings, Problem, checked_name, cpu_list, quantity};

/// How many samples each workload takes in a trial; `None` for those that only make load.
pub(super) struct Measured(IndexMap<String, Option<u64>>);

impl Measured {
    pub(super) fn of(trial: &raw::Trial) -> Self {
        let mut samples = IndexMap::new();
        for raw::Workload { pingpong, hogs } in trial.workloads.value.iter().map(|workload| &workload.value) {
            if let Some(pingpong) = &pingpong.0 {
                let taken = pingpong.rounds.value.saturating_mul(2);
                samples.insert(name_or("pingpong", &pingpong.name), Some(taken));
            }
            if let Some(hogs) = &hogs.0 {
                samples.insert(name_or("hogs", &hogs.name), None);
            }
        }
        Self(samples)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, samples)| samples.is_some()).map(|(name, _)| name.as_str())
    }
}

/// `cpus` is how many the guest has, if its topology is valid.
pub(super) fn trial(raw: &raw::Trial, cpus: Option<u32>, findings: &mut Findings) -> Trial {
    let mut workloads: Vec<Workload> = Vec::new();
    for raw in &raw.workloads.value {
        let Some(workload) = workload(raw, cpus, findings) else { continue };
        if workloads.iter().any(|other| other.name() == workload.name()) {
            findings.add(raw.problem(
                format!("two workloads are called `{}`", workload.name()),
                "expected a `name` of its own",
            ));
        }
        workloads.push(workload);
    }
    if !raw.workloads.value.iter().any(|workload| workload.value.pingpong.0.is_some()) {
        findings.add(raw.workloads.problem("no workload that measures", "expected a pingpong among them"));
    }
    let warm_up = quantity("a duration", &raw.warm_up, size::nanoseconds);
    Trial { warm_up_ns: findings.keep(warm_up).unwrap_or(0), workloads }
}

/// `None` only when there are findings.
pub(super) fn judge(raw: &raw::Judge, measured: &Measured, findings: &mut Findings) -> Option<Judge> {
    let primary = findings.keep(metric(&raw.primary, measured));
    let mut also: Vec<Metric> = Vec::new();
    for raw in &raw.also {
        let Some(metric) = findings.keep(metric(raw, measured)) else { continue };
        if primary.as_ref() == Some(&metric) || also.contains(&metric) {
            findings.add(raw.problem(format!("`{metric}` is judged already"), "expected each metric once"));
        }
        also.push(metric);
    }
    if !(1..=200).contains(&raw.blocks.value) {
        findings.add(raw.blocks.problem("not a number of blocks", "expected 1 to 200; 8 is usual"));
    }
    let effect = quantity("an effect's size", &raw.minimum_effect, size::ratio);
    Some(Judge {
        also,
        minimum_effect: findings.keep(effect).unwrap_or(0.0),
        blocks: raw.blocks.value,
        seed: raw.seed.value,
        primary: primary?,
    })
}

fn workload(raw: &Located<raw::Workload>, cpus: Option<u32>, findings: &mut Findings) -> Option<Workload> {
    match (&raw.value.pingpong.0, &raw.value.hogs.0) {
        (Some(raw), None) => Some(Workload::Pingpong(pingpong(raw, cpus, findings))),
        (None, Some(raw)) => Some(Workload::Hogs(hogs(raw, cpus, findings))),
        _ => {
            findings.add(raw.problem(
                "not exactly one kind of workload",
                "expected one of pingpong, hogs; each workload is an entry of its own",
            ));
            None
        }
    }
}

fn pingpong(raw: &raw::Pingpong, cpus: Option<u32>, findings: &mut Findings) -> Pingpong {
    if !(1..=1_000_000_000).contains(&raw.rounds.value) {
        findings.add(raw.rounds.problem("not a number of rounds", "expected 1 to 1000000000"));
    }
    Pingpong {
        name: workload_name("pingpong", &raw.name, findings),
        via: raw.via.into(),
        between: raw.between.into(),
        cpus: findings.keep(pair(&raw.cpus, cpus)).unwrap_or([0; 2]),
        rounds: raw.rounds.value,
    }
}

fn pair(raw: &Located<Vec<Located<u32>>>, count: Option<u32>) -> Result<[u32; 2], Problem> {
    let [first, second] = raw.value.as_slice() else {
        return Err(raw.problem(
            format!("{} CPUs for two partners", raw.value.len()),
            "expected two, such as [0, 1]; the same one twice is fine",
        ));
    };
    for cpu in [first, second] {
        if let Some(count) = count
            && count <= cpu.value
        {
            let expected = size::within(count);
            return Err(cpu.problem(format!("there is no CPU {}", cpu.value), format!("expected {expected}")));
        }
    }
    Ok([first.value, second.value])
}

fn hogs(raw: &raw::Hogs, count: Option<u32>, findings: &mut Findings) -> Hogs {
    // Without a topology there is nothing to hold the CPUs against, and one message is enough.
    let cpus = count.and_then(|count| findings.keep(cpu_list(&raw.cpus, count)));
    if !(1..=1000).contains(&raw.per_cpu.value) {
        findings.add(raw.per_cpu.problem("not a number of hogs", "expected 1 to 1000"));
    }
    let load = quantity("a load", &raw.load, size::load_percent);
    Hogs {
        name: workload_name("hogs", &raw.name, findings),
        cpus: cpus.unwrap_or_default(),
        per_cpu: raw.per_cpu.value,
        load_percent: findings.keep(load).unwrap_or(1),
        spin: raw.spin.into(),
    }
}

fn metric(raw: &Located<String>, measured: &Measured) -> Result<Metric, Problem> {
    let Some((workload, statistic)) = raw.value.split_once('.') else {
        return Err(raw.problem(format!("`{}` is not a metric", raw.value), names::METRIC_FORM));
    };
    let samples = match measured.0.get(workload) {
        Some(Some(samples)) => *samples,
        Some(None) => {
            let valid = names::one_of(workload, measured.names());
            return Err(raw.problem(format!("`{workload}` makes load and measures nothing"), valid));
        }
        None => {
            let valid = names::one_of(workload, measured.names());
            return Err(raw.problem(format!("there is no workload `{workload}`"), valid));
        }
    };
    let statistic: Statistic = statistic.parse().map_err(|error: names::NameError| {
        raw.problem(format!("unknown statistic `{statistic}`"), error.expected)
    })?;
    let needed = statistic.samples_needed();
    if samples < needed {
        return Err(raw.problem(
            format!("too few samples for {statistic}"),
            format!(
                "expected {needed} or more, so at least {} rounds; there are {samples} samples",
                needed.div_ceil(2)
            ),
        ));
    }
    Ok(Metric { workload: workload.to_owned(), statistic })
}

fn workload_name(kind: &str, name: &Maybe<Located<raw::Name>>, findings: &mut Findings) -> String {
    match &name.0 {
        Some(name) => findings.keep(checked_name(name)).unwrap_or_default(),
        None => kind.to_owned(),
    }
}

fn name_or(kind: &str, name: &Maybe<Located<raw::Name>>) -> String {
    name.0.as_ref().map_or(kind, |name| &name.value.0).to_owned()
}
