// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that `run`, `plan` and `boot` share: which experiment, with whose patches.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, Experiment, PatchSource};
use crate::error::Error;
use crate::plan::{self, Plan};
use crate::process::quote;

/// What of the experiment is changed from the command line.
#[derive(Debug, Default, Args)]
pub(super) struct Changes {
    /// A mailbox (also gzipped) or a directory with the series to test, in place of the second arm's
    #[arg(long, value_name = "MBOX|DIR", conflicts_with_all = ["range", "patch"])]
    series: Option<PathBuf>,
    /// The commits to test, `A..B`, of the repository that the kernel comes from or of --repository
    #[arg(long, value_name = "A..B", conflicts_with = "patch")]
    range: Option<String>,
    /// The git repository of --range
    #[arg(long, value_name = "DIR", requires = "range")]
    repository: Option<PathBuf>,
    /// Patches to test, in this order
    #[arg(long, value_name = "FILE", num_args = 1..)]
    patch: Vec<PathBuf>,
    /// Compare the base with itself: what the method says when there is nothing to find
    #[arg(long, conflicts_with_all = ["series", "range", "patch"])]
    aa: bool,
    /// How many blocks, each with a seed of its own, in place of the experiment's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    seeds: Option<u32>,
}

/// Whether the virtual clock's promise is put to the test.
#[derive(Debug, Default, Args)]
pub(super) struct Verification {
    /// After the last trial run a tenth of them again, drawn from the seed, and compare what they measure;
    /// under the virtual clock
    #[arg(long)]
    verify: bool,
}

impl Verification {
    /// The plan, with trials that run again where that was asked for.
    pub(super) fn of(&self, plan: Plan) -> Result<Plan, Error> {
        if self.verify && !plan.repeats_exactly() {
            return Err(Error::Usage(
                "--verify wants `clock: virtual`; under the host's clock no trial measures the same twice"
                    .to_owned(),
            ));
        }
        Ok(Plan { verify: self.verify, ..plan })
    }
}

impl Changes {
    /// The plan for an experiment file with these changes.
    pub(super) fn plan(&self, file: &std::path::Path) -> Result<Plan, Error> {
        let mut experiment = config::load(file)?;
        self.apply(&mut experiment)?;
        let command = std::env::args().skip(1).map(|word| quote(&word)).collect::<Vec<_>>().join(" ");
        Ok(plan::plan(experiment, self.aa, format!("twinboot {command}"))?)
    }

    fn apply(&self, experiment: &mut Experiment) -> Result<(), Error> {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if self.aa {
            experiment.as_aa();
        }
        if let Some(series) = &self.series {
            experiment.replace_patches(vec![PatchSource::Path(absolute(series))]);
        }
        if let Some(range) = &self.range {
            if !range.contains("..") || range.starts_with('-') {
                return Err(Error::Usage(format!("--range wants `A..B`, not `{range}`")));
            }
            let repository = self.repository.as_ref().map(absolute);
            experiment.replace_patches(vec![PatchSource::Range { repository, range: range.clone() }]);
        }
        if !self.patch.is_empty() {
            experiment.replace_patches(self.patch.iter().map(absolute).map(PatchSource::Path).collect());
        }
        if let Some(blocks) = self.seeds {
            experiment.judge.blocks = blocks;
        }
        Ok(())
    }
}
