// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several tests at once: Holm's step-down correction (Holm 1979).

/// The adjusted p of each test, in the order given: to be compared with the level for all together.
pub(super) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&first, &second| p[first].total_cmp(&p[second]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &index) in order.iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - rank) as f64).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;

    #[test]
    fn agrees_with_statsmodels() {
        for case in reference::load().holm {
            let adjusted = holm(&case.p);
            assert_eq!(adjusted.len(), case.adjusted.len());
            for (found, expected) in adjusted.iter().zip(&case.adjusted) {
                reference::check("holm", *found, *expected);
            }
        }
    }
}
