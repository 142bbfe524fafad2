// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities as people write them: memory, durations, percentages, lists of CPUs. Pure text in, numbers
//! out; an error is what was expected instead.

/// What was expected, in words that fit after "expected".
pub(super) type Expected = String;

/// What a guest needs.
pub(super) const LEAST_MEMORY_MIB: u64 = 128;
/// Linux overlooks very small memory nodes.
pub(super) const LEAST_NODE_MEMORY_MIB: u64 = 16;

/// `512M` in MiB, for a whole guest. K, M and G are powers of 1024.
pub(super) fn memory_mib(text: &str) -> Result<u64, Expected> {
    match mebibytes(text)? {
        mib if mib < LEAST_MEMORY_MIB => {
            Err(format!("at least {LEAST_MEMORY_MIB}M, which a kernel needs to boot"))
        }
        mib => Ok(mib),
    }
}

/// The same for one memory node of several.
pub(super) fn node_memory_mib(text: &str) -> Result<u64, Expected> {
    match mebibytes(text)? {
        mib if mib < LEAST_NODE_MEMORY_MIB => {
            Err(format!("at least {LEAST_NODE_MEMORY_MIB}M, as Linux overlooks very small nodes"))
        }
        mib => Ok(mib),
    }
}

fn mebibytes(text: &str) -> Result<u64, Expected> {
    const UNITS: [(&str, u64); 3] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
    const MIB: u64 = 1 << 20;
    let bytes = number_with_unit(text, &UNITS).ok_or("a whole number and K, M or G, such as 512M")?;
    if bytes % MIB != 0 {
        return Err("a whole number of megabytes".to_owned());
    }
    Ok(bytes / MIB)
}

/// `20ms` in nanoseconds.
pub(super) fn nanoseconds(text: &str) -> Result<u64, Expected> {
    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let ns = number_with_unit(text, &UNITS).ok_or("a whole number and ns, us, ms or s, such as 20ms")?;
    Ok(ns)
}

/// `5%` as 0.05: more than 0 and at most 100 %.
pub(super) fn ratio(text: &str) -> Result<f64, Expected> {
    let percent = text.strip_suffix('%').filter(|digits| is_decimal(digits));
    let percent: Option<f64> = percent.and_then(|digits| digits.parse().ok());
    match percent {
        Some(percent) if 0.0 < percent && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("more than 0% and at most 100%, such as 5% or 2.5%".to_owned()),
    }
}

/// `50%` as 50: a whole number from 1 to 100.
pub(super) fn load_percent(text: &str) -> Result<u8, Expected> {
    match text.strip_suffix('%').and_then(whole_number) {
        Some(percent @ 1..=100) => Ok(percent as u8),
        _ => Err("a whole percentage from 1% to 100%".to_owned()),
    }
}

/// `0-2,8` as the CPUs 0, 1, 2 and 8, in ascending order, of a guest that has `count` CPUs.
pub(super) fn cpus(text: &str, count: u32) -> Result<Vec<u32>, Expected> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (whole_number(first), whole_number(last)) else {
            return Err("CPU numbers and ranges with commas between, such as 0-3,8".to_owned());
        };
        if last < first {
            return Err(format!("the smaller number first: {last}-{first}"));
        }
        if u64::from(count) <= last {
            return Err(within(count));
        }
        cpus.extend((first..=last).map(|cpu| cpu as u32));
    }
    cpus.sort_unstable();
    match cpus.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("each CPU once, but {} stands here twice", pair[0])),
        None => Ok(cpus),
    }
}

/// The CPUs that there are.
pub(super) fn within(count: u32) -> Expected {
    match count {
        1 => "CPU 0, the only one of this topology".to_owned(),
        _ => format!("CPUs from 0 to {}, which this topology has", count - 1),
    }
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    whole_number(number)?.checked_mul(*factor)
}

/// Digits alone: no sign, no space, no separator.
fn whole_number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Each line is a text and what becomes of it.
    #[track_caller]
    fn check<T: Debug>(parse: impl Fn(&str) -> Result<T, Expected>, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let shown = match parse(text) {
                Ok(value) => format!("{value:?}"),
                Err(_) => "refused".to_owned(),
            };
            assert_eq!(shown, *expected, "{text:?}");
        }
    }

    #[test]
    fn memory_in_mib() {
        check(
            memory_mib,
            &[
                ("512M", "512"),
                ("2G", "2048"),
                ("131072K", "128"),
                ("131073K", "refused"),
                ("127M", "refused"),
                ("512", "refused"),
                ("512MB", "refused"),
                ("512 M", "refused"),
                ("-1G", "refused"),
                ("M", "refused"),
                ("", "refused"),
                ("99999999999999G", "refused"),
            ],
        );
    }

    #[test]
    fn memory_of_a_node_in_mib() {
        check(node_memory_mib, &[("16M", "16"), ("1G", "1024"), ("15M", "refused"), ("16", "refused")]);
    }

    #[test]
    fn durations_in_nanoseconds() {
        check(
            nanoseconds,
            &[
                ("20ms", "20000000"),
                ("1s", "1000000000"),
                ("7us", "7000"),
                ("3ns", "3"),
                ("0s", "0"),
                ("20", "refused"),
                ("1.5s", "refused"),
                ("20 ms", "refused"),
                ("99999999999s", "refused"),
            ],
        );
    }

    #[test]
    fn percentages() {
        check(ratio, &[("5%", "0.05"), ("2.5%", "0.025"), ("100%", "1.0")]);
        check(ratio, &[("0%", "refused"), ("0.05", "refused"), ("101%", "refused"), ("inf%", "refused")]);
        check(load_percent, &[("1%", "1"), ("100%", "100")]);
        check(
            load_percent,
            &[("0%", "refused"), ("101%", "refused"), ("50", "refused"), ("2.5%", "refused")],
        );
    }

    #[test]
    fn lists_of_cpus() {
        check(
            |text| cpus(text, 16),
            &[
                ("3", "[3]"),
                ("8,0-2", "[0, 1, 2, 8]"),
                ("15", "[15]"),
                ("16", "refused"),
                ("0-4000000000", "refused"),
                ("3-1", "refused"),
                ("0-3,2", "refused"),
                ("0-3,", "refused"),
                ("-3", "refused"),
                ("", "refused"),
                ("all", "refused"),
            ],
        );
    }
}
