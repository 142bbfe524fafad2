// SPDX-License-Identifier: MIT OR Apache-2.0
//! How sure a rate is that was counted: the exact binomial interval (Clopper & Pearson 1934).

/// The interval for the true rate after `hits` in `tries`. `level` is 0.05 for a 95 % interval.
pub(crate) fn clopper_pearson(hits: u64, tries: u64, level: f64) -> (f64, f64) {
    let low = match hits {
        0 => 0.0,
        // The rate at which `hits` or more have half the level.
        _ => bisect(|rate| 1.0 - at_most(hits - 1, tries, rate) < level / 2.0),
    };
    let high = match tries.saturating_sub(hits) {
        0 => 1.0,
        // The rate at which `hits` or fewer have half the level.
        _ => bisect(|rate| level / 2.0 < at_most(hits, tries, rate)),
    };
    (low, high)
}

/// The probability of at most `hits` in `tries`, summed term by term in logarithms.
fn at_most(hits: u64, tries: u64, rate: f64) -> f64 {
    let odds = rate.ln() - (-rate).ln_1p();
    let mut term = tries as f64 * (-rate).ln_1p();
    let mut sum = term.exp();
    for hit in 0..hits {
        term += ((tries - hit) as f64 / (hit + 1) as f64).ln() + odds;
        sum += term.exp();
    }
    sum
}

/// Where in (0, 1) a condition ends that holds below some point.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    // Each step halves the error; 60 of them reach the precision of an f64.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;

    #[test]
    fn agrees_with_scipy() {
        for case in reference::load().clopper_pearson {
            let name = format!("{} of {}", case.hits, case.tries);
            let (low, high) = clopper_pearson(case.hits, case.tries, case.level);
            reference::check(&name, low, case.interval[0]);
            reference::check(&name, high, case.interval[1]);
        }
    }
}
