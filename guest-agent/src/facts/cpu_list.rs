// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's CPU lists, as in `0-3,8`.

/// The numbers in a list, in its order; nothing if it is none. An empty list is a list.
pub(super) fn parse(list: &str) -> Option<Vec<u32>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: Option<&[u32]>) {
        assert_eq!(parse(list).as_deref(), expected, "{list}");
    }

    #[test]
    fn lists() {
        check("0-3,8\n", Some(&[0, 1, 2, 3, 8]));
        check("7", Some(&[7]));
        check("\n", Some(&[]));
        check("3-1", None);
        check("1,", None);
        check("(null)", None);
    }
}
