// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for people: three significant digits, a unit that fits, a sign where a change is meant.

use super::{Interval, Unit};

/// A unit scaled so that a value in it has one to three digits before the point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    divisor: f64,
    /// Printed after the number; empty for counts.
    suffix: &'static str,
}

impl Scale {
    /// The scale that fits a value of this unit.
    pub(crate) fn of(value: f64, unit: Unit) -> Self {
        const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
        if unit == Unit::Count {
            return Self { divisor: 1.0, suffix: "" };
        }
        // Rounded to three digits, 999.5 ns are already 1.00 us.
        let fits = |&&(divisor, _): &&(f64, &str)| value.abs() < divisor * 999.5;
        let (divisor, suffix) = *TIMES.iter().find(fits).unwrap_or(&TIMES[3]);
        Self { divisor, suffix }
    }

    /// The value with its unit: `7.86 us`.
    pub(crate) fn show(self, value: f64) -> String {
        self.with_unit(digits(value / self.divisor))
    }

    /// The value with its sign and unit: `+1.03 us`.
    pub(crate) fn show_change(self, value: f64) -> String {
        self.with_unit(signed(value / self.divisor))
    }

    /// Both ends with sign and unit: `+0.98 to +1.09 us`.
    pub(crate) fn show_interval(self, interval: Interval) -> String {
        let (low, high) = (interval.low / self.divisor, interval.high / self.divisor);
        self.with_unit(format!("{} to {}", signed(low), signed(high)))
    }

    fn with_unit(self, number: String) -> String {
        if self.suffix.is_empty() { number } else { format!("{number} {}", self.suffix) }
    }
}

/// A measured value: `7.86 us`.
pub(crate) fn quantity(value: f64, unit: Unit) -> String {
    Scale::of(value, unit).show(value)
}

/// A change in percent: `+15.1 %`.
pub(crate) fn percent_change(percent: f64) -> String {
    format!("{} %", percent_sign(percent))
}

/// Both ends of a change in percent: `+14.3 % to +15.9 %`.
pub(crate) fn percent_interval(interval: Interval) -> String {
    format!("{} % to {} %", percent_sign(interval.low), percent_sign(interval.high))
}

/// A size in percent, without a sign: `5 %`.
pub(crate) fn percent(percent: f64) -> String {
    let shown = percent_digits(percent.abs());
    let shown = if shown.contains('.') { shown.trim_end_matches('0').trim_end_matches('.') } else { &shown };
    format!("{shown} %")
}

/// A probability: `0.0078`.
pub(crate) fn probability(p: f64) -> String {
    match p {
        p if p < 0.0001 => "<0.0001".to_owned(),
        p if p < 0.1 => format!("{p:.4}"),
        _ => format!("{p:.2}"),
    }
}

/// A probability in a sentence: `p = 0.0078`.
pub(crate) fn p_equals(p: f64) -> String {
    let shown = probability(p);
    match shown.strip_prefix('<') {
        Some(limit) => format!("p < {limit}"),
        None => format!("p = {shown}"),
    }
}

/// A number and its noun: `1 block`, `8 blocks`.
pub(crate) fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Up to 100 % one digit after the point is enough; below 1 % two are.
fn percent_digits(size: f64) -> String {
    match size {
        size if size < 0.995 => format!("{size:.2}"),
        size if size < 99.95 => format!("{size:.1}"),
        _ => format!("{size:.0}"),
    }
}

fn percent_sign(percent: f64) -> String {
    with_sign(percent, percent_digits(percent.abs()))
}

/// Three significant digits, not more than two after the point.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn signed(value: f64) -> String {
    with_sign(value, digits(value.abs()))
}

/// No sign before what is printed as zero.
fn with_sign(value: f64, size: String) -> String {
    let zero = size.chars().all(|digit| digit == '0' || digit == '.');
    match value {
        _ if zero => size,
        value if value < 0.0 => format!("-{size}"),
        _ => format!("+{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &str, expected: &str) {
        assert_eq!(found, expected);
    }

    #[test]
    fn quantities() {
        check(&quantity(0.5, Unit::Nanoseconds), "0.50 ns");
        check(&quantity(683.2, Unit::Nanoseconds), "683 ns");
        check(&quantity(999.6, Unit::Nanoseconds), "1.00 us");
        check(&quantity(6_832.0, Unit::Nanoseconds), "6.83 us");
        check(&quantity(12_786_599.0, Unit::Nanoseconds), "12.8 ms");
        check(&quantity(7.2e12, Unit::Nanoseconds), "7200 s");
        check(&quantity(16.0, Unit::Count), "16.0");
        let scale = Scale::of(1_030.0, Unit::Nanoseconds);
        check(&scale.show_change(-1_030.0), "-1.03 us");
        check(&scale.show_interval(Interval { low: -2.0, high: 1_090.0 }), "0.00 to +1.09 us");
    }

    #[test]
    fn percents_and_probabilities() {
        check(&percent_change(15.12), "+15.1 %");
        check(&percent_change(-0.123), "-0.12 %");
        check(&percent_change(-0.001), "0.00 %");
        check(&percent_change(177.4), "+177 %");
        check(&percent_interval(Interval { low: -2.04, high: 9.0 }), "-2.0 % to +9.0 %");
        check(&percent(5.0), "5 %");
        check(&percent(2.5), "2.5 %");
        check(&percent(100.0), "100 %");
        check(&probability(2.0 / 256.0), "0.0078");
        check(&probability(0.000_02), "<0.0001");
        check(&p_equals(0.03125), "p = 0.0312");
        check(&p_equals(0.000_02), "p < 0.0001");
        check(&probability(0.3203), "0.32");
        check(&count(1, "block"), "1 block");
        check(&count(8, "block"), "8 blocks");
    }
}
