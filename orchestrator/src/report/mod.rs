// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: from the value of `result.json` to what people read. Pure: a report says nothing that is not
//! in the result, and whoever has the result can make every report again.

mod markdown;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use markdown::{ReportError, markdown};
pub(crate) use terminal::{Style, terminal};

use crate::analyse::{Judgement, Verdict, words};
use crate::collect::result::{RunResult, Trial, Verification};
use table::{Align, Table};

/// A verdict in lower case, for tables.
fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Improved => "improved",
        Verdict::Regressed => "regressed",
        Verdict::NoDifference => "no difference",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Invalid => "invalid",
        Verdict::NoCodeChange => "no code change",
        Verdict::PatchFails => "patch fails",
        Verdict::BaseFails => "base fails",
    }
}

/// Both arms of each metric, the change and its interval, and the verdict in the last column.
fn metrics_table(result: &RunResult) -> Table {
    let (base, other) = match result.arms.as_slice() {
        [base, other] => (base.name.as_str(), other.name.as_str()),
        _ => ("base", "other arm"),
    };
    let mut table = Table::new([
        ("metric", Align::Left),
        (base, Align::Right),
        (other, Align::Right),
        ("change", Align::Right),
        ("95 % interval", Align::Right),
        ("verdict", Align::Left),
    ]);
    for judgement in &result.judgements {
        let value =
            |value: Option<f64>| value.map_or_else(absent, |value| words::quantity(value, judgement.unit));
        let effect = judgement.effect;
        let interval = effect.and_then(|effect| effect.interval);
        table.push(vec![
            metric_name(result, judgement),
            value(judgement.base),
            value(judgement.other),
            effect.map_or_else(absent, |effect| words::percent_change(effect.value)),
            interval.map_or_else(absent, words::percent_interval),
            verdict_words(judgement.verdict).to_owned(),
        ]);
    }
    table
}

/// The metric's name, with the arm's where there are several to compare.
fn metric_name(result: &RunResult, judgement: &Judgement) -> String {
    if result.arms.len() <= 2 {
        return judgement.metric.clone();
    }
    format!("{} ({})", judgement.metric, judgement.arm)
}

/// Stands where a table has nothing to say.
fn absent() -> String {
    "-".to_owned()
}

/// A trial's value of a metric, in the unit that its judgement states.
fn trial_value(result: &RunResult, trial: &Trial, metric: &str) -> String {
    let judgement = result.judgements.iter().find(|judgement| judgement.metric == metric);
    match (trial.metrics.get(metric), judgement) {
        (Some(&value), Some(judgement)) => words::quantity(value, judgement.unit),
        _ => absent(),
    }
}

/// What came of the trials that ran again, if any did.
fn verification_words(result: &RunResult) -> Option<String> {
    let Verification { trials, equal, .. } = result.verification.as_ref()?;
    let all = words::count(u32::try_from(result.trials.len()).unwrap_or(u32::MAX), "trial");
    Some(match trials - equal {
        0 => format!("{trials} of {all}, equal to the last digit"),
        differing => format!("{trials} of {all}, of which {differing} DIFFER from the first time"),
    })
}

/// A duration for people: `0.04 s`, `4.2 s`, `12 s`, `3 min 5 s`.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.995 => format!("{seconds:.2} s"),
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 119.5 => format!("{seconds:.0} s"),
        _ => {
            let whole = seconds.round() as u64;
            format!("{} min {} s", whole / 60, whole % 60)
        }
    }
}
