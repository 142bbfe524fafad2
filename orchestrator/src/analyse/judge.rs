// SPDX-License-Identifier: MIT OR Apache-2.0
//! From paired values to judgements: the rules by which an interval becomes a verdict.

use super::explain::explain;
use super::hodges_lehmann::{hodges_lehmann, median};
use super::holm::holm;
use super::power::{blocks_until, detectable, margin};
use super::signflip::{fewest, sign_flip};
use super::{Better, Estimate, Interval, Judgement, Role, Rule, Series, Unit, Verdict};

/// The share of false alarms that is allowed; intervals are at one minus this.
const LEVEL: f64 = 0.05;

pub(super) fn judge(series: &[Series], rule: &Rule) -> Vec<Judgement> {
    let comparisons: Vec<Option<Comparison>> = series.iter().map(|one| compare(one, rule.seed)).collect();
    let beside = |index: &usize| series[*index].role == Role::Also && comparisons[*index].is_some();
    let family: Vec<usize> = (0..series.len()).filter(beside).collect();
    let p_of = |index: &usize| comparisons[*index].as_ref().map_or(1.0, |comparison| comparison.p);
    let corrected = holm(&family.iter().map(p_of).collect::<Vec<f64>>());

    let judge_at = |index: usize| {
        let position = family.iter().position(|&member| member == index);
        let tests = if position.is_some() { family.len() } else { 1 };
        let p_adjusted = position.map_or_else(|| p_of(&index), |position| corrected[position]);
        judge_one(&series[index], comparisons[index].as_ref(), rule, tests, p_adjusted)
    };
    (0..series.len()).map(judge_at).collect()
}

/// Two arms by their logarithms.
struct Comparison {
    /// Of the logarithms of the ratios.
    effect: Estimate,
    /// In the metric's unit.
    absolute: Estimate,
    p: f64,
    /// Standard deviation of the logarithms of the ratios; none for a single block.
    scatter: Option<f64>,
    /// What the instrument alone can change a logarithm by.
    blur: f64,
    base: f64,
    other: f64,
}

/// `None` where there are no pairs or a value has no logarithm.
fn compare(series: &Series, seed: u64) -> Option<Comparison> {
    // Half an event more on both sides keeps the logarithm of a count finite and hardly moves it.
    let (lowest, shift) = match series.unit {
        Unit::Count => (0.0, 0.5),
        Unit::Nanoseconds => (f64::MIN_POSITIVE, 0.0),
    };
    let usable = |value: f64| value.is_finite() && lowest <= value;
    if !series.pairs.iter().all(|&(base, other)| usable(base) && usable(other)) {
        return None;
    }
    let base = median(series.pairs.iter().map(|pair| pair.0).collect())?;
    let other = median(series.pairs.iter().map(|pair| pair.1).collect())?;
    let ratio = |&(base, other): &(f64, f64)| ((other + shift) / (base + shift)).ln();
    let ratios: Vec<f64> = series.pairs.iter().map(ratio).collect();
    let differences: Vec<f64> = series.pairs.iter().map(|(base, other)| other - base).collect();
    // In the worst case one value is too high by the resolution and the other one too low.
    let blur = series.resolution.ln_1p() - (-series.resolution).ln_1p();
    let (effect, p) = estimate(&ratios, blur, seed)?;
    let (absolute, _) = estimate(&differences, series.resolution * (base + other), seed)?;
    Some(Comparison { effect, absolute, p, scatter: standard_deviation(&ratios), blur, base, other })
}

fn estimate(differences: &[f64], blur: f64, seed: u64) -> Option<(Estimate, f64)> {
    let value = hodges_lehmann(differences)?;
    let test = sign_flip(differences, LEVEL, seed);
    // Estimate and test weigh outliers differently; an interval that does not hold its estimate would only
    // puzzle.
    let widen =
        |(low, high): (f64, f64)| Interval { low: low.min(value) - blur, high: high.max(value) + blur };
    Some((Estimate { value, interval: test.interval.map(widen) }, test.p))
}

fn judge_one(
    series: &Series,
    comparison: Option<&Comparison>,
    rule: &Rule,
    tests: usize,
    p_adjusted: f64,
) -> Judgement {
    let n = series.pairs.len();
    let unusable = if n == 0 { Verdict::Inconclusive } else { Verdict::Invalid };
    let mut judgement = Judgement {
        metric: series.metric.clone(),
        arm: series.arm.clone(),
        role: series.role,
        verdict: unusable,
        unit: series.unit,
        better: series.better,
        base: None,
        other: None,
        effect: None,
        absolute_effect: None,
        p: None,
        p_adjusted: None,
        n: n as u32,
        smallest_detectable_effect: None,
        blocks_needed: None,
        explanation: String::new(),
    };
    let level = LEVEL / tests as f64;
    if let Some(comparison) = comparison {
        let limit = rule.minimum_effect.ln_1p();
        judgement.base = Some(comparison.base);
        judgement.other = Some(comparison.other);
        judgement.effect = Some(in_percent(comparison.effect));
        judgement.absolute_effect = Some(comparison.absolute);
        judgement.p = Some(comparison.p);
        judgement.p_adjusted = Some(p_adjusted);
        judgement.verdict = verdict(comparison.effect, p_adjusted, limit, series.better);
        judgement.smallest_detectable_effect = smallest_effect(comparison, n, level);
        if judgement.verdict == Verdict::Inconclusive {
            judgement.blocks_needed = blocks_needed(comparison, n, level, limit);
        }
    } else if n == 0 {
        judgement.blocks_needed = Some(fewest(level) as u32);
    }
    judgement.explanation = explain(&judgement, rule, fewest(level), tests);
    judgement
}

/// `limit` is the logarithm of the smallest change that matters.
fn verdict(effect: Estimate, p_adjusted: f64, limit: f64, better: Better) -> Verdict {
    let Estimate { value, interval: Some(interval) } = effect else {
        return Verdict::Inconclusive;
    };
    if -limit <= interval.low && interval.high <= limit {
        return Verdict::NoDifference;
    }
    let one_sided = 0.0 < interval.low || interval.high < 0.0;
    if !one_sided || LEVEL < p_adjusted || value.abs() < limit {
        return Verdict::Inconclusive;
    }
    if (value < 0.0) == (better == Better::Lower) { Verdict::Improved } else { Verdict::Regressed }
}

/// In percent.
fn smallest_effect(comparison: &Comparison, n: usize, level: f64) -> Option<f64> {
    let size = detectable(n, level)? * comparison.scatter? + comparison.blur;
    Some(size.exp_m1() * 100.0)
}

/// Blocks that would probably give a verdict if the change is as large as estimated and the scatter stays.
fn blocks_needed(comparison: &Comparison, n: usize, level: f64, limit: f64) -> Option<u32> {
    let Some(scatter) = comparison.scatter else {
        return Some(fewest(level) as u32);
    };
    let size = comparison.effect.value.abs();
    blocks_until(n, level, |blocks| {
        let found =
            detectable(blocks, level).map_or(f64::INFINITY, |found| found * scatter) + comparison.blur;
        if limit <= size {
            let estimate_holds = margin() * scatter / (blocks as f64).sqrt() <= size - limit;
            found <= size && estimate_holds
        } else {
            found <= limit - size
        }
    })
}

fn in_percent(effect: Estimate) -> Estimate {
    let percent = |log: f64| log.exp_m1() * 100.0;
    let interval =
        effect.interval.map(|Interval { low, high }| Interval { low: percent(low), high: percent(high) });
    Estimate { value: percent(effect.value), interval }
}

fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests;
