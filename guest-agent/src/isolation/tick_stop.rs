// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why ticks do not stop: a histogram over the tracepoint `timer:tick_stop`, which the kernel keeps by
//! itself. A kernel without the tracepoint or without histograms gives nothing.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use twinboot_protocol::TickDependency;

use crate::facts;

const EVENT: &str = "/sys/kernel/tracing/events/timer/tick_stop";

/// Counts each refusal by CPU and reason. The table has room for every CPU with every reason.
const TRIGGER: &str = "hist:keys=common_cpu,dependency:size=8192 if success==0";

/// How often a tick could not stop, by CPU and the kernel's number of the reason.
pub(super) type Refusals = BTreeMap<(u32, u32), u64>;

/// Watches the tracepoint until dropped.
#[derive(Debug)]
pub(super) struct Watch(());

impl Watch {
    /// Starts to watch, where that is possible.
    pub(super) fn start() -> Option<Self> {
        write_trigger(TRIGGER).ok().map(|()| Self(()))
    }

    /// The refusals so far.
    pub(super) fn read(&self) -> Refusals {
        parse(&facts::optional(Path::new(EVENT).join("hist")))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A trigger that cannot be removed costs nothing while no tick is refused.
        let _ = write_trigger(&format!("!{TRIGGER}"));
    }
}

/// Never makes the file: where there is no such event there is nothing to watch.
fn write_trigger(text: &str) -> io::Result<()> {
    let path: PathBuf = Path::new(EVENT).join("trigger");
    fs::metadata(&path)?;
    OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}

/// A row is `{ common_cpu: 1, dependency: 4 } hitcount: 25`.
fn parse(histogram: &str) -> Refusals {
    let row = |line: &str| {
        let mut numbers = line.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
        let mut next = || numbers.next()?.parse::<u64>().ok();
        Some(((u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?), next()?))
    };
    histogram.lines().filter(|line| line.starts_with('{')).filter_map(row).collect()
}

/// What was added between two readings, for these CPUs.
pub(super) fn between(before: &Refusals, after: &Refusals, cpus: &[u32]) -> Refusals {
    let added = after.iter().filter(|((cpu, _), _)| cpus.contains(cpu)).map(|(key, count)| {
        let earlier = before.get(key).copied().unwrap_or_default();
        (*key, count.saturating_sub(earlier))
    });
    added.filter(|(_, count)| 0 < *count).collect()
}

/// With the kernel's words (include/trace/events/timer.h).
pub(super) fn named(refusals: Refusals) -> Vec<TickDependency> {
    let named = |((cpu, dependency), count)| {
        let why = match dependency {
            1 => "POSIX_TIMER".to_owned(),
            2 => "PERF_EVENTS".to_owned(),
            4 => "SCHED".to_owned(),
            8 => "CLOCK_UNSTABLE".to_owned(),
            16 => "RCU".to_owned(),
            32 => "RCU_EXP".to_owned(),
            other => other.to_string(),
        };
        TickDependency { cpu, why, count }
    };
    refusals.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = "# event histogram\n#\n# trigger info: hist:keys=common_cpu,dependency [active]\n\
        #\n\n{ common_cpu:          1, dependency:          4 } hitcount:          7\n\
        { common_cpu:         12, dependency:          8 } hitcount:         90\n\nTotals:\n    Hits: 97\n";

    #[test]
    fn rows() {
        assert_eq!(parse(HISTOGRAM), Refusals::from([((1, 4), 7), ((12, 8), 90)]));
        assert_eq!(parse(""), Refusals::new());
    }

    #[test]
    fn only_what_was_added_counts() {
        let before = Refusals::from([((1, 4), 7), ((2, 8), 1)]);
        let after = Refusals::from([((1, 4), 7), ((2, 8), 3), ((2, 64), 1), ((5, 8), 9)]);
        let added = named(between(&before, &after, &[1, 2]));
        let dependency = |why: &str, count| TickDependency { cpu: 2, why: why.to_owned(), count };
        assert_eq!(added, [dependency("CLOCK_UNSTABLE", 2), dependency("64", 1)]);
    }
}
