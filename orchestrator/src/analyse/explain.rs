// SPDX-License-Identifier: MIT OR Apache-2.0
//! A judgement in one sentence: what was found, what it rests on, and what would decide if it is open.

use super::words::{count, p_equals, percent, percent_change, percent_interval, quantity};
use super::{Estimate, Interval, Judgement, Role, Rule, Verdict};

/// The sentence for a judgement whose other fields are filled in. `fewest` is how many blocks the test
/// needs at least, `family` how many metrics are corrected together.
pub(super) fn explain(judgement: &Judgement, rule: &Rule, fewest: usize, family: usize) -> String {
    let (metric, arm) = (&judgement.metric, &judgement.arm);
    let blocks = count(judgement.n, "block");
    let limit = percent(rule.minimum_effect * 100.0);
    let Some(effect) = judgement.effect else {
        return match judgement.verdict {
            Verdict::Invalid => format!("{metric} has a value that no ratio can be formed of."),
            _ => format!("{metric} is undecided: no block is complete."),
        };
    };
    let Estimate { value, interval: Some(interval) } = effect else {
        let smallest = p_equals(0.5_f64.powi(judgement.n as i32 - 1));
        return format!(
            "{metric} is undecided: {blocks} cannot reach 5 % ({smallest} at best); at least {fewest} are \
             needed."
        );
    };
    let (change, range) = (percent_change(value), percent_interval(interval));
    match judgement.verdict {
        Verdict::Improved | Verdict::Regressed => {
            let (size, direction) = (percent(value), if value < 0.0 { "lower" } else { "higher" });
            let p = p_equals(judgement.p_adjusted.unwrap_or(1.0));
            let by = judgement.absolute_effect.map_or_else(String::new, |difference| {
                format!(", by {}", quantity(difference.value.abs(), judgement.unit))
            });
            format!(
                "{metric} is {size} {direction} in {arm} than in the base{by} (95 % interval {range}, {p}, \
                 {blocks})."
            )
        }
        Verdict::NoDifference => format!(
            "{metric} shows no difference larger than {limit}: {arm} differs from the base by {change} \
             (95 % interval {range}, {blocks})."
        ),
        _ => {
            let doubt = doubt(judgement, interval, &range, &limit, family);
            let outlook = outlook(judgement, fewest);
            format!("{metric} is undecided: {arm} differs from the base by {change}, but {doubt}; {outlook}.")
        }
    }
}

fn doubt(judgement: &Judgement, interval: Interval, range: &str, limit: &str, family: usize) -> String {
    let significant = judgement.p_adjusted.is_some_and(|p| p <= 0.05);
    let holds_zero = interval.low <= 0.0 && 0.0 <= interval.high;
    if holds_zero && significant {
        return format!("the 95 % interval {range}, no finer than the instrument, includes zero");
    }
    if holds_zero {
        return format!("the 95 % interval {range} includes both zero and more than {limit}");
    }
    if !significant && judgement.role == Role::Also {
        let p = p_equals(judgement.p_adjusted.unwrap_or(1.0));
        return format!("corrected for {family} metrics this could be chance ({p})");
    }
    format!("the 95 % interval {range} includes both less and more than {limit}")
}

fn outlook(judgement: &Judgement, fewest: usize) -> String {
    match judgement.blocks_needed {
        Some(blocks) if blocks as usize == fewest => format!("at least {blocks} blocks are needed"),
        Some(blocks) => format!("about {blocks} blocks would probably decide"),
        None => "more blocks would hardly decide".to_owned(),
    }
}
