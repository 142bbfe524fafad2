// SPDX-License-Identifier: MIT OR Apache-2.0
//! Busy threads pinned to CPUs: load, not measurement. Below 100 percent a hog is busy for a slice and
//! then sleeps for as long as the share asks, by the monotonic clock, as `stress-ng --cpu-load` does; the
//! time by which a sleep was too long or too short is made up for in the next.

use std::hint::black_box;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use twinboot_protocol::{Hogs, Spin, WorkloadResult};

use super::gate::Gate;
use super::random::Random;
use super::{START_SPREAD_NS, Worker, start_thread};
use crate::error::{AgentError, Context};
use crate::sys::{ThreadClock, clock_ns, yield_hint};

/// How long a hog below 100 percent is busy in one go.
const SLICE_NS: u64 = 2_000_000;

/// Turns of the loop between two looks at the stop flag.
pub(crate) const BATCH: u32 = 1_024;

/// The same for hints where every look is one at the clock, too: each may cost a turn of all CPUs.
const HINT_SLICE_BATCH: u32 = 32;

/// Hogs that were started.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    threads: Vec<(JoinHandle<()>, ThreadClock)>,
}

/// The CPU time of all hogs of one workload at one time, both in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    now_ns: u64,
    busy_ns: u64,
}

/// How many workers these hogs are.
pub(super) fn workers(orders: &Hogs) -> u32 {
    orders.cpus.len() as u32 * orders.per_cpu
}

/// Starts all hogs; they wait at the gate.
pub(super) fn start(
    orders: &Hogs,
    workload: usize,
    gate: Gate,
    random: &mut Random,
) -> Result<Running, AgentError> {
    let mut threads = Vec::new();
    for cpu in orders.cpus.iter().flat_map(|cpu| (0..orders.per_cpu).map(|_| *cpu)) {
        let hog = Hog {
            delay: Duration::from_nanos(random.below(START_SPREAD_NS)),
            load_percent: orders.load_percent.into(),
            spin: orders.spin,
        };
        let thread = start_thread(Worker { cpu, workload, gate }, move |gate| {
            hog.run(gate);
            Ok(())
        })?;
        let clock = ThreadClock::of(&thread).context("find a hog's clock")?;
        threads.push((thread, clock));
    }
    Ok(Running { name: orders.name.clone(), threads })
}

impl Running {
    /// Reads the clocks from outside, so that the hogs make no system call for it.
    pub(super) fn read(&self) -> Reading {
        let busy_ns = self.threads.iter().map(|(_, clock)| clock.read()).sum();
        Reading { now_ns: clock_ns(), busy_ns }
    }

    /// What was done between two readings, after the window has closed.
    pub(super) fn result(self, opened: Reading, closed: Reading) -> Result<WorkloadResult, AgentError> {
        let threads = self.threads.len() as u32;
        for (thread, _) in self.threads {
            thread.join().map_err(|_| AgentError::new("a hog has panicked"))?;
        }
        Ok(WorkloadResult::Hogs {
            name: self.name,
            threads,
            busy_ns: closed.busy_ns - opened.busy_ns,
            window_ns: closed.now_ns - opened.now_ns,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Hog {
    delay: Duration,
    load_percent: u64,
    spin: Spin,
}

impl Hog {
    fn run(self, gate: Gate) {
        gate.arrive();
        thread::sleep(self.delay);
        match self.load_percent {
            100 => self.burn(gate),
            _ => self.burn_in_slices(gate),
        }
    }

    fn burn(self, gate: Gate) {
        while !gate.is_over() {
            spin(self.spin, BATCH);
        }
    }

    fn burn_in_slices(self, gate: Gate) {
        let batch = match self.spin {
            Spin::Hint => HINT_SLICE_BATCH,
            Spin::Plain => BATCH,
        };
        let mut owed_ns = 0_i64;
        while !gate.is_over() {
            let begin = clock_ns();
            while clock_ns() - begin < SLICE_NS && !gate.is_over() {
                spin(self.spin, batch);
            }
            let busy_until = clock_ns();
            owed_ns += sleep_for(busy_until - begin, self.load_percent) as i64;
            if 0 < owed_ns {
                thread::sleep(Duration::from_nanos(owed_ns.unsigned_abs()));
            }
            owed_ns -= (clock_ns() - busy_until) as i64;
        }
    }
}

/// How long to sleep after so much work for this load.
fn sleep_for(busy_ns: u64, load_percent: u64) -> u64 {
    busy_ns * (100 - load_percent) / load_percent
}

/// Keeps the CPU busy for so many turns of a loop.
pub(crate) fn spin(kind: Spin, turns: u32) {
    match kind {
        Spin::Hint => (0..turns).for_each(|_| yield_hint()),
        Spin::Plain => {
            let mut number = black_box(1_u64);
            for _ in 0..turns {
                number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(busy_ns: u64, load_percent: u64, expected: u64) {
        assert_eq!(sleep_for(busy_ns, load_percent), expected);
    }

    #[test]
    fn sleeps_fit_the_load() {
        check(2_000_000, 50, 2_000_000);
        check(2_000_000, 80, 500_000);
        check(2_000_000, 1, 198_000_000);
    }
}
