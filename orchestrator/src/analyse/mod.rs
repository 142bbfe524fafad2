// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics and verdicts: from one number per trial to a [`Judgement`] per metric.
//!
//! The unit of replication is the block: one trial of each arm, with the same seed, run next to each
//! other. A block gives the log ratio of the two arms; everything follows from these few numbers
//! (Kalibera & Jones, ISMM 2013, on why not from the samples inside the trials). The test is the sign-flip
//! test, the estimate Hodges and Lehmann's, the interval the test inverted; several metrics are corrected
//! after Holm. Each is in its module, with its source, and is checked against values computed by other
//! programs (`reference.json`, made by `ci/reference-values.py`).
//!
//! All of it is pure: no files, no clock, and random numbers from a seed. Whether the trials may be
//! believed at all, from proofs of topology to dropped samples, is decided before.

#[cfg_attr(not(test), expect(dead_code, reason = "the false-alarm rate of A/A runs will need it"))]
pub(crate) mod clopper_pearson;
mod explain;
mod hodges_lehmann;
mod holm;
mod judge;
mod power;
mod random;
#[cfg(test)]
mod reference;
mod signflip;
pub(crate) mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One metric of two arms, to be judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) metric: String,
    /// The arm that is compared with the base.
    pub(crate) arm: String,
    pub(crate) role: Role,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// The largest relative error that the instrument makes in one value: 0.01 is 1 %, 0 is exact.
    pub(crate) resolution: f64,
    /// For each block the base's value and the other arm's.
    pub(crate) pairs: Vec<(f64, f64)>,
}

/// How to judge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rule {
    /// The smallest change that matters, as a ratio: 0.05 is 5 %. The way back from a change counts as
    /// equally large, so the limit downwards is 1/1.05 - 1.
    pub(crate) minimum_effect: f64,
    /// For the sign patterns drawn beyond 20 blocks.
    pub(crate) seed: u64,
}

/// What a metric decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// The verdict of the run.
    Primary,
    /// Nothing; it is judged beside the primary metric.
    Also,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    Nanoseconds,
    /// Events; zero is a possible value.
    Count,
}

/// Which direction is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// A change for the better, of at least the minimum effect.
    Improved,
    /// A change for the worse, of at least the minimum effect.
    Regressed,
    /// No change larger than the minimum effect.
    NoDifference,
    /// The blocks do not decide.
    Inconclusive,
    /// Something that the verdict would rest on is not proven or not sound.
    Invalid,
    /// The arms' kernels are the same in code and data.
    NoCodeChange,
    /// The patched arm crashes, hangs or warns, and the base does not.
    PatchFails,
    /// The base arm crashes, hangs or warns, so that there is nothing to compare with.
    BaseFails,
}

/// What the blocks say about one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Judgement {
    /// The metric's name.
    pub(crate) metric: String,
    /// The arm that was compared with the base.
    pub(crate) arm: String,
    /// What the metric decides.
    pub(crate) role: Role,
    /// What was found out.
    pub(crate) verdict: Verdict,
    /// The unit of `base`, `other` and `absolute_effect`.
    pub(crate) unit: Unit,
    /// Which direction is an improvement.
    pub(crate) better: Better,
    /// Median over the blocks of the base arm.
    pub(crate) base: Option<f64>,
    /// Median over the blocks of the other arm.
    pub(crate) other: Option<f64>,
    /// Change of the other arm against the base, in percent.
    pub(crate) effect: Option<Estimate>,
    /// The same change in the metric's unit.
    pub(crate) absolute_effect: Option<Estimate>,
    /// Two-sided, of the sign-flip test.
    pub(crate) p: Option<f64>,
    /// Corrected after Holm for the metrics judged beside the primary one; equal to `p` for the primary.
    pub(crate) p_adjusted: Option<f64>,
    /// Blocks.
    pub(crate) n: u32,
    /// The change, in percent, that as many blocks with the scatter seen find four times in five.
    pub(crate) smallest_detectable_effect: Option<f64>,
    /// Blocks that would probably (four times in five) decide, from what was seen. Only when inconclusive,
    /// and absent when no affordable number would.
    pub(crate) blocks_needed: Option<u32>,
    /// The verdict and what it rests on, in one sentence.
    pub(crate) explanation: String,
}

/// A change and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Estimate {
    /// Hodges-Lehmann.
    pub(crate) value: f64,
    /// At 95 %, and never narrower than the instrument's resolution; absent where the blocks are too few.
    pub(crate) interval: Option<Interval>,
}

/// From `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Judges the metrics of one comparison: all series of one arm against the base. Those in the role `also`
/// are corrected together.
pub(crate) fn judge(series: &[Series], rule: &Rule) -> Vec<Judgement> {
    judge::judge(series, rule)
}
