// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as an ordinary process, on a host or beside other tools in a guest:
//! `twinboot-agent --orders FILE [--output FILE]`. Frames go to the output file; without one, a summary
//! goes to standard output.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;

use twinboot_protocol::Message;

use crate::error::{AgentError, Context};
use crate::link::Link;
use crate::{console, trial};

const USAGE: &str = "usage: twinboot-agent --orders FILE [--output FILE]";
const WRONG_USAGE: u8 = 2;

/// What was asked for on the command line.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    orders: PathBuf,
    output: Option<PathBuf>,
}

/// Runs one trial in this process. Exit codes: 0 done, 1 failed, 2 wrong usage.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let Some(arguments) = parse(arguments) else {
        console::say(USAGE);
        return ExitCode::from(WRONG_USAGE);
    };
    match run_trial(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(&error.chain());
            ExitCode::FAILURE
        }
    }
}

/// Whether these arguments are meant for an ordinary process, whatever its number.
pub(crate) fn is_meant(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--orders")
}

fn run_trial(arguments: &Arguments) -> Result<(), AgentError> {
    let orders = fs::read(&arguments.orders).context(format_args!("read {}", arguments.orders.display()))?;
    let link = match &arguments.output {
        Some(path) => Link::frames(File::create(path).context(format_args!("create {}", path.display()))?),
        None => Link::summary(),
    };
    trial::run(&orders, &link).inspect_err(|error| {
        // The error itself is what the caller prints; the host's frames shall hold it too.
        let _ = link.send(Message::Failed { reason: error.chain() });
    })
}

fn parse(arguments: &[String]) -> Option<Arguments> {
    let (mut orders, mut output) = (None, None);
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        let value = match option.as_str() {
            "--orders" => &mut orders,
            "--output" => &mut output,
            _ => return None,
        };
        *value = Some(PathBuf::from(rest.next()?));
    }
    Some(Arguments { orders: orders?, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(&str, Option<&str>)>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let expected = expected
            .map(|(orders, output)| Arguments { orders: orders.into(), output: output.map(PathBuf::from) });
        assert_eq!(parse(&arguments), expected, "{line}");
    }

    #[test]
    fn arguments() {
        check("--orders a", Some(("a", None)));
        check("--output b --orders a", Some(("a", Some("b"))));
        check("", None);
        check("--output b", None);
        check("--orders", None);
        check("--orders a b", None);
        check("--help", None);
    }
}
