// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's CPU lists, as in `0-3,8`, to and from numbers.

/// The numbers in a list, in its order; nothing if it is none. An empty list is a list.
#[must_use]
pub fn parse(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',').filter(|_| !list.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The shortest list of these numbers, sorted and each once.
#[must_use]
pub fn format(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .chunk_by(|before, after| before + 1 == *after)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run[0].to_string(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: Option<&[u32]>) {
        assert_eq!(parse(list).as_deref(), expected, "{list}");
        if let Some(numbers) = expected {
            assert_eq!(format(numbers), list.trim());
        }
    }

    #[test]
    fn lists() {
        check("0-3,8\n", Some(&[0, 1, 2, 3, 8]));
        check("7", Some(&[7]));
        check("\n", Some(&[]));
        check("3-1", None);
        check("1,", None);
        check("(null)", None);
        assert_eq!(format(&[4, 2, 3, 2, 9]), "2-4,9");
    }
}
