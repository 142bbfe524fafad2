// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host can test and cannot, why, and the command that mends it. It installs nothing; whether
//! KVM works is only known after a run has probed it.

mod guests;
mod mend;

use serde::Serialize;

use crate::cache::Cache;
use crate::process;
use crate::sys;
use crate::vm::arch;
use mend::System;

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) state: State,
    /// What was found.
    pub(crate) found: String,
    /// The command that mends it, where there is one.
    pub(crate) mend: Option<String>,
}

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Good,
    /// Something works less well.
    Lacking,
    /// Nothing can be tested.
    Missing,
}

/// Programs that every run needs, with Debian's packages.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("make", "make", "builds kernels"),
    ("gcc", "gcc", "builds kernels"),
    ("ld", "binutils", "builds kernels"),
    ("flex", "flex", "builds the kernel's configuration program"),
    ("bison", "bison", "builds the kernel's configuration program"),
    ("bc", "bc", "computes the kernel's time constants"),
    ("git", "git", "applies patches"),
    ("tar", "tar", "unpacks kernel sources"),
    ("xz", "xz-utils", "unpacks kernel sources"),
    ("cp", "coreutils", "clones trees"),
];

/// Programs that some runs need.
const SOMETIMES: &[(&str, &str, &str)] = &[("curl", "curl", "downloads kernel sources")];

/// Looks at everything.
pub(crate) async fn look() -> Vec<Check> {
    let system = System::look();
    let mut checks = Vec::new();
    for (program, package, why) in PROGRAMS {
        checks.push(program_check(program, package, why, State::Missing, &system));
    }
    for (program, package, why) in SOMETIMES {
        checks.push(program_check(program, package, why, State::Lacking, &system));
    }
    checks.push(header_check(&system));
    for arch in arch::ALL {
        checks.extend(guests::look(arch, &system).await);
    }
    checks.push(cache_check());
    checks
}

fn program_check(program: &str, package: &str, why: &str, otherwise: State, system: &System) -> Check {
    let found = process::find(program);
    Check {
        what: format!("{program} ({why})"),
        state: if found.is_some() { State::Good } else { otherwise },
        mend: found.is_none().then(|| system.install(package)),
        found: found.map_or_else(|| "not on PATH".to_owned(), |path| path.display().to_string()),
    }
}

/// objtool, which the kernel's build makes and runs, needs this header.
fn header_check(system: &System) -> Check {
    let there = std::path::Path::new("/usr/include/libelf.h").exists();
    Check {
        what: "libelf's headers (the kernel's build needs them)".to_owned(),
        state: if there { State::Good } else { State::Missing },
        found: if there { "/usr/include/libelf.h" } else { "no /usr/include/libelf.h" }.to_owned(),
        mend: (!there).then(|| system.install("libelf-dev")),
    }
}

fn cache_check() -> Check {
    let what = "the cache of sources and kernels".to_owned();
    match Cache::open() {
        Ok(cache) => {
            let free = sys::free_bytes(cache.root()).unwrap_or(0) >> 30;
            let state = if free < 6 { State::Lacking } else { State::Good };
            let found = format!("{}, {free} GiB free (a first run takes about 4)", cache.root().display());
            let mend = (state == State::Lacking).then(|| "twinboot cache --prune 0".to_owned());
            Check { what, state, found, mend }
        }
        Err(error) => {
            let mend = Some("export TWINBOOT_CACHE=/a/directory/you/can/write".to_owned());
            Check { what, state: State::Missing, found: crate::error::chain(&error), mend }
        }
    }
}
