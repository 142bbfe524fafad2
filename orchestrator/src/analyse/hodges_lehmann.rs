// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a set of differences is centred: medians, plain and of Walsh averages.

/// The Hodges-Lehmann estimate: the median of the averages of all pairs, each value paired also with
/// itself (Hodges & Lehmann 1963). `None` without values.
pub(super) fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    let mut walsh = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, first) in values.iter().enumerate() {
        walsh.extend(values[index..].iter().map(|second| f64::midpoint(*first, *second)));
    }
    median(walsh)
}

/// The middle value, or the mean of the two in the middle. `None` without values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[values.len() / 2 - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;

    #[test]
    fn agrees_with_numpy() {
        for case in reference::load().sign_flip {
            reference::check(&case.name, hodges_lehmann(&case.differences).unwrap(), case.hodges_lehmann);
        }
    }

    #[test]
    fn small_sets() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }
}
