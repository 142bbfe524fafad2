// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the agent cannot go on. All that anyone does with it is read it, on the host or on the console,
//! so it is a sentence and its causes rather than a tree of kinds.

use std::error::Error;
use std::fmt::{self, Display};

/// What failed, and below it why.
#[derive(Debug)]
pub(crate) struct AgentError {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AgentError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    pub(crate) fn caused_by(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { what: what.into(), source: Some(Box::new(source)) }
    }

    /// The whole chain in one line.
    pub(crate) fn chain(&self) -> String {
        let mut line = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            line = format!("{line}: {error}");
            source = error.source();
        }
        line
    }
}

impl Display for AgentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl Error for AgentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// Adds to an error what was tried.
pub(crate) trait Context<T> {
    fn context(self, what: impl Display) -> Result<T, AgentError>;
}

impl<T, E: Error + Send + Sync + 'static> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, AgentError> {
        self.map_err(|source| AgentError::caused_by(what.to_string(), source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_line() {
        let inner: Result<(), _> = Err(AgentError::new("no such port"));
        let outer = inner.context("open the port").context("start");
        assert_eq!(
            outer.map_err(|error| error.chain()),
            Err("start: open the port: no such port".to_owned())
        );
    }
}
