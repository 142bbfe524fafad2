// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sign-flip test on the sum of paired differences, and the interval that it gives.
//!
//! If the arms do not differ, each block's difference could as well have had the other sign (Fisher
//! 1935, section 21). The two-sided p is the share of all sign patterns whose sum is at least as far
//! from zero as the one seen.
//!
//! Flipping the blocks of a subset F changes the sum by -2 times the sum over F. So a pattern reaches
//! the sum seen, when that is positive, exactly if the sum over F is not positive; and for differences
//! shifted by x, if the mean over F is at most x. The shifts that the test does not reject therefore
//! reach from one order statistic of the subset means to its mirror image (Hartigan 1969, "Using
//! Subsample Values as Typical Values"): the test is inverted exactly, without a search.

use super::random::SplitMix64;

/// Up to this many blocks all sign patterns are counted.
const EXACT_LIMIT: usize = 20;
/// Sign patterns drawn beyond that.
const DRAWS: usize = 100_000;
/// Sums closer than this share of all absolute differences are a tie: rounding must not break what the
/// numbers as measured have equal.
const TIE: f64 = 1e-12;

/// What the test says about one set of differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SignFlip {
    /// Two-sided.
    pub(super) p: f64,
    /// All shifts that the test does not reject at the level; `None` where no p can be that small.
    pub(super) interval: Option<(f64, f64)>,
}

/// Tests whether the differences are symmetric about zero. `level` is 0.05 for a 95 % interval; the seed
/// counts only beyond 20 differences.
pub(super) fn sign_flip(differences: &[f64], level: f64, seed: u64) -> SignFlip {
    let subsets = Subsets::of(differences, seed);
    SignFlip { p: subsets.p(differences), interval: subsets.interval(level) }
}

/// How many of the patterns counted, on one side, may be as extreme as the one seen for the test to
/// reject at the level: `None` if not even one may, so that the test never rejects.
pub(super) fn extreme_patterns(count: usize, level: f64) -> Option<usize> {
    let allowed = (level * patterns(count)).floor() as usize;
    (0 < allowed).then_some(allowed)
}

/// The fewest differences for which p can be as small as the level.
pub(super) fn fewest(level: f64) -> usize {
    (1..=EXACT_LIMIT).find(|&count| extreme_patterns(count, level).is_some()).unwrap_or(EXACT_LIMIT)
}

/// Half of all sign patterns (the other half are their mirror images), or all those drawn with the one
/// seen (Phipson & Smyth 2010).
fn patterns(count: usize) -> f64 {
    match count {
        0 => 1.0,
        1..=EXACT_LIMIT => (1_u64 << (count - 1)) as f64,
        _ => (DRAWS + 1) as f64,
    }
}

/// Sums and means over subsets of the differences: all but the empty one, or each one drawn and what it
/// leaves.
struct Subsets {
    sums: Vec<f64>,
    means: Vec<f64>,
    count: usize,
}

impl Subsets {
    fn of(differences: &[f64], seed: u64) -> Self {
        let count = differences.len();
        let (sums, sizes) = if count <= EXACT_LIMIT { all(differences) } else { drawn(differences, seed) };
        let means = sums.iter().zip(sizes).map(|(sum, size)| sum / f64::from(size)).collect();
        Self { sums, means, count }
    }

    fn p(&self, differences: &[f64]) -> f64 {
        let direction = if differences.iter().sum::<f64>() < 0.0 { -1.0 } else { 1.0 };
        let tie = TIE * differences.iter().map(|difference| difference.abs()).sum::<f64>();
        let as_extreme = self.sums.iter().filter(|&sum| direction * sum <= tie).count();
        // The pattern seen is one of them.
        ((1 + as_extreme) as f64 / patterns(self.count)).min(1.0)
    }

    fn interval(mut self, level: f64) -> Option<(f64, f64)> {
        let allowed = extreme_patterns(self.count, level)?;
        let last = self.means.len() - 1;
        let low = *self.means.select_nth_unstable_by(allowed - 1, f64::total_cmp).1;
        let high = *self.means.select_nth_unstable_by(last - (allowed - 1), f64::total_cmp).1;
        Some((low, high))
    }
}

/// Every subset but the empty one. Built by doubling, so that no sum has more roundings than terms.
fn all(differences: &[f64]) -> (Vec<f64>, Vec<u32>) {
    let mut sums = Vec::with_capacity(1 << differences.len());
    sums.push(0.0);
    for difference in differences {
        for index in 0..sums.len() {
            sums.push(sums[index] + difference);
        }
    }
    // The bits of an index say which differences its sum holds.
    let sizes = (1..sums.len()).map(usize::count_ones).collect();
    sums.remove(0);
    (sums, sizes)
}

/// Random subsets, each with its complement.
fn drawn(differences: &[f64], seed: u64) -> (Vec<f64>, Vec<u32>) {
    let count = differences.len() as u32;
    let total: f64 = differences.iter().sum();
    let mut random = SplitMix64(seed);
    let (mut sums, mut sizes) = (Vec::with_capacity(2 * DRAWS), Vec::with_capacity(2 * DRAWS));
    while sums.len() < 2 * DRAWS {
        let (mut sum, mut size) = (0.0, 0);
        for chunk in differences.chunks(64) {
            let bits = random.next();
            for (index, difference) in chunk.iter().enumerate() {
                if bits >> index & 1 == 1 {
                    sum += difference;
                    size += 1;
                }
            }
        }
        // The pattern seen and its mirror image are counted apart.
        if 0 < size && size < count {
            sums.extend([sum, total - sum]);
            sizes.extend([size, count - size]);
        }
    }
    (sums, sizes)
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::super::reference;
    use super::*;

    #[test]
    fn agrees_with_scipy() {
        let reference = reference::load();
        for case in reference.sign_flip.iter().chain(&reference.sign_flip_p_only) {
            reference::check(&case.name, sign_flip(&case.differences, 0.05, 1).p, case.p);
        }
        for case in reference.sign_flip {
            let found = sign_flip(&case.differences, 0.05, 1).interval;
            assert_eq!(found.is_some(), case.interval.is_some(), "{}", case.name);
            let (Some(found), Some(expected)) = (found, case.interval) else { continue };
            reference::check(&case.name, found.0, expected[0]);
            reference::check(&case.name, found.1, expected[1]);
        }
    }

    #[test]
    fn smallest_p_and_fewest_blocks() {
        let p = |count: usize| sign_flip(&vec![0.3; count], 0.05, 1).p;
        assert_eq!(
            [p(5), p(6), p(7), p(8), p(10)],
            [2.0 / 32.0, 2.0 / 64.0, 2.0 / 128.0, 2.0 / 256.0, 2.0 / 1024.0]
        );
        assert_eq!([fewest(0.05), fewest(0.05 / 2.0), fewest(0.05 / 4.0)], [6, 7, 8]);
    }

    #[test]
    fn zero_scatter_and_no_data() {
        assert_eq!(sign_flip(&[0.0; 8], 0.05, 1), SignFlip { p: 1.0, interval: Some((0.0, 0.0)) });
        assert_eq!(sign_flip(&[0.25; 8], 0.05, 1), SignFlip { p: 2.0 / 256.0, interval: Some((0.25, 0.25)) });
        assert_eq!(sign_flip(&[], 0.05, 1), SignFlip { p: 1.0, interval: None });
    }

    #[test]
    fn rounding_does_not_break_a_tie() {
        let check = |measured: &[f64], whole: &[f64]| {
            assert_eq!(sign_flip(measured, 0.05, 1).p, sign_flip(whole, 0.05, 1).p, "{measured:?}");
        };
        // 0.1 + 0.2 and 0.3 differ in the last bit.
        check(&[0.1, 0.2, -0.3], &[1.0, 2.0, -3.0]);
        check(&[0.3, 0.3, -0.1 - 0.2, -0.1], &[3.0, 3.0, -3.0, -1.0]);
        check(&[0.7, 0.1, 0.3, -0.1, -0.3], &[7.0, 1.0, 3.0, -1.0, -3.0]);
    }

    #[test]
    fn draws_agree_with_all_patterns() {
        let mut random = SplitMix64(7);
        let differences: Vec<f64> = (0..16).map(|_| 0.4 + random.normal()).collect();
        let exact = sign_flip(&differences, 0.05, 1);
        let (sums, sizes) = drawn(&differences, 3);
        // Four standard errors of a share estimated from the draws.
        let as_extreme = sums.iter().filter(|&&sum| sum <= 0.0).count() as f64 / DRAWS as f64;
        assert!(
            (as_extreme - exact.p).abs() < 4.0 * (exact.p / DRAWS as f64).sqrt(),
            "{as_extreme} {}",
            exact.p
        );
        assert_eq!(sizes.iter().sum::<u32>() as usize, 16 * DRAWS);
    }

    #[test]
    fn draws_depend_on_the_seed_alone() {
        let mut random = SplitMix64(8);
        let differences: Vec<f64> = (0..30).map(|_| 0.3 + random.normal()).collect();
        let first = sign_flip(&differences, 0.05, 5);
        assert_eq!(first, sign_flip(&differences, 0.05, 5));
        assert_ne!(first, sign_flip(&differences, 0.05, 6));
        let (low, high) = first.interval.unwrap();
        assert_eq!(first.p <= 0.05, 0.0 < low || high < 0.0);
    }

    /// 2000 A/A comparisons: false alarms at most nominal, intervals that hold the truth as promised.
    #[test]
    fn error_rates_are_as_stated() {
        let repetitions = 2000;
        let mut random = SplitMix64(11);
        let (mut alarms, mut covered) = (0, 0);
        for _ in 0..repetitions {
            let differences: Vec<f64> = (0..8).map(|_| random.normal()).collect();
            let found = sign_flip(&differences, 0.05, 1);
            let (low, high) = found.interval.unwrap();
            alarms += u32::from(found.p <= 0.05);
            covered += u32::from(low <= 0.0 && 0.0 <= high);
        }
        assert_eq!(alarms + covered, repetitions, "test and interval must say the same");
        // The true rate for 8 blocks is 12 of 256 patterns, 4.7 %; three standard errors are 1.4 %.
        let rate = f64::from(alarms) / f64::from(repetitions);
        assert!((rate - 12.0 / 256.0).abs() < 0.0142, "{rate}");
    }
}
