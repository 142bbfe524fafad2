// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two partners that wake each other in turn, and measure how long each wake-up takes.
//!
//! A sample is the time from just before the waker's call to the first instruction of the woken partner:
//! the waker writes the time into shared memory and makes the call; the partner reads the clock as soon
//! as its own call has come back. So a sample holds both system calls' parts of the way, the choice of
//! the CPU, the interrupt to it and the switch. Every exchange is two wake-ups, and so two samples.
//!
//! Each wake-up shall find a sleeper. A partner announces in shared memory that it is about to wait, and
//! the other makes its call only then; while it has to wait for that, it yields the CPU if both share
//! one, and spins if not. A futex even says whether it has woken somebody: if not, the sample begins
//! anew with another call. Of the other channels, a partner that was stopped between its announcement and
//! its sleep finds its token without sleeping; the sample then holds what stopped it. With
//! `sched_yield(2)` nobody sleeps; the sample ends when the partner sees the word changed.
//!
//! The measured path makes no other system call (the vDSO serves the clock) and allocates nothing. The
//! first partner leads: it exchanges until the window opens, then for the rounds that are counted, and
//! then once more to send the second one off, so that no partner ends while the other still measures.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use twinboot_protocol::{Counters, Histogram, Partners, Pingpong, WorkloadResult};

use super::channel::{self, Line};
use super::gate::Gate;
use super::{Worker, start_thread};
use crate::error::{AgentError, Context};
use crate::sys::{self, Child, Tally, clock_ns};

/// How many workers one ping-pong has.
pub(super) const PARTNERS: u32 = 2;

sys::shared_struct! {
    /// What the partners share.
    #[derive(Debug)]
    #[repr(C)]
    struct Table {
        places: [Place; 2],
        /// Whether the second partner is to count its samples.
        measuring: AtomicBool,
        /// Whether the next wake-up is the second partner's last.
        leaving: AtomicBool,
        opened_ns: AtomicU64,
        closed_ns: AtomicU64,
    }
}

sys::shared_struct! {
    /// One partner's side of the table, in cache lines of its own.
    #[derive(Debug)]
    #[repr(C, align(128))]
    struct Place {
        /// What it sleeps on.
        word: AtomicU32,
        /// It is about to sleep.
        waiting: AtomicBool,
        /// When the other one began to wake it.
        stamp_ns: AtomicU64,
        tally: Tally,
    }
}

/// A ping-pong that was started.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    expected: u64,
    table: &'static Table,
    partners: [Handle; 2],
}

#[derive(Debug)]
enum Handle {
    Thread(JoinHandle<()>),
    Process(Child),
}

/// Starts both partners; they wait at the gate. Partners that are processes have to be started before the
/// first thread.
pub(super) fn start(orders: &Pingpong, workload: usize, gate: Gate) -> Result<Running, AgentError> {
    let table: &Table = sys::shared().context("map shared memory")?;
    let lines = channel::lines(orders.via, orders.between).context("make a channel")?;
    let [first, second] = lines;
    let partner = |line, me: usize| Partner {
        line,
        own: &table.places[me],
        other: &table.places[1 - me],
        same_cpu: orders.cpus[0] == orders.cpus[1],
    };
    let worker = |me: usize| Worker { cpu: orders.cpus[me], workload, gate };
    let (leader, follower) = (partner(first, 0), partner(second, 1));
    let rounds = orders.rounds;
    let lead = move |gate| leader.lead(table, rounds, gate);
    let follow = move |gate| follower.follow(table, gate);
    let partners = match orders.between {
        Partners::Threads => {
            [start_thread(worker(0), lead)?, start_thread(worker(1), follow)?].map(Handle::Thread)
        }
        Partners::Processes => {
            [start_process(worker(0), lead)?, start_process(worker(1), follow)?].map(Handle::Process)
        }
    };
    Ok(Running { name: orders.name.clone(), expected: 2 * rounds, table, partners })
}

impl Running {
    /// What was measured, after the window has closed.
    pub(super) fn result(self) -> Result<WorkloadResult, AgentError> {
        for partner in self.partners {
            partner.join()?;
        }
        let mut latency = Histogram::new();
        for place in &self.table.places {
            let tally = place.tally.borrow().ok_or_else(|| AgentError::new("a partner kept its samples"))?;
            latency.merge(&Histogram::from(&*tally));
        }
        let [opened, closed] =
            [&self.table.opened_ns, &self.table.closed_ns].map(|time| time.load(Ordering::Acquire));
        Ok(WorkloadResult::Pingpong {
            name: self.name,
            expected: self.expected,
            latency,
            window_ns: closed.saturating_sub(opened),
        })
    }
}

impl Handle {
    fn join(self) -> Result<(), AgentError> {
        match self {
            Self::Thread(thread) => thread.join().map_err(|_| AgentError::new("a partner has panicked")),
            Self::Process(child) => match sys::wait_for(child).context("wait for a partner process")? {
                0 => Ok(()),
                status => Err(AgentError::new(format!("a partner process ended with status {status}"))),
            },
        }
    }
}

fn start_process(worker: Worker, work: impl FnOnce(Gate) -> io::Result<()>) -> Result<Child, AgentError> {
    sys::fork(|| {
        // Best effort, as in the parent: what is locked there is not locked here.
        let _ = sys::lock_memory();
        worker.run(work);
        0
    })
    .context("start a partner process")
}

/// One of the two, seen from itself.
#[derive(Debug)]
struct Partner {
    line: Line,
    own: &'static Place,
    other: &'static Place,
    same_cpu: bool,
}

impl Partner {
    fn lead(&self, table: &Table, rounds: u64, gate: Gate) -> io::Result<()> {
        let mut tally = self.own.tally.borrow().ok_or(io::ErrorKind::ResourceBusy)?;
        gate.arrive();
        while !gate.is_open() {
            self.exchange()?;
        }
        table.measuring.store(true, Ordering::Release);
        table.opened_ns.store(clock_ns(), Ordering::Release);
        self.measure(rounds, &mut tally)?;
        table.closed_ns.store(clock_ns(), Ordering::Release);
        table.leaving.store(true, Ordering::Release);
        self.wake()?;
        drop(tally);
        gate.finish();
        Ok(())
    }

    fn measure(&self, rounds: u64, tally: &mut Counters) -> io::Result<()> {
        for _ in 0..rounds {
            tally.record(self.exchange()?);
        }
        Ok(())
    }

    fn follow(&self, table: &Table, gate: Gate) -> io::Result<()> {
        let mut tally = self.own.tally.borrow().ok_or(io::ErrorKind::ResourceBusy)?;
        gate.arrive();
        loop {
            let latency = self.wait()?;
            if table.leaving.load(Ordering::Acquire) {
                break;
            }
            if table.measuring.load(Ordering::Acquire) {
                tally.record(latency);
            }
            self.wake()?;
        }
        drop(tally);
        gate.finish();
        Ok(())
    }

    /// Wakes the other one and waits to be woken; gives how long the latter took, in nanoseconds.
    #[inline]
    fn exchange(&self) -> io::Result<u64> {
        self.wake()?;
        self.wait()
    }

    #[inline]
    fn wake(&self) -> io::Result<()> {
        loop {
            while !self.other.waiting.load(Ordering::Acquire) {
                self.give_way();
            }
            self.other.stamp_ns.store(clock_ns(), Ordering::Release);
            if self.line.wake(&self.other.word)? {
                return Ok(());
            }
            self.give_way();
        }
    }

    #[inline]
    fn wait(&self) -> io::Result<u64> {
        self.own.waiting.store(true, Ordering::Release);
        self.line.wait(&self.own.word)?;
        let now = clock_ns();
        self.own.waiting.store(false, Ordering::Release);
        Ok(now.saturating_sub(self.own.stamp_ns.load(Ordering::Acquire)))
    }

    /// Lets the other one come to its sleep.
    #[inline]
    fn give_way(&self) {
        if self.same_cpu {
            thread::yield_now();
        } else {
            sys::yield_hint();
        }
    }
}
