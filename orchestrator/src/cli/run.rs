// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot run`.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::experiment::{Changes, Verification};
use super::output;
use crate::cache::Cache;
use crate::error::Error;
use crate::exit::Exit;
use crate::fs;
use crate::plan::Plan;
use crate::report;
use crate::run::budget::Budget;
use crate::run::event::{Event, Listener};
use crate::run::store::{Log, Store};
use crate::run::{self};
use crate::ui::Display;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The experiment
    #[arg(required_unless_present = "resume")]
    file: Option<PathBuf>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    verification: Verification,
    /// The run directory to make; without it, twinboot-run-NAME-N in the current directory
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Go on with the run in this directory where it stopped
    #[arg(long, value_name = "DIR", conflicts_with_all = ["series", "range", "patch", "aa", "seeds", "verify"])]
    resume: Option<PathBuf>,
    /// Cores to use at most; under the virtual clock each runs a guest. Without it, all that the host has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Memory for guests at most, in MiB. Without it, nine tenths of what is free
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Print result.json to standard output instead of the table
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let (store, plan) = match &arguments.resume {
        Some(directory) => resume(&arguments, directory)?,
        None => {
            // clap has seen to it that there is one.
            let file = arguments.file.clone().unwrap_or_default();
            let plan = arguments.verification.of(arguments.changes.plan(&file)?)?;
            create(&arguments, plan)?
        }
    };
    let cache = Cache::open()?;
    let shown = store.root().display().to_string();
    let display = Display::new();
    let listeners = Listeners { log: store.log()?, display: &display };
    let work = run::run(&plan, &store, &cache, Budget::new(arguments.jobs, arguments.memory), &listeners);
    let result = tokio::select! {
        result = work => result,
        // Dropping the work ends every child; what is in the run directory stays.
        name = stop_signal() => {
            display.clear();
            return Err(Error::Stopped { signal: name, run: crate::process::quote(&shown) });
        }
    };
    display.clear();
    let result = result?;
    if arguments.json {
        output::print_json(&result)?;
    } else {
        output::print(&report::terminal(&result, crate::ui::style_of_stdout()))?;
        output::print(&format!("\nreport: {}\n", store.root().join("report.md").display()))?;
    }
    Ok(Exit::from_code(result.exit_code))
}

fn create(arguments: &Arguments, plan: Plan) -> Result<(Store, Plan), Error> {
    if let Some(directory) = &arguments.out {
        return Ok((Store::create(directory, &plan)?, plan));
    }
    // The first name that nobody has; two Twinboots at once take different ones.
    for number in 1_u32.. {
        let directory = PathBuf::from(format!("twinboot-run-{}-{number}", plan.experiment.name));
        match std::fs::create_dir(&directory) {
            Ok(()) => return Ok((Store::create(&directory, &plan)?, plan)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(_) => fs::create_dir(&directory)?,
        }
    }
    Err(Error::Usage("no name for a run directory is left; name one with --out".to_owned()))
}

/// A run goes on with the plan that it began with; a FILE beside --resume only has to be the same one.
fn resume(arguments: &Arguments, directory: &Path) -> Result<(Store, Plan), Error> {
    let (store, plan) = Store::resume(directory)?;
    if let Some(file) = &arguments.file {
        let given = crate::config::load(file)?;
        if given.name != plan.experiment.name {
            let (given, stored) = (given.name, &plan.experiment.name);
            return Err(Error::Usage(format!(
                "{} is a run of `{stored}`, not of `{given}`",
                directory.display()
            )));
        }
    }
    Ok((store, plan))
}

/// Waits for the first signal that asks to stop, and returns its name.
pub(super) async fn stop_signal() -> &'static str {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
    }
}

/// The event log and the display, in this order.
struct Listeners<'a> {
    log: Log,
    display: &'a Display,
}

impl Listener for Listeners<'_> {
    fn hear(&self, event: &Event) {
        self.log.hear(event);
        self.display.hear(event);
    }
}
