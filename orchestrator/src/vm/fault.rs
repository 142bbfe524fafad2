// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a guest, told apart from the console, QEMU's events and the port together.
//! Reading the console is pure: lines in, faults out.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultClass {
    /// The kernel gave up.
    Panic,
    /// The kernel hit bad memory or a bad instruction.
    Oops,
    /// `BUG()`, or one of the kernel's `BUG:` reports.
    Bug,
    /// `WARN()`: the trial went on, but it does not count.
    Warning,
    /// Lock order or RCU use that lockdep objects to.
    Lockdep,
    /// A task stayed uninterruptible.
    HungTask,
    /// A CPU did not schedule.
    SoftLockup,
    /// A CPU took no interrupts.
    HardLockup,
    /// RCU waited for a CPU too long.
    RcuStall,
    /// The kernel killed a process for want of memory.
    OutOfMemory,
    /// Nothing came any more, neither on the console nor on the port.
    Hang,
    /// The guest reset itself without a word.
    TripleFault,
    /// The agent died, and so did the guest's init.
    AgentCrash,
    /// The agent could not go on and said why.
    AgentFailed,
    /// What came on the port is damaged.
    BadFrames,
    /// QEMU did not start the guest.
    QemuRefused,
    /// QEMU ended by itself or was killed.
    QemuExit,
}

impl FaultClass {
    /// Whether the host, not the kernel under test, is to blame.
    pub(crate) fn is_hosts(self) -> bool {
        matches!(self, Self::QemuRefused | Self::QemuExit | Self::BadFrames)
    }

    /// Whether the trial goes on to its end all the same.
    pub(crate) fn lets_the_trial_go_on(self) -> bool {
        matches!(self, Self::Warning | Self::Lockdep | Self::OutOfMemory)
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panic => "kernel panic",
            Self::Oops => "kernel oops",
            Self::Bug => "kernel BUG",
            Self::Warning => "kernel warning",
            Self::Lockdep => "lockdep report",
            Self::HungTask => "hung task",
            Self::SoftLockup => "soft lockup",
            Self::HardLockup => "hard lockup",
            Self::RcuStall => "RCU stall",
            Self::OutOfMemory => "out of memory",
            Self::Hang => "silent hang",
            Self::TripleFault => "triple fault",
            Self::AgentCrash => "agent crash",
            Self::AgentFailed => "agent failure",
            Self::BadFrames => "damaged results",
            Self::QemuRefused => "refusal by QEMU",
            Self::QemuExit => "end of QEMU",
        })
    }
}

/// One fault of one guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Fault {
    pub(crate) class: FaultClass,
    /// The line that says it, or words of ours where nothing did.
    pub(crate) headline: String,
    /// When in the guest's life: before or after the agent's first frame, in the window.
    pub(crate) stage: Stage,
    /// Where each CPU was, for a hang.
    pub(crate) cpus: Vec<String>,
    /// The console's last lines.
    pub(crate) tail: Vec<String>,
}

/// How far a guest had come.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Boot,
    Agent,
    Window,
    Results,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boot => "while booting",
            Self::Agent => "after the agent's start",
            Self::Window => "under load",
            Self::Results => "after the measurement",
        })
    }
}

impl Fault {
    /// The same text in both arms is the same fault: addresses, numbers of CPUs and tasks, and source lines
    /// (which a patch moves) do not count.
    pub(crate) fn fingerprint(&self) -> String {
        static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
            #[expect(clippy::unwrap_used, reason = "the pattern is a constant that a test compiles")]
            Regex::new(r"0x[0-9a-f]+|\b[0-9a-f]{8,16}\b|\d+").unwrap()
        });
        format!("{:?} {}", self.class, NUMBERS.replace_all(&self.headline, "N"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.class, self.stage, self.headline)?;
        for cpu in &self.cpus {
            write!(f, "\n  {cpu}")?;
        }
        if !self.tail.is_empty() {
            write!(f, "\nlast lines of the console:")?;
        }
        for line in &self.tail {
            write!(f, "\n  | {line}")?;
        }
        Ok(())
    }
}

/// What a console line reports, if it reports a fault. Patterns stand at the line's start, behind the
/// kernel's time stamp, so that a quotation in the middle of a line is none.
pub(crate) fn classify_line(line: &str) -> Option<FaultClass> {
    let text = strip_stamp(line);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    if let Some(reason) = text.strip_prefix("Kernel panic - not syncing: ") {
        let init = reason.starts_with("Attempted to kill init");
        return Some(if init { FaultClass::AgentCrash } else { FaultClass::Panic });
    }
    if starts(&["watchdog: BUG: soft lockup"]) {
        return Some(FaultClass::SoftLockup);
    }
    if text.contains("detected hard LOCKUP on cpu") && starts(&["watchdog: ", "Watchdog ", "NMI watchdog: "])
    {
        return Some(FaultClass::HardLockup);
    }
    if starts(&["rcu: INFO: "]) && text.contains("stall") {
        return Some(FaultClass::RcuStall);
    }
    if starts(&["INFO: task "]) && text.contains(" blocked for more than ") {
        return Some(FaultClass::HungTask);
    }
    if starts(&["Out of memory: ", "Memory cgroup out of memory: "]) {
        return Some(FaultClass::OutOfMemory);
    }
    let oops = ["BUG: kernel NULL pointer", "BUG: unable to handle", "Oops: ", "Internal error: ", "Oops - "];
    if starts(&oops) || starts(&["Unable to handle kernel ", "general protection fault", "invalid opcode: "])
    {
        return Some(FaultClass::Oops);
    }
    let lockdep =
        ["possible circular", "possible recursive", "possible irq", "inconsistent lock", "suspicious RCU"];
    if text.strip_prefix("WARNING: ").is_some_and(|rest| lockdep.iter().any(|what| rest.starts_with(what)))
        || starts(&["WARNING: bad unlock balance", "WARNING: held lock freed", "WARNING: lock held when"])
    {
        return Some(FaultClass::Lockdep);
    }
    if starts(&["WARNING: CPU: "]) {
        return Some(FaultClass::Warning);
    }
    if starts(&["kernel BUG at ", "BUG: "]) {
        return Some(FaultClass::Bug);
    }
    if starts(&["init[1]: segfault", "traps: init[1] "]) {
        return Some(FaultClass::AgentCrash);
    }
    None
}

/// A console line that reported a fault.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) class: FaultClass,
    /// The line, without its time stamp.
    pub(crate) headline: String,
    /// How far the guest had come then.
    pub(crate) stage: Stage,
}

/// The report that names the cause: the first that is more than a warning, for what follows it usually
/// follows from it. Of an init that died, its death is what matters, though a report of the signal may
/// stand before; unless an oops killed it.
pub(crate) fn cause(reports: &[Report]) -> Option<&Report> {
    let first = |wanted: &dyn Fn(FaultClass) -> bool| reports.iter().find(|report| wanted(report.class));
    first(&|class| class == FaultClass::AgentCrash)
        .filter(|_| first(&|class| class == FaultClass::Oops).is_none())
        .or_else(|| first(&|class| !class.lets_the_trial_go_on()))
        .or_else(|| reports.first())
}

/// A console line without carriage return, time stamp and caller: `[    1.234567][  T12] text`.
pub(crate) fn strip_stamp(line: &str) -> &str {
    let mut text = line.trim_end_matches(['\r', '\n']);
    while let Some(rest) = text.strip_prefix('[') {
        let Some((stamp, rest)) = rest.split_once(']') else { break };
        if !stamp.trim().starts_with(|c: char| c.is_ascii_digit() || c == 'T' || c == 'C') {
            break;
        }
        text = rest.trim_start_matches(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<FaultClass>) {
        assert_eq!(classify_line(line), expected, "{line}");
    }

    #[test]
    fn lines_of_real_kernels_are_told_apart() {
        use FaultClass::*;
        check("[    1.5] Kernel panic - not syncing: Fatal exception", Some(Panic));
        check("[    1.5][    T1] Kernel panic - not syncing: VFS: Unable to mount root fs", Some(Panic));
        check(
            "[    0.9] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009",
            Some(AgentCrash),
        );
        check("[    3.0] BUG: kernel NULL pointer dereference, address: 0000000000000000", Some(Oops));
        check("[    3.0] Oops: 0002 [#1] PREEMPT SMP NOPTI", Some(Oops));
        check("[    3.0] Oops: general protection fault, probably for non-canonical address", Some(Oops));
        check("[    3.0] Internal error: Oops: 0000000096000005 [#1] SMP", Some(Oops));
        check("[    3.0] kernel BUG at kernel/sched/core.c:4711!", Some(Bug));
        check("[    3.0] BUG: scheduling while atomic: swapper/0/0/0x00000002", Some(Bug));
        check("[    3.0] WARNING: CPU: 1 PID: 23 at kernel/sched/fair.c:123 f+0x1/0x2", Some(Warning));
        check("[    3.0] WARNING: possible circular locking dependency detected", Some(Lockdep));
        check("[    3.0] WARNING: suspicious RCU usage", Some(Lockdep));
        check("[   33.0] watchdog: BUG: soft lockup - CPU#2 stuck for 26s! [x:1]", Some(SoftLockup));
        check("[   33.0] watchdog: Watchdog detected hard LOCKUP on cpu 2", Some(HardLockup));
        check("[   33.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", Some(RcuStall));
        check("[   33.0] rcu: INFO: rcu_preempt self-detected stall on CPU", Some(RcuStall));
        check("[  133.0] INFO: task x:12 blocked for more than 120 seconds.", Some(HungTask));
        check("[  133.0] Out of memory: Killed process 77 (x) total-vm:1kB", Some(OutOfMemory));
        check("[    3.0] init[1]: segfault at 0 ip 0 sp 0 error 14", Some(AgentCrash));
    }

    #[test]
    fn quotations_and_chatter_are_no_faults() {
        for line in [
            "twinboot-agent: the log said Kernel panic - not syncing: x",
            "[    1.0] Command line: panic=-1 BUG: oops",
            "[    1.0] rcu: Hierarchical SRCU implementation.",
            "[    1.0] x86/fpu: WARNING: CPU: nothing",
            "[    1.0] PM: hibernation: Registered nosave memory: [mem 0x0-0xfff]",
            "",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn the_cause_stands_before_its_consequences() {
        let report = |&class: &FaultClass| Report { class, headline: String::new(), stage: Stage::Boot };
        let cause_of = |classes: &[FaultClass]| {
            let reports: Vec<Report> = classes.iter().map(report).collect();
            cause(&reports).map(|report| report.class)
        };
        use FaultClass::*;
        assert_eq!(cause_of(&[]), None);
        assert_eq!(cause_of(&[Warning]), Some(Warning));
        assert_eq!(cause_of(&[Warning, Oops, Panic]), Some(Oops));
        assert_eq!(cause_of(&[Oops, AgentCrash]), Some(Oops));
        assert_eq!(cause_of(&[Warning, AgentCrash]), Some(AgentCrash));
    }

    #[test]
    fn a_fingerprint_survives_what_differs_between_boots() {
        let fault = |headline: &str| Fault {
            class: FaultClass::Warning,
            headline: headline.to_owned(),
            stage: Stage::Window,
            cpus: Vec::new(),
            tail: Vec::new(),
        };
        let first = fault("WARNING: CPU: 1 PID: 23 at kernel/x.c:123 f+0x1a/0x20");
        let second = fault("WARNING: CPU: 3 PID: 7 at kernel/x.c:124 f+0x1b/0x20");
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_ne!(
            first.fingerprint(),
            fault("WARNING: CPU: 1 PID: 23 at kernel/y.c:1 g+0x1/0x2").fingerprint()
        );
    }
}
