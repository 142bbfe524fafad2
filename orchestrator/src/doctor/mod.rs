// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host can test and cannot, why, and the command that mends it. It installs nothing; whether
//! KVM works is only known after a run has probed it.

use serde::Serialize;

use crate::agent::binary;
use crate::cache::Cache;
use crate::process::{self, Task};
use crate::sys;
use crate::vm::accel;
use crate::vm::arch::{self, ArchSpec};

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

/// QEMU's major version below which guests are not known to work.
const OLDEST_QEMU: u32 = 8;

/// Looks at everything.
pub(crate) async fn look() -> Vec<Check> {
    let mut checks = Vec::new();
    for (program, package, why) in PROGRAMS {
        checks.push(program_check(program, package, why, State::Missing));
    }
    for (program, package, why) in SOMETIMES {
        checks.push(program_check(program, package, why, State::Lacking));
    }
    checks.push(header_check());
    for arch in arch::ALL {
        checks.push(qemu_check(arch).await);
        checks.push(agent_check(arch));
        checks.push(kvm_check(arch).await);
    }
    checks.push(cache_check());
    checks
}

fn program_check(program: &str, package: &str, why: &str, otherwise: State) -> Check {
    let found = process::find(program);
    Check {
        what: format!("{program} ({why})"),
        state: if found.is_some() { State::Good } else { otherwise },
        mend: found.is_none().then(|| install(package)),
        found: found.map_or_else(|| "not on PATH".to_owned(), |path| path.display().to_string()),
    }
}

/// objtool, which the kernel's build makes and runs, needs this header.
fn header_check() -> Check {
    let there = std::path::Path::new("/usr/include/libelf.h").exists();
    Check {
        what: "libelf's headers (the kernel's build needs them)".to_owned(),
        state: if there { State::Good } else { State::Missing },
        found: if there { "/usr/include/libelf.h" } else { "no /usr/include/libelf.h" }.to_owned(),
        mend: (!there).then(|| install("libelf-dev")),
    }
}

async fn qemu_check(arch: &ArchSpec) -> Check {
    let what = format!("{} ({} guests)", arch.qemu, arch.uname);
    let said = Task::new(arch.qemu).arg("--version").run().await;
    let Ok(said) = said else {
        let found = "not on PATH, or it does not start".to_owned();
        return Check { what, state: State::Missing, found, mend: Some(install(arch.qemu_package)) };
    };
    let found = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
    let old = major_version(&found).is_some_and(|major| major < OLDEST_QEMU);
    let mend = old.then(|| format!("{} -t bookworm-backports", install(arch.qemu_package)));
    Check { what, state: if old { State::Lacking } else { State::Good }, found, mend }
}

fn agent_check(arch: &ArchSpec) -> Check {
    let what = format!("the agent for {} guests", arch.uname);
    match binary::read(arch) {
        Ok(agent) => {
            Check { what, state: State::Good, found: format!("{} KiB", agent.len() >> 10), mend: None }
        }
        Err(error) => {
            Check { what, state: State::Missing, found: error.to_string(), mend: Some("ci/build".to_owned()) }
        }
    }
}

async fn kvm_check(arch: &ArchSpec) -> Check {
    let what = format!("KVM for {} guests", arch.uname);
    let version = Task::new(arch.qemu).arg("--version").run().await.unwrap_or_default();
    let version = crate::run::host::qemu_version(&String::from_utf8_lossy(&version));
    let finding =
        accel::without_probe(arch).or_else(|| accel::remembered(&Cache::open().ok()?, arch, &version));
    let (state, found) = match finding {
        Some(finding) if finding.usable => (State::Good, finding.why),
        Some(finding) => (State::Lacking, finding.why),
        None => {
            let found = "/dev/kvm opens; whether a guest runs is found out by the first run that wants it";
            (State::Lacking, found.to_owned())
        }
    };
    Check { what, state, found, mend: None }
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

fn install(package: &str) -> String {
    let sudo = if sys::user_id() == 0 { "" } else { "sudo " };
    format!("{sudo}apt-get install {package}")
}

/// `10` out of `QEMU emulator version 10.0.2 (Debian ...)`.
fn major_version(said: &str) -> Option<u32> {
    said.split_whitespace().find_map(|word| word.split_once('.')?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major_version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)"), Some(10));
        assert_eq!(major_version("nothing here"), None);
    }
}
