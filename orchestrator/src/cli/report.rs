// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot report`: the result of a run once more.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::output;
use crate::error::Error;
use crate::exit::Exit;
use crate::report;
use crate::run::{self};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The run directory
    directory: PathBuf,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    format: Format,
    /// The same as --format json
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The final table and sentence
    Terminal,
    /// The whole report
    Markdown,
    /// result.json
    Json,
}

pub(super) fn report(arguments: &Arguments) -> Result<Exit, Error> {
    let result = run::result_so_far(&arguments.directory)?;
    match if arguments.json { Format::Json } else { arguments.format } {
        Format::Terminal => output::print(&report::terminal(&result, crate::ui::style_of_stdout()))?,
        Format::Markdown => output::print(&report::markdown(&result)?)?,
        Format::Json => output::print_json(&result)?,
    }
    Ok(Exit::from_code(result.exit_code))
}
