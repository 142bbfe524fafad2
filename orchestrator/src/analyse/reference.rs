// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values computed by other programs, for the tests. `ci/reference-values.py` writes them.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Reference {
    pub(super) sign_flip: Vec<SignFlipCase>,
    /// Too large for the program that computes the intervals.
    pub(super) sign_flip_p_only: Vec<SignFlipCase>,
    pub(super) holm: Vec<HolmCase>,
    pub(super) clopper_pearson: Vec<BinomialCase>,
    pub(super) normal_quantile: Vec<QuantileCase>,
}

#[derive(Deserialize)]
pub(super) struct SignFlipCase {
    pub(super) name: String,
    pub(super) differences: Vec<f64>,
    pub(super) p: f64,
    pub(super) interval: Option<[f64; 2]>,
    pub(super) hodges_lehmann: f64,
}

#[derive(Deserialize)]
pub(super) struct HolmCase {
    pub(super) p: Vec<f64>,
    pub(super) adjusted: Vec<f64>,
}

#[derive(Deserialize)]
pub(super) struct BinomialCase {
    pub(super) hits: u64,
    pub(super) tries: u64,
    pub(super) level: f64,
    pub(super) interval: [f64; 2],
}

#[derive(Deserialize)]
pub(super) struct QuantileCase {
    pub(super) share: f64,
    pub(super) point: f64,
}

pub(super) fn load() -> Reference {
    serde_json::from_str(include_str!("reference.json")).unwrap()
}

/// Agreement to 1e-9, relative to the larger of 1 and the value.
pub(super) fn check(name: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{name}: {found}, not {expected}");
}
