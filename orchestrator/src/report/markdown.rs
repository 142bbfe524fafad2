// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.md`: the whole result for a maintainer's mail. Plain ASCII, at most 100 columns, tables aligned
//! also as text. The order and the wording of the sections stand in `templates/report.md`; here the
//! figures are put into words and tables.

use std::collections::BTreeSet;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

use super::table::{Align, Table, cut, wrap};
use super::{absent, duration, metric_name, metrics_table, trial_value, verdict_words, verification_words};
use crate::agent::isolation::Row;
use crate::analyse::words::{self, Scale};
use crate::analyse::{Better, Judgement, Role, Verdict};
use crate::collect::result::{Fault, Host, Isolation, RunResult, Shape, Status, Topology};

const WIDTH: usize = 98;
const TEMPLATE: &str = include_str!("../../templates/report.md");

/// A report that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("fill in the report's template")]
pub(crate) struct ReportError(#[from] minijinja::Error);

/// The report as Markdown.
pub(crate) fn markdown(result: &RunResult) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    // A line that only holds a tag leaves no trace.
    let mut syntax = SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?);
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.add_filter("paragraph", |text: &str| wrap(text, WIDTH, 0) + "\n");
    environment.add_filter("item", |text: &str| wrap(&format!("- {text}"), WIDTH, 2) + "\n");
    environment
        .add_filter("subitem", |text: &str| format!("  {}\n", wrap(&format!("- {text}"), WIDTH - 2, 4)));
    environment.add_template("report.md", TEMPLATE)?;
    let text = environment.get_template("report.md")?.render(context! {
        result => Serde(result),
        title => title(result),
        metrics => (!result.judgements.is_empty()).then(|| metrics_table(result).markdown()),
        differences => (!result.judgements.is_empty()).then(|| differences(result).markdown()),
        direction => direction(&result.judgements),
        minimum_effect => words::percent(result.design.minimum_effect * 100.0),
        host => host(&result.host),
        topology => topology(&result.topology),
        isolation => isolation(&result.isolation),
        isolation_rows => (!result.isolation.rows.is_empty())
            .then(|| isolation_rows(&result.isolation.rows).markdown()),
        verification => verification_words(result),
        limits => limits(result),
        faults => Serde(result.faults.iter().map(FaultText::of).collect::<Vec<_>>()),
        trials => (!result.trials.is_empty()).then(|| trials(result)),
        timings => timings(result).markdown(),
    })?;
    Ok(text)
}

fn title(result: &RunResult) -> String {
    format!("{}: {}", result.experiment, verdict_words(result.verdict).to_uppercase())
}

/// The change in the metric's unit, and how probable it is by chance.
fn differences(result: &RunResult) -> Table {
    let mut table = Table::new([
        ("metric", Align::Left),
        ("difference", Align::Right),
        ("95 % interval", Align::Right),
        ("p", Align::Right),
        ("blocks", Align::Right),
    ]);
    for judgement in &result.judgements {
        let effect = judgement.absolute_effect;
        let interval = effect.and_then(|effect| effect.interval);
        let reach = interval.map_or(0.0, |interval| interval.low.abs().max(interval.high.abs()));
        let largest = effect.map_or(0.0, |effect| effect.value.abs().max(reach));
        let scale = Scale::of(largest, judgement.unit);
        table.push(vec![
            metric_name(result, judgement),
            effect.map_or_else(absent, |effect| scale.show_change(effect.value)),
            interval.map_or_else(absent, |interval| scale.show_interval(interval)),
            judgement.p_adjusted.map_or_else(absent, words::probability),
            judgement.n.to_string(),
        ]);
    }
    table
}

/// How to read the table of metrics.
fn direction(judgements: &[Judgement]) -> String {
    let primary = judgements.iter().find(|judgement| judgement.role == Role::Primary);
    let mut sentences = Vec::new();
    if judgements.iter().all(|judgement| judgement.better == Better::Lower) {
        sentences.push("Lower is better.".to_owned());
    } else if judgements.iter().all(|judgement| judgement.better == Better::Higher) {
        sentences.push("Higher is better.".to_owned());
    }
    if let Some(primary) = primary.filter(|_| 1 < judgements.len()) {
        sentences.push(format!(
            "{} decides the verdict; the p of the others are corrected after Holm.",
            primary.metric
        ));
    }
    sentences.join(" ")
}

fn host(host: &Host) -> String {
    let mut parts = vec![host.cpu.clone(), words::count(host.cores, "CPU")];
    parts.extend(host.load.map(|load| format!("load {load:.1}")));
    parts.extend(host.governor.as_ref().map(|governor| format!("governor {governor}")));
    parts.push(format!("Linux {}", host.kernel));
    parts.push(format!("QEMU {}", host.qemu));
    parts.join(", ")
}

fn topology(topology: &Topology) -> String {
    let proof = match (&topology.observed, topology.proven) {
        (_, true) => ", proven in every guest".to_owned(),
        (None, false) => "; NOT PROVEN, no guest reported".to_owned(),
        (Some(observed), false) => format!("; NOT PROVEN, the guests had {}", shape(observed)),
    };
    with_differences(format!("{}{proof}", shape(&topology.requested)), &topology.differences)
}

fn shape(shape: &Shape) -> String {
    let mut levels = vec![words::count(shape.sockets, "socket")];
    levels.extend((1 < shape.clusters).then(|| words::count(shape.clusters, "cluster")));
    levels.push(words::count(shape.cores, "core"));
    levels.push(words::count(shape.threads, "thread"));
    format!("{} ({}, {})", words::count(shape.cpus(), "CPU"), levels.join(" x "), nodes(shape))
}

fn nodes(shape: &Shape) -> String {
    let count = words::count(u32::try_from(shape.nodes.len()).unwrap_or(u32::MAX), "memory node");
    let rows = shape.distances.iter().enumerate();
    let between = rows.flat_map(|(from, row)| {
        row.iter().enumerate().filter(move |(to, _)| from != *to).map(|(_, distance)| *distance)
    });
    let between = BTreeSet::from_iter(between);
    match (between.first(), between.last()) {
        (Some(nearest), Some(farthest)) if nearest < farthest => {
            format!("{count} at distances {nearest} to {farthest}")
        }
        (Some(distance), _) => format!("{count} at distance {distance}"),
        _ => count,
    }
}

fn isolation(isolation: &Isolation) -> String {
    let text = match isolation.proven {
        None => "none asked for".to_owned(),
        Some(true) => format!("CPUs {}, proven in every guest", isolation.requested),
        Some(false) if isolation.rows.is_empty() => {
            format!("CPUs {}; NOT PROVEN, no guest reported", isolation.requested)
        }
        Some(false) => format!("CPUs {}; NOT PROVEN", isolation.requested),
    };
    with_differences(text, &isolation.differences)
}

/// What was checked to prove it.
fn isolation_rows(rows: &[Row]) -> Table {
    let mut table = Table::new([
        ("what", Align::Left),
        ("asked for", Align::Left),
        ("in the guests", Align::Left),
        ("proven", Align::Left),
    ]);
    for row in rows {
        let proven = if row.proven { "yes" } else { "NO" };
        table.push(vec![row.what.clone(), cut(&row.asked, 20), cut(&row.seen, 32), proven.to_owned()]);
    }
    table
}

fn with_differences(text: String, differences: &[String]) -> String {
    std::iter::once(text).chain(differences.iter().cloned()).collect::<Vec<_>>().join("; ")
}

/// For each metric what would not have been found, and for the open ones what would decide.
fn limits(result: &RunResult) -> Vec<String> {
    let limit = |judgement: &Judgement| {
        let name = metric_name(result, judgement);
        let sentence = match judgement.smallest_detectable_effect {
            Some(effect) => {
                format!("{name}: a change of less than {}", words::percent(effect))
            }
            None => format!("{name}: a change of any size"),
        };
        match judgement.blocks_needed {
            Some(blocks) => format!("{sentence}; {} would probably decide.", words::count(blocks, "block")),
            None if judgement.verdict == Verdict::Inconclusive => {
                format!("{sentence}; more blocks would hardly decide.")
            }
            None => format!("{sentence}."),
        }
    };
    result.judgements.iter().map(limit).collect()
}

/// A fault for the template: a sentence, and the console's last lines.
#[derive(Serialize)]
struct FaultText {
    sentence: String,
    lines: Vec<String>,
}

impl FaultText {
    fn of(fault: &Fault) -> Self {
        let base =
            if fault.also_in_base { "The base has the same fault." } else { "The base does not have it." };
        let trials = words::count(fault.count, "trial");
        Self {
            sentence: format!("{} in {}, {trials}. {base}", fault.class, fault.arm),
            lines: fault.message.lines().map(|line| cut(line, WIDTH - 4)).collect(),
        }
    }
}

/// One row for each trial. As many metrics as fit, the primary one first.
fn trials(result: &RunResult) -> String {
    let mut names: Vec<&str> = Vec::new();
    for judgement in &result.judgements {
        if !names.contains(&judgement.metric.as_str()) {
            names.push(&judgement.metric);
        }
    }
    loop {
        let table = trial_table(result, &names).markdown();
        let width = table.lines().next().map_or(0, |line| line.chars().count());
        if width <= WIDTH || names.len() <= 1 {
            return table;
        }
        names.pop();
    }
}

fn trial_table(result: &RunResult, metrics: &[&str]) -> Table {
    let mut columns = vec![("trial", Align::Right), ("block", Align::Right), ("arm", Align::Left)];
    columns.extend(metrics.iter().map(|&metric| (metric, Align::Right)));
    columns.extend([("samples", Align::Right), ("digest", Align::Left), ("end", Align::Left)]);
    let mut table = Table::new(columns);
    for trial in &result.trials {
        let mut row = vec![trial.number.to_string(), trial.block.to_string(), trial.arm.clone()];
        row.extend(metrics.iter().map(|metric| trial_value(result, trial, metric)));
        // All metrics of one workload count the same samples; the first shown speaks for them.
        let samples = metrics.first().and_then(|metric| trial.samples.get(*metric));
        row.push(samples.map_or_else(absent, u64::to_string));
        // Twelve digits tell digests apart, as they do commits.
        row.push(trial.digest.as_ref().map_or_else(absent, |digest| digest.chars().take(12).collect()));
        row.push(match &trial.status {
            Status::Ok => "ok".to_owned(),
            Status::Fault { class, .. } => class.clone(),
        });
        table.push(row);
    }
    table
}

fn timings(result: &RunResult) -> Table {
    let timings = &result.timings;
    let mut table = Table::new([("stage", Align::Left), ("time", Align::Right)]);
    let mut add = |stage: &str, seconds: f64| table.push(vec![stage.to_owned(), duration(seconds)]);
    add("source", timings.source);
    for (arm, seconds) in &timings.build {
        add(&format!("build {arm}"), *seconds);
    }
    add("boot", timings.boot);
    if 0.0 < timings.restore {
        add("restore", timings.restore);
    }
    add("trials", timings.trial);
    add("analyse", timings.analyse);
    table
}
