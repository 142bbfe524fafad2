// SPDX-License-Identifier: MIT OR Apache-2.0
//! How small a change the sign-flip test finds with a number of blocks, in units of the scatter between
//! blocks, at 80 % power. Normal scatter is assumed.

use super::signflip::{extreme_patterns, fewest};

/// The share of experiments that should find a change of the size stated.
const POWER: f64 = 0.8;

/// A change of this many standard deviations is found by four experiments in five. `None` where the test
/// cannot reject at the level.
///
/// With one pattern allowed on each side, the test rejects exactly if all differences lie on one side of
/// zero. With more it is close to a t test at the share of patterns that is allowed, whose size follows
/// from normal quantiles with a small-sample term (Guenther 1981, "Sample Size Formulas for Normal Theory
/// T Tests"). Guenther's term is half the square of the quantile; with 0.6 the size is within 2 % of the
/// simulated sign-flip test from 7 blocks up, which a test here repeats.
pub(super) fn detectable(count: usize, level: f64) -> Option<f64> {
    let allowed = extreme_patterns(count, level)?;
    if allowed == 1 {
        return Some(normal_quantile(POWER.powf(1.0 / count as f64)));
    }
    let reached = if count <= 20 { allowed as f64 / (1_u64 << (count - 1)) as f64 } else { level };
    let rejects = normal_quantile(1.0 - reached / 2.0);
    Some((rejects + normal_quantile(POWER)) / (count as f64 - 0.6 * rejects * rejects).sqrt())
}

/// The standard error's multiple by which an estimate stays above a limit four times in five.
pub(super) fn margin() -> f64 {
    normal_quantile(POWER)
}

/// The first number of blocks above `count`, and large enough for the test, that fits; `None` when a
/// thousand do not.
pub(super) fn blocks_until(count: usize, level: f64, fits: impl Fn(usize) -> bool) -> Option<u32> {
    let first = fewest(level).max(count + 1);
    (first..=1000).find(|&blocks| fits(blocks)).map(|blocks| blocks as u32)
}

/// The point of the standard normal distribution with this share below it, for shares not beyond six
/// standard deviations.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_share(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The share of the standard normal distribution below a point (Marsaglia 2004, "Evaluating the Normal
/// Distribution": one half and the density times x + x^3/3 + x^5/(3 5) + ...).
fn normal_share(point: f64) -> f64 {
    let (mut sum, mut term, mut divisor) = (point, point, 3.0);
    loop {
        term *= point * point / divisor;
        if sum + term == sum {
            break;
        }
        sum += term;
        divisor += 2.0;
    }
    0.5 + sum * (-point * point / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::super::reference;
    use super::super::signflip::sign_flip;
    use super::*;

    #[test]
    fn quantiles_agree_with_scipy() {
        for case in reference::load().normal_quantile {
            reference::check("normal quantile", normal_quantile(case.share), case.point);
        }
    }

    /// A shift is found exactly if it is larger than minus the lower end of the noise's own interval, so
    /// the 80th percentile of that end is the detectable size.
    #[test]
    fn sizes_are_what_simulation_finds() {
        for count in [6, 7, 8, 10] {
            let mut random = SplitMix64(21);
            let mut needed: Vec<f64> = (0..2000)
                .map(|_| {
                    let noise: Vec<f64> = (0..count).map(|_| random.normal()).collect();
                    -sign_flip(&noise, 0.05, 1).interval.unwrap().0
                })
                .collect();
            needed.sort_by(f64::total_cmp);
            let (simulated, stated) = (needed[1600], detectable(count, 0.05).unwrap());
            assert!((stated / simulated - 1.0).abs() < 0.04, "{count}: {stated} {simulated}");
        }
    }

    #[test]
    fn more_blocks_find_less() {
        let sizes: Vec<f64> = (6..60).filter_map(|count| detectable(count, 0.05)).collect();
        assert_eq!(sizes.len(), 54);
        assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "{sizes:?}");
        assert_eq!(detectable(5, 0.05), None);
        assert_eq!(detectable(6, 0.025), None);
    }

    #[test]
    fn eight_blocks_with_ten_percent_scatter() {
        // Two boots with 10 % scatter each: the log ratio has 14 %. Without drift 16 % are found a little
        // less often than four times in five, 22 % more often.
        let size = (detectable(8, 0.05).unwrap() * 0.1 * 2.0_f64.sqrt()).exp_m1();
        assert!(0.16 < size && size < 0.22, "{size}");
    }

    #[test]
    fn blocks_are_counted_up() {
        assert_eq!(blocks_until(3, 0.05, |_| true), Some(6));
        assert_eq!(blocks_until(8, 0.05, |_| true), Some(9));
        assert_eq!(blocks_until(8, 0.05, |blocks| 14 <= blocks), Some(14));
        assert_eq!(blocks_until(8, 0.05, |_| false), None);
    }
}
