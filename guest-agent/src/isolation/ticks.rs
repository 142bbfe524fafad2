// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ticks of busy CPUs. One pinned thread spins on each CPU of a group, and one on a CPU that is not
//! isolated, for comparison; meanwhile the thread that counts sleeps on a CPU that is not isolated either.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, Builder};
use std::time::Duration;

use twinboot_protocol::{IsolationProof, Spin, TickDependency, Ticks};

use super::interrupts;
use super::tick_stop::{self, Refusals, Watch};
use crate::error::{AgentError, Context};
use crate::sys::{self, clock_ns};
use crate::workload::{SPIN_BATCH, spin};

/// Enough for a loop.
const STACK_BYTES: usize = 64 << 10;

/// A tick stops at the first tick that finds one task alone, and the threads need a moment to get there.
const LEAST_SETTLING: Duration = Duration::from_millis(20);

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) ticks: Vec<Ticks>,
    pub(super) tick_dependencies: Vec<TickDependency>,
}

/// Counts, in one window for each group of isolated CPUs.
pub(super) fn count(orders: &IsolationProof, online: &[u32]) -> Result<Counted, AgentError> {
    let isolated: Vec<u32> = orders.cpus.iter().copied().filter(|cpu| online.contains(cpu)).collect();
    let mut housekeeping = sys::allowed_cpus().context("ask for the CPUs of this process")?;
    housekeeping.retain(|cpu| online.contains(cpu) && !isolated.contains(cpu));
    // A thread of its own: the affinity of the caller's, and of all that come later, stays as it is.
    let counting = || count_from(orders, &isolated, &housekeeping);
    thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, counting).context("start a thread")?;
        thread.join().map_err(|_| AgentError::new("the thread that counts ticks has panicked"))?
    })
}

fn count_from(
    orders: &IsolationProof,
    isolated: &[u32],
    housekeeping: &[u32],
) -> Result<Counted, AgentError> {
    if let Some(&cpu) = housekeeping.first() {
        sys::pin(cpu).context(format_args!("move to CPU {cpu}"))?;
    }
    // The comparison is best where nothing else runs.
    let comparison = housekeeping.get(1).or(housekeeping.first()).copied();
    let window = Duration::from_nanos(orders.window_ns);
    let watch = Watch::start();
    let (mut tally, mut refusals) = (Tally::default(), Refusals::new());
    for group in isolated.chunks((orders.at_once as usize).max(1)) {
        let busy: Vec<u32> = group.iter().copied().chain(comparison).collect();
        let (before, after) = count_while_busy(&busy, orders.spin, window, watch.as_ref())?;
        tally.add(&before, &after, &busy, isolated);
        refusals.extend(tick_stop::between(&before.refusals, &after.refusals, group));
    }
    Ok(Counted { ticks: tally.0.into_values().collect(), tick_dependencies: tick_stop::named(refusals) })
}

/// Keeps these CPUs busy with one thread each, and reads before and after the window.
fn count_while_busy(
    busy: &[u32],
    kind: Spin,
    window: Duration,
    watch: Option<&Watch>,
) -> Result<(Reading, Reading), AgentError> {
    let stop = AtomicBool::new(false);
    let (arrive, arrivals) = mpsc::channel::<(u32, io::Result<()>)>();
    thread::scope(|scope| {
        // Also an error on the way ends the threads, which the scope waits for.
        let _stop_at_end = StopAtEnd(&stop);
        for &cpu in busy {
            let (stop, arrive) = (&stop, arrive.clone());
            let spinning = move || {
                let _ = arrive.send((cpu, sys::pin(cpu)));
                drop(arrive);
                while !stop.load(Ordering::Relaxed) {
                    spin(kind, SPIN_BATCH);
                }
            };
            Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, spinning).context("start a thread")?;
        }
        drop(arrive);
        for (cpu, pinned) in arrivals {
            pinned.context(format_args!("keep CPU {cpu} busy"))?;
        }
        thread::sleep(LEAST_SETTLING.max(window / 4));
        let before = Reading::now(watch);
        thread::sleep(window);
        Ok((before, Reading::now(watch)))
    })
}

/// Stops busy threads when dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counters at one time.
#[derive(Debug, Default)]
struct Reading {
    now_ns: u64,
    ticks: BTreeMap<u32, u64>,
    refusals: Refusals,
}

impl Reading {
    fn now(watch: Option<&Watch>) -> Self {
        let now_ns = clock_ns();
        let ticks = interrupts::ticks();
        Self { now_ns, ticks, refusals: watch.map(Watch::read).unwrap_or_default() }
    }
}

/// The ticks of each CPU over all windows in which it was busy or, if it is not isolated, idle.
#[derive(Debug, Default)]
struct Tally(BTreeMap<u32, Ticks>);

impl Tally {
    fn add(&mut self, before: &Reading, after: &Reading, busy: &[u32], isolated: &[u32]) {
        for (&cpu, &now) in &after.ticks {
            let Some(earlier) = before.ticks.get(&cpu) else { continue };
            let busy = busy.contains(&cpu);
            if isolated.contains(&cpu) && !busy {
                continue;
            }
            let ticks = self.0.entry(cpu).or_insert(Ticks { cpu, busy, ..Ticks::default() });
            ticks.count += now.saturating_sub(*earlier);
            ticks.window_ns += after.now_ns - before.now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(now_ns: u64, ticks: [u64; 4]) -> Reading {
        Reading { now_ns, ticks: (0..).zip(ticks).collect(), refusals: Refusals::new() }
    }

    #[test]
    fn windows_add_up() {
        let mut tally = Tally::default();
        tally.add(&reading(100, [1, 5, 0, 7]), &reading(200, [9, 30, 1, 8]), &[1, 2], &[2, 3]);
        tally.add(&reading(300, [9, 30, 2, 8]), &reading(450, [9, 60, 9, 10]), &[1, 3], &[2, 3]);
        let ticks = |cpu, busy, count, window_ns| Ticks { cpu, busy, count, window_ns };
        let expected = [
            ticks(0, false, 8, 250),
            ticks(1, true, 55, 250),
            ticks(2, true, 1, 100),
            ticks(3, true, 2, 150),
        ];
        assert_eq!(tally.0.into_values().collect::<Vec<_>>(), expected);
    }
}
