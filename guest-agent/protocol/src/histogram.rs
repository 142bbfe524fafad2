// SPDX-License-Identifier: MIT OR Apache-2.0
//! A histogram of `u64` values (here: nanoseconds) that keeps the relative error of every value it gives
//! back at or below 1/256, with exact count, sum, smallest and largest value.
//!
//! The buckets are log-linear: values below 256 have one each, and every power of two above is cut into
//! 128 of equal width. All of them exist from the start, so recording never allocates, and two histograms
//! merge without loss. [`Counters`] is the plain data, for memory that processes share; [`Histogram`]
//! owns it and answers questions. Nothing here knows what the values mean.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How many bits of a value below its highest one choose the bucket.
const PRECISION: u32 = 7;

/// Buckets for each power of two.
const STEPS: usize = 1 << PRECISION;

/// The largest relative error of a quantile: it is the middle of a bucket, whose width is at most one step.
pub const RELATIVE_ERROR: f64 = 0.5 / STEPS as f64;

/// Enough for every `u64`.
const BUCKETS: usize = (64 - PRECISION as usize + 1) * STEPS;

/// The counters of a histogram. All bytes zero is the empty histogram.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    sum: u128,
    count: u64,
    /// Without meaning while the count is 0, like the next.
    min: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

impl Counters {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, count: 0, min: 0, max: 0, buckets: [0; BUCKETS] }
    }

    /// Counts one value. Allocates nothing and makes no system call.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.sum += u128::from(value);
        self.count += 1;
        self.buckets[bucket(value)] += 1;
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// A histogram. As JSON it is its exact figures and pairs `[lowest value, count]` of the buckets that hold
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counters: Box<Counters>,
}

impl Histogram {
    /// No values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counters.record(value);
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let (ours, theirs) = (&mut *self.counters, &*other.counters);
        if theirs.count == 0 {
            return;
        }
        ours.min = if ours.count == 0 { theirs.min } else { ours.min.min(theirs.min) };
        ours.max = ours.max.max(theirs.max);
        ours.sum += theirs.sum;
        ours.count += theirs.count;
        for (our, their) in ours.buckets.iter_mut().zip(&theirs.buckets) {
            *our += their;
        }
    }

    /// How many values were recorded; exact, like the next three.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counters.count
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.counters.sum
    }

    /// The smallest value, if there is any.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (0 < self.counters.count).then_some(self.counters.min)
    }

    /// The largest value, if there is any.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (0 < self.counters.count).then_some(self.counters.max)
    }

    /// The arithmetic mean, if there is any value.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (0 < self.counters.count).then(|| self.counters.sum as f64 / self.counters.count as f64)
    }

    /// The smallest value that a share `q` (0 to 1) of all values does not exceed, if there is any value:
    /// the sample of rank `ceil(q * count)`, known to within [`RELATIVE_ERROR`]. For 0 and 1 it is exact.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let Counters { count, min, max, .. } = *self.counters;
        if count == 0 {
            return None;
        }
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        if rank == count {
            return Some(max);
        }
        if rank == 1 {
            return Some(min);
        }
        let mut below = 0;
        for (low, count) in self.buckets() {
            below += count;
            if rank <= below {
                let middle = low + (width(low) - 1) / 2;
                return Some(middle.clamp(min, max));
            }
        }
        Some(max)
    }

    /// Counts by powers of two, from the first row that holds anything to the last, as bpftrace's `hist()`
    /// prints them: `(low, high, count)` of values in `[low, high)`. The rows are `[0, 1)`, `[1, 2)`,
    /// `[2, 4)`, `[4, 8)` and so on; the last one's high end is `u64::MAX`, which it includes.
    #[must_use]
    pub fn power_of_two(&self) -> Vec<(u64, u64, u64)> {
        let (Some(min), Some(max)) = (self.min(), self.max()) else {
            return Vec::new();
        };
        let mut rows: Vec<(u64, u64, u64)> = (row(min)..=row(max)).map(empty_row).collect();
        for (low, count) in self.buckets() {
            rows[row(low) - row(min)].2 += count;
        }
        rows
    }

    /// Lowest value and count of every bucket that holds anything.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counters.buckets.iter().enumerate();
        counts.filter(|(_, count)| **count != 0).map(|(index, count)| (lowest(index), *count))
    }
}

impl From<&Counters> for Histogram {
    fn from(counters: &Counters) -> Self {
        Self { counters: Box::new(counters.clone()) }
    }
}

/// A histogram as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Counters { sum, count, min, max, .. } = *self.counters;
        Written { count, sum, min, max, buckets: self.buckets().collect() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { count, sum, min, max, buckets } = Written::deserialize(deserializer)?;
        let mut counters = Box::new(Counters { sum, count, min, max, ..Counters::new() });
        let mut total: u64 = 0;
        for (low, count) in &buckets {
            let index = bucket(*low);
            if lowest(index) != *low || counters.buckets[index] != 0 || *count == 0 {
                return Err(de::Error::custom(format!(
                    "{low} begins no bucket, or an empty or a second one"
                )));
            }
            counters.buckets[index] = *count;
            total = total.checked_add(*count).ok_or_else(|| de::Error::custom("too many values"))?;
        }
        let holds = |value| counters.buckets[bucket(value)] != 0;
        if total != count || (0 < count && !(holds(min) && holds(max) && min <= max)) {
            return Err(de::Error::custom("count, smallest or largest value do not fit the buckets"));
        }
        Ok(Self { counters })
    }
}

/// Which bucket holds a value.
fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - PRECISION;
    shift as usize * STEPS + (value >> shift) as usize
}

/// The lowest value of a bucket.
fn lowest(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let shift = index / STEPS - 1;
    ((STEPS + index % STEPS) as u64) << shift
}

/// How many values share the bucket of this one.
fn width(value: u64) -> u64 {
    1 << value.max(1).ilog2().saturating_sub(PRECISION)
}

/// Which row of powers of two holds a value.
fn row(value: u64) -> usize {
    value.checked_ilog2().map_or(0, |power| power as usize + 1)
}

fn empty_row(row: usize) -> (u64, u64, u64) {
    let low = if row == 0 { 0 } else { 1 << (row - 1) };
    let high = if row < 64 { 1 << row } else { u64::MAX };
    (low, high, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// Values of every magnitude, reproducibly.
    fn values(seed: u64, count: usize) -> Vec<u64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        (0..count).map(|_| next() >> ((next() >> 58) % 64)).collect()
    }

    /// Compares with a sorted vector, which knows everything exactly.
    fn check(values: &[u64]) {
        let histogram = histogram(values);
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        assert_eq!(histogram.count(), sorted.len() as u64);
        assert_eq!(histogram.sum(), sorted.iter().map(|value| u128::from(*value)).sum());
        assert_eq!(histogram.min(), sorted.first().copied());
        assert_eq!(histogram.max(), sorted.last().copied());
        assert_eq!(histogram.quantile(0.0), sorted.first().copied());
        assert_eq!(histogram.quantile(1.0), sorted.last().copied());
        for q in [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
            let Some(found) = histogram.quantile(q) else { continue };
            let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
            let exact = sorted[rank - 1];
            assert!(
                found.abs_diff(exact) as f64 <= exact as f64 * RELATIVE_ERROR,
                "quantile {q}: {found} is too far from {exact}"
            );
        }
        for (low, high, count) in histogram.power_of_two() {
            let inside = |value: &u64| low <= *value && (*value < high || high == u64::MAX);
            assert_eq!(count, sorted.iter().copied().filter(inside).count() as u64, "[{low}, {high})");
        }
        let rows = histogram.power_of_two();
        assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), histogram.count());
        let json = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }

    #[test]
    fn agrees_with_a_sorted_vector() {
        check(&[]);
        check(&[0]);
        check(&[u64::MAX]);
        check(&[0, u64::MAX, u64::MAX, 1]);
        check(&[127, 128, 129, 255, 256, 257, 258]);
        check(&(0..2_000).collect::<Vec<_>>());
        for seed in 0..50 {
            check(&values(seed, 500));
        }
    }

    #[test]
    fn buckets_lie_side_by_side() {
        let mut next = Some(0);
        for index in 0..BUCKETS {
            let low = next.unwrap();
            assert_eq!(lowest(index), low);
            let highest = low + (width(low) - 1);
            assert_eq!((bucket(low), bucket(highest)), (index, index));
            assert!(width(low) == 1 || width(low) <= low / 128);
            next = highest.checked_add(1);
        }
        assert_eq!(next, None, "the last bucket ends at the largest value");
    }

    #[test]
    fn merging_is_recording_everything_in_one() {
        for seed in 0..20 {
            let (some, more) = (values(seed, 300), values(seed + 100, 200));
            let mut merged = histogram(&some);
            merged.merge(&histogram(&more));
            assert_eq!(merged, histogram(&[some, more].concat()));
        }
        let mut merged = Histogram::new();
        merged.merge(&histogram(&[5, 9]));
        merged.merge(&Histogram::new());
        assert_eq!(merged, histogram(&[5, 9]));
    }

    #[test]
    fn quantiles_use_the_middle_of_a_bucket() {
        let thousand = histogram(&[0, 1_000, u64::MAX]);
        assert_eq!(thousand.quantile(0.5), Some(1_001), "the bucket holds 1000 to 1003");
        assert_eq!(histogram(&[1_002, 1_003, 1_003]).quantile(0.5), Some(1_002), "not below the smallest");
        assert_eq!(thousand.mean(), Some((1_000.0 + u64::MAX as f64) / 3.0));
        assert_eq!(Histogram::new().mean(), None);
    }

    #[test]
    fn rows_are_those_of_bpftrace() {
        let rows = histogram(&[0, 1, 2, 3, 4, 17, 31, 32]).power_of_two();
        let expected = [(0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 8, 1), (8, 16, 0), (16, 32, 2), (32, 64, 1)];
        assert_eq!(rows, expected);
        assert_eq!(histogram(&[u64::MAX]).power_of_two(), [(1 << 63, u64::MAX, 1)]);
    }

    #[test]
    fn json_is_sparse_and_checked() {
        let json = serde_json::to_string(&histogram(&[3, 3, 1_000])).unwrap();
        assert_eq!(json, r#"{"count":3,"sum":1006,"min":3,"max":1000,"buckets":[[3,2],[1000,1]]}"#);
        for damaged in [
            r#"{"count":1,"sum":3,"min":3,"max":3,"buckets":[]}"#,
            r#"{"count":1,"sum":3,"min":4,"max":3,"buckets":[[3,1]]}"#,
            r#"{"count":1,"sum":3,"min":3,"max":9,"buckets":[[3,1]]}"#,
            r#"{"count":1,"sum":1001,"min":1001,"max":1001,"buckets":[[1001,1]]}"#,
            r#"{"count":2,"sum":6,"min":3,"max":3,"buckets":[[3,1],[3,1]]}"#,
            r#"{"count":0,"sum":0,"min":0,"max":0,"buckets":[[3,0]]}"#,
            r#"{"count":0,"sum":0,"min":0,"max":0,"buckets":[[3,18446744073709551615],[4,1]]}"#,
        ] {
            assert!(serde_json::from_str::<Histogram>(damaged).is_err(), "{damaged}");
        }
    }
}
