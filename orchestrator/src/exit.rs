// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: documented, stable, one for each answer that a script tells apart.

/// How Twinboot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// No regression.
    NoRegression = 0,
    /// A regression, or a replayed trial that differs.
    Regression = 1,
    /// Wrong usage or a wrong experiment file.
    Usage = 2,
    /// A patch does not apply.
    Patch = 3,
    /// A kernel does not build.
    Build = 4,
    /// The base arm cannot be tested.
    Base = 5,
    /// The patched arm crashes, hangs or warns while the base does not.
    Arm = 6,
    /// Trouble on the host.
    Host = 7,
    /// No verdict: inconclusive, or something unproven.
    Inconclusive = 8,
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The exit code that a stored result names.
    pub(crate) fn from_code(code: u8) -> Self {
        use Exit::{Arm, Base, Build, Host, Inconclusive, NoRegression, Patch, Regression, Usage};
        let all = [NoRegression, Regression, Usage, Patch, Build, Base, Arm, Host, Inconclusive];
        all.into_iter().find(|exit| exit.code() == code).unwrap_or(Host)
    }
}

/// The table for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  no regression            5  the base arm cannot be tested
  1  a regression             6  the patched arm crashes, hangs or warns, the base does not
  2  wrong usage or file      7  trouble on the host
  3  a patch does not apply   8  no verdict: inconclusive, or something unproven
  4  a kernel does not build

`replay` ends with 0 when the trial measures the same again, and with 1 when it does not.";
