// SPDX-License-Identifier: MIT OR Apache-2.0
//! Twinboot: does this kernel patch change latency, and how sure are we? ARCHITECTURE.md is the map.

mod agent;
mod analyse;
mod build;
mod cache;
mod cli;
mod collect;
mod config;
mod doctor;
mod error;
mod exit;
mod fs;
mod plan;
mod process;
mod report;
mod run;
mod source;
mod sys;
mod ui;
mod vm;

use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let exit = in_one_thread(cli).unwrap_or_else(|error| {
        ui::say(&format!("error: {}", error::chain(&error)));
        if let Some(hint) = error.hint() {
            ui::say(&format!("hint: {hint}"));
        }
        error.exit()
    });
    ExitCode::from(exit.code())
}

/// Children are bound to the thread that starts them, so there is one for everything.
fn in_one_thread(cli: cli::Cli) -> Result<Exit, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    runtime.block_on(cli::dispatch(cli))
}
