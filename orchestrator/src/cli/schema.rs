// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot schema`, `completions` and `man`: what other programs want to know about this one.

use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::{Cli, output};
use crate::error::Error;
use crate::exit::Exit;
use crate::{config, fs};

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Of which format
    #[arg(value_enum, default_value_t = Format::Experiment)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Experiment files
    Experiment,
    /// result.json
    Result,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Where to write them
    directory: PathBuf,
}

pub(super) fn schema(arguments: &SchemaArguments) -> Result<Exit, Error> {
    match arguments.format {
        Format::Experiment => output::print_json(&config::schema())?,
        Format::Result => output::print_json(&schemars::schema_for!(crate::collect::result::RunResult))?,
    }
    Ok(Exit::NoRegression)
}

pub(super) fn completions(arguments: &CompletionArguments) -> Result<Exit, Error> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "twinboot", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::NoRegression)
}

pub(super) fn man(arguments: &ManArguments) -> Result<Exit, Error> {
    fs::create_dir(&arguments.directory)?;
    clap_mangen::generate_to(Cli::command(), &arguments.directory).map_err(Error::Output)?;
    Ok(Exit::NoRegression)
}
