// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot doctor`.

use std::fmt::Write as _;

use clap::Args;

use super::output;
use crate::doctor::{self, Check, State};
use crate::error::Error;
use crate::exit::Exit;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn doctor(arguments: &Arguments) -> Result<Exit, Error> {
    let checks = doctor::look().await;
    if arguments.json {
        output::print_json(&checks)?;
    } else {
        output::print(&words(&checks))?;
    }
    let missing = checks.iter().any(|check| check.state == State::Missing);
    Ok(if missing { Exit::Host } else { Exit::NoRegression })
}

fn words(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { what, state, found, mend } in checks {
        let mark = match state {
            State::Good => "good   ",
            State::Lacking => "lacking",
            State::Missing => "MISSING",
        };
        let _ = writeln!(text, "{mark}  {what}: {found}");
        if let Some(command) = mend {
            let _ = writeln!(text, "         mend it: {command}");
        }
    }
    text
}
