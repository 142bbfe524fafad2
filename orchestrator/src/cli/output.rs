// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output, for data. A reader that closes the pipe early has what it wanted.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::error::Error;

/// Prints text as it is.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Output(error)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Output(error.into()))?;
    print(&(text + "\n"))
}
