// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reproducible random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014). They perturb start phases alone; no statistics depend on them.

/// The generator; one seed, one sequence.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any `u64`.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seed: u64, expected: [u64; 3]) {
        let mut random = Random::new(seed);
        assert_eq!([random.next(), random.next(), random.next()], expected);
    }

    #[test]
    fn agrees_with_published_values() {
        check(0, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        check(1_234_567, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn stays_below_its_limit_and_reaches_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [0; 4];
        for _ in 0..400 {
            seen[random.below(4) as usize] += 1;
        }
        assert!(seen.iter().all(|count| 50 < *count), "{seen:?}");
    }
}
