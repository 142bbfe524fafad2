// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host has for the guests of one architecture: QEMU, a compiler, the agent, a shell, KVM.
//!
//! Without a part for x86-64 nothing can be tested. Without one for another architecture, the others still can.

use std::path::PathBuf;

use super::mend::System;
use super::{Check, State};
use crate::agent::binary;
use crate::cache::Cache;
use crate::process::{self, Task};
use crate::run::host;
use crate::vm::accel;
use crate::vm::arch::ArchSpec;
use crate::vm::known_bad::{known_bad, number};

/// QEMU's major version below which guests are not known to work.
const OLDEST_QEMU: u32 = 8;

/// Looks at everything for one architecture.
pub(super) async fn look(arch: &ArchSpec, system: &System) -> Vec<Check> {
    let version = Task::new(arch.qemu).arg("--version").run().await.ok();
    let version =
        version.map(|said| String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned());
    let mut checks = vec![qemu(arch, version.as_deref(), system)];
    if is_foreign(arch) {
        checks.push(compiler(arch, found_compiler(arch).await, system));
    }
    checks.push(agent(arch));
    checks.push(shell(arch, binary::shell(arch), system));
    checks.push(kvm(arch, &version.unwrap_or_default()));
    checks
}

fn is_foreign(arch: &ArchSpec) -> bool {
    !arch.is_hosts()
}

/// How it stands without a part that no guest of this architecture can do without.
fn without(arch: &ArchSpec) -> State {
    if is_foreign(arch) { State::Lacking } else { State::Missing }
}

fn qemu(arch: &ArchSpec, version: Option<&str>, system: &System) -> Check {
    let what = format!("{} ({} guests)", arch.qemu, arch.uname);
    let Some(version) = version else {
        let found = "not on PATH, or it does not start".to_owned();
        let mend = Some(system.install_qemu(arch.qemu_package));
        return Check { what, state: without(arch), found, mend };
    };
    let old = number(version).is_some_and(|(major, ..)| major < OLDEST_QEMU);
    let trouble = match known_bad(version, arch.uname) {
        Some(trouble) => trouble.to_owned(),
        None if old => format!("guests are not known to work before {OLDEST_QEMU}.0"),
        None => return Check { what, state: State::Good, found: version.to_owned(), mend: None },
    };
    let mend = system.replace_qemu(arch.qemu_package);
    Check { what, state: State::Lacking, found: format!("{version}: {trouble}"), mend }
}

/// A cross compiler.
struct Compiler {
    path: PathBuf,
    /// Whether it can link a static program, as the agent is.
    links: bool,
}

async fn found_compiler(arch: &ArchSpec) -> Option<Compiler> {
    let path = process::find(&format!("{}gcc", arch.cross_prefix))?;
    // It answers with the path, or with the bare name when there is no such library.
    let library = Task::new(&path).arg("-print-file-name=libc.a").run().await.unwrap_or_default();
    Some(Compiler { path, links: library.starts_with(b"/") })
}

fn compiler(arch: &ArchSpec, compiler: Option<Compiler>, system: &System) -> Check {
    let what =
        format!("{}gcc (compiles kernels for {}, and links their agent)", arch.cross_prefix, arch.uname);
    let Some(Compiler { path, links }) = compiler else {
        let package = format!("gcc-{}", arch.cross_prefix.trim_end_matches('-'));
        let (found, mend) = ("not on PATH".to_owned(), Some(system.install(&package)));
        return Check { what, state: State::Lacking, found, mend };
    };
    let path = path.display();
    if links {
        return Check { what, state: State::Good, found: path.to_string(), mend: None };
    }
    let found = format!("{path}, which compiles kernels, but has no static C library to link the agent with");
    Check { what, state: State::Lacking, found, mend: Some("ci/setup --cross".to_owned()) }
}

fn agent(arch: &ArchSpec) -> Check {
    let what = format!("the agent for {} guests", arch.uname);
    match binary::read(arch) {
        Ok(agent) => {
            Check { what, state: State::Good, found: format!("{} KiB", agent.len() >> 10), mend: None }
        }
        Err(error) => {
            let mend = Some(binary::made_by(arch).to_owned());
            Check { what, state: without(arch), found: error.to_string(), mend }
        }
    }
}

fn shell(arch: &ArchSpec, found: Option<PathBuf>, system: &System) -> Check {
    let what = format!("a shell for interactive {} guests", arch.uname);
    if let Some(path) = found {
        return Check { what, state: State::Good, found: path.display().to_string(), mend: None };
    }
    let mend = if !is_foreign(arch) {
        Some(system.install("busybox-static"))
    } else {
        system.has_foreign_shells().then(|| binary::made_by(arch).to_owned())
    };
    let found = format!("no static busybox, as busybox-{} beside the agent", arch.uname);
    Check { what, state: State::Lacking, found, mend }
}

fn kvm(arch: &ArchSpec, version: &str) -> Check {
    let what = format!("KVM for {} guests", arch.uname);
    let version = host::qemu_version(version);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Arch;
    use crate::vm::arch::spec;

    #[track_caller]
    fn check(check: &Check, state: State, found: &str, mend: Option<&str>) {
        assert_eq!(check.state, state, "{check:?}");
        assert!(check.found.contains(found), "{check:?}");
        assert_eq!(
            check.mend.as_deref().map(|command| command.rsplit("&& ").next()),
            mend.map(Some),
            "{check:?}"
        );
    }

    #[test]
    fn qemu_is_there_new_and_sound() {
        let system = System::of("noble");
        let bookworm = System::of("bookworm");
        let qemu = |arch, version, system| qemu(spec(arch), version, system);
        check(&qemu(Arch::X86_64, Some("10.0.2"), &system), State::Good, "10.0.2", None);
        let install = Some("sudo apt-get install qemu-system-x86");
        check(&qemu(Arch::X86_64, None, &system), State::Missing, "not on PATH", install);
        let install = Some("sudo apt-get install qemu-system-ppc");
        check(&qemu(Arch::Ppc64le, None, &system), State::Lacking, "not on PATH", install);
        let install = Some("sudo apt-get install -t bookworm-backports qemu-system-arm");
        check(&qemu(Arch::Aarch64, None, &bookworm), State::Lacking, "not on PATH", install);
        check(&qemu(Arch::Aarch64, Some("7.2.17"), &bookworm), State::Lacking, "7.2.17: guests are", install);
        check(&qemu(Arch::Aarch64, Some("6.2.0"), &system), State::Lacking, "before 8.0", None);
        check(&qemu(Arch::Ppc64le, Some("8.2.2"), &system), State::Lacking, "8.2.2: its vector", None);
        check(&qemu(Arch::Aarch64, Some("8.2.2"), &system), State::Good, "8.2.2", None);
    }

    #[test]
    fn a_cross_compiler_is_there_and_links() {
        let system = System::of("noble");
        let compiler = |there| compiler(spec(Arch::Ppc64le), there, &system);
        let there = |links| Some(Compiler { path: PathBuf::from("/bin/gcc"), links });
        let install = Some("sudo apt-get install gcc-powerpc64le-linux-gnu");
        check(&compiler(None), State::Lacking, "not on PATH", install);
        check(&compiler(there(false)), State::Lacking, "no static C library", Some("ci/setup --cross"));
        check(&compiler(there(true)), State::Good, "/bin/gcc", None);
    }

    #[test]
    fn a_shell_comes_from_where_it_can() {
        let shell = |arch, found: Option<&str>, release| {
            shell(spec(arch), found.map(PathBuf::from), &System::of(release))
        };
        check(&shell(Arch::X86_64, Some("/bin/busybox"), "noble"), State::Good, "/bin/busybox", None);
        let install = Some("sudo apt-get install busybox-static");
        check(&shell(Arch::X86_64, None, "noble"), State::Lacking, "busybox-x86_64", install);
        check(&shell(Arch::Aarch64, None, "bookworm"), State::Lacking, "busybox-aarch64", Some("ci/build"));
        check(&shell(Arch::Aarch64, None, "noble"), State::Lacking, "busybox-aarch64", None);
    }
}
