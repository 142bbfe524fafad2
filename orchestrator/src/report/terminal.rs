// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run in a terminal: one table and one sentence, for 80 columns; where a guest failed, what its
//! console said last.

use super::table::{cut, wrap};
use super::{metrics_table, verdict_words, verification_words};
use crate::analyse::{Verdict, words};
use crate::collect::result::{Fault, Isolation, RunResult};

const WIDTH: usize = 80;

/// How much of a console is shown; the report and the run directory have more.
const CONSOLE_LINES: usize = 12;

/// Whether the text may carry colours. They only underline what the words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

/// The table of metrics, the faults, the warnings, the isolation, and the answer; ends with a line feed.
pub(crate) fn terminal(result: &RunResult, style: Style) -> String {
    let mut paragraphs = Vec::new();
    if !result.judgements.is_empty() {
        paragraphs.push(metrics(result, style));
    }
    paragraphs.extend(result.faults.iter().map(fault_text));
    paragraphs.extend(result.warnings.iter().map(|warning| wrap(&format!("WARNING: {warning}"), WIDTH, 2)));
    paragraphs.extend(isolation_text(&result.isolation));
    paragraphs.extend(verification_words(result).map(|words| wrap(&format!("Run again: {words}"), WIDTH, 2)));
    let verdict = verdict_words(result.verdict).to_uppercase();
    let answer = wrap(&format!("{verdict}: {}", result.sentence), WIDTH, 0);
    paragraphs.push(answer.replacen(&verdict, &paint(&verdict, result.verdict, style), 1));
    paragraphs.join("\n\n") + "\n"
}

fn metrics(result: &RunResult, style: Style) -> String {
    let mut lines = metrics_table(result).plain(2);
    // The verdict stands at the end of its line, so that colours do not disturb the columns.
    for (line, judgement) in lines[1..].iter_mut().zip(&result.judgements) {
        let word = verdict_words(judgement.verdict);
        line.truncate(line.len() - word.len());
        line.push_str(&paint(word, judgement.verdict, style));
    }
    lines.join("\n")
}

/// A fault in a line, and the end of what the first guest that had it said.
fn fault_text(fault: &Fault) -> String {
    let base = if fault.also_in_base { "; the base has it too" } else { "" };
    let trials = words::count(fault.count, "trial");
    let mut text = wrap(&format!("{}: {} in {trials}{base}", fault.arm, fault.class), WIDTH, 2);
    if fault.also_in_base {
        return text;
    }
    let said: Vec<&str> = fault.message.lines().skip(1).collect();
    for line in &said[said.len().saturating_sub(CONSOLE_LINES)..] {
        text.push('\n');
        text.push_str(&cut(line, WIDTH));
    }
    text
}

/// Whether isolated CPUs were left alone, in a sentence; nothing where nothing was checked.
fn isolation_text(isolation: &Isolation) -> Option<String> {
    if isolation.rows.is_empty() {
        return None;
    }
    let proven = if isolation.proven? { "proven in every guest" } else { "NOT PROVEN" };
    let mut text = format!("Isolated CPUs {}: {proven}", isolation.requested);
    let ticks = isolation.ticks.as_ref();
    if let Some(rates) = ticks.and_then(|ticks| ticks.isolated.as_ref()) {
        text += &format!("; at most {:.1} ticks a second under load", rates.worst);
    }
    if let Some(rates) = ticks.and_then(|ticks| ticks.housekeeping.as_ref()) {
        text += &format!(", {:.0} on CPU {}, which is not isolated", rates.worst, rates.worst_cpu);
    }
    Some(wrap(&text, WIDTH, 2))
}

fn paint(word: &str, verdict: Verdict, style: Style) -> String {
    let colour = match verdict {
        Verdict::Improved | Verdict::NoDifference | Verdict::NoCodeChange => 32,
        Verdict::Regressed | Verdict::Invalid | Verdict::PatchFails | Verdict::BaseFails => 31,
        Verdict::Inconclusive => 33,
    };
    match style {
        Style::Plain => word.to_owned(),
        Style::Coloured => format!("\x1b[1;{colour}m{word}\x1b[0m"),
    }
}
