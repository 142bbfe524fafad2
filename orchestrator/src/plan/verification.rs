// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which trials run a second time, to see whether the guest measures the same again. Pure; who runs and
//! compares them is `run`.

use super::{Plan, PlannedTrial, mix};
use crate::vm::qemu::Engine;

/// One trial of so many runs again.
const ONE_OF: usize = 10;

impl Plan {
    /// Whether a trial that runs again must measure the same: under the virtual clock alone.
    pub(crate) fn repeats_exactly(&self) -> bool {
        self.engine() == Some(Engine::TcgVirtual)
    }

    /// The trials to run again, in the order of running; none unless it was asked for.
    pub(crate) fn to_verify(&self) -> Vec<&PlannedTrial> {
        if !self.verify {
            return Vec::new();
        }
        let drawn = draw(self.trials.len(), self.experiment.judge.seed);
        drawn.into_iter().map(|index| &self.trials[index]).collect()
    }
}

/// A tenth of so many, rounded up, drawn without replacement; sorted.
fn draw(count: usize, seed: u64) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..count).collect();
    // Other numbers than the seeds of the blocks, which come from the same generator.
    indices.sort_by_key(|index| mix(!seed, u32::try_from(*index).unwrap_or(u32::MAX)));
    indices.truncate(count.div_ceil(ONE_OF));
    indices.sort_unstable();
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_and_at_least_one_is_drawn() {
        let check = |count, expected| assert_eq!(draw(count, 1).len(), expected, "of {count}");
        check(0, 0);
        check(1, 1);
        check(10, 1);
        check(11, 2);
        check(16, 2);
        check(100, 10);
    }

    #[test]
    fn the_seed_alone_decides_and_every_trial_has_its_chance() {
        assert_eq!(draw(40, 7), draw(40, 7));
        let drawn: Vec<usize> = (0..200).flat_map(|seed| draw(12, seed)).collect();
        for index in 0..12 {
            // 200 draws of 2 out of 12: about 33 each.
            let times = drawn.iter().filter(|drawn| **drawn == index).count();
            assert!((10..70).contains(&times), "{index} was drawn {times} times");
        }
        assert!(draw(40, 7).is_sorted_by(|one, other| one < other), "each once");
    }
}
