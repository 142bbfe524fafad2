// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot replay`: one trial of a run once more.

use std::path::PathBuf;

use clap::Args;

use super::output;
use super::run::stop_signal;
use crate::error::Error;
use crate::exit::Exit;
use crate::run::{self, Replayed};
use crate::ui::{self, Display};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The run directory
    #[arg(value_name = "RUN")]
    directory: PathBuf,
    /// The trial's number; without it, the first of the run
    trial: Option<u32>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn replay(arguments: &Arguments) -> Result<Exit, Error> {
    let display = Display::new();
    let replayed = tokio::select! {
        replayed = run::replay(&arguments.directory, arguments.trial, &display) => replayed,
        // Dropping the work ends its guest and removes its files.
        signal = stop_signal() => {
            display.clear();
            return Err(Error::Interrupted { signal });
        }
    };
    display.clear();
    let replayed = replayed?;
    if arguments.json {
        output::print_json(&json(&replayed))?;
    } else {
        output::print(&words(&replayed))?;
    }
    if replayed.difference.is_none() {
        return Ok(Exit::NoRegression);
    }
    let [then, now] = &replayed.qemu;
    if then != now {
        ui::say(&format!("hint: the run had QEMU {then}, and this host has {now}"));
    }
    Ok(Exit::Regression)
}

/// One line.
fn words(replayed: &Replayed) -> String {
    let Replayed { before, again, difference, .. } = replayed;
    let trial = format!("trial {} ({})", before.number, before.arm);
    match (difference, &again.fault) {
        (Some(difference), _) => format!("{trial} differs: {difference}\n"),
        (None, Some(fault)) => format!("{trial} is equal: {} {} again\n", fault.class, fault.stage),
        (None, None) => format!("{trial} is equal: digest {}\n", again.digest),
    }
}

fn json(replayed: &Replayed) -> serde_json::Value {
    let Replayed { before, again, difference, qemu } = replayed;
    let side = |digest: &str, qemu: &str| serde_json::json!({ "digest": digest, "qemu": qemu });
    serde_json::json!({
        "trial": before.number,
        "arm": before.arm,
        "equal": difference.is_none(),
        "difference": difference,
        "before": side(&before.digest, &qemu[0]),
        "again": side(&again.digest, &qemu[1]),
    })
}
