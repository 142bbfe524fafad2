// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: what may be typed, and which function answers. Each verb has its file; data goes to
//! standard output, all else to standard error.

mod boot;
mod cache;
mod doctor;
mod experiment;
mod output;
mod plan;
mod replay;
mod report;
mod run;
mod schema;

use clap::{Parser, Subcommand};

use crate::error::Error;
use crate::exit::{self, Exit};

/// Does this kernel patch change latency, and how sure are we?
///
/// Twinboot builds the base and the patched kernel, boots both as twins under QEMU, measures in the guest,
/// and judges.
#[derive(Debug, Parser)]
#[command(name = "twinboot", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an experiment, from kernel source to verdict
    Run(run::Arguments),
    /// Show everything that `run` would do; do nothing
    Plan(plan::Arguments),
    /// Boot one arm's guest with a shell on its console
    Boot(boot::Arguments),
    /// Show the result of a run, finished or not
    Report(report::Arguments),
    /// Run one trial of a run again and compare what it measures
    ///
    /// With the same kernel, orders and seed, under the virtual clock, the guest has to measure the same.
    /// Ends with 0 when it does and with 1 when it does not, and names the first difference. Nothing is
    /// written into the run directory.
    Replay(replay::Arguments),
    /// Say what this host can test and cannot, why, and what mends it
    Doctor(doctor::Arguments),
    /// Show or prune the cache of sources, kernels and saved guests
    Cache(cache::Arguments),
    /// Print the JSON schema of experiment files or of result.json
    Schema(schema::SchemaArguments),
    /// Print completions for a shell
    Completions(schema::CompletionArguments),
    /// Write the manual pages into a directory
    Man(schema::ManArguments),
}

/// Does what was typed.
pub(crate) async fn dispatch(cli: Cli) -> Result<Exit, Error> {
    match cli.verb {
        Verb::Run(arguments) => run::run(arguments).await,
        Verb::Plan(arguments) => plan::plan(&arguments).await,
        Verb::Boot(arguments) => boot::boot(&arguments).await,
        Verb::Report(arguments) => report::report(&arguments),
        Verb::Replay(arguments) => replay::replay(&arguments).await,
        Verb::Doctor(arguments) => doctor::doctor(&arguments).await,
        Verb::Cache(arguments) => cache::cache(&arguments),
        Verb::Schema(arguments) => schema::schema(&arguments),
        Verb::Completions(arguments) => schema::completions(&arguments),
        Verb::Man(arguments) => schema::man(&arguments),
    }
}
