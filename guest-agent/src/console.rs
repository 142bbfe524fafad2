// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines for a person: on the guest's console, or on the terminal of an ordinary process. Results never
//! go this way.

use std::io::{self, Write};

/// Writes one line, marked as the agent's. A console that cannot be written to stops nothing.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "twinboot-agent: {line}");
}
