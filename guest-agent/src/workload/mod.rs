// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs what the orders ask for, once: starts all workers, lets them warm up, opens the window, and
//! gathers what was measured when it has closed. While the window is open, the main thread sleeps and
//! nothing is sent. The seed moves start phases within a few milliseconds and does nothing else.

mod channel;
mod gate;
mod hogs;
mod pingpong;
mod random;

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use twinboot_protocol::{Message, Partners, Phase, Trial, Workload, WorkloadResult};

use crate::error::{AgentError, Context};
use crate::link::Link;
use crate::sys::{self, clock_ns};
use gate::{Gate, Interruption};
use hogs::Reading;
pub(crate) use hogs::{BATCH as SPIN_BATCH, spin};
use random::Random;

/// Hogs start, and the window opens, up to so much later, as the seed has it.
const START_SPREAD_NS: u64 = 4_000_000;

/// How long before the window the main thread falls silent, so that neither its last system calls nor
/// the port's interrupt reach into the window.
const SILENCE_NS: u64 = 1_000_000;

/// Enough for a worker; small, since there may be a thousand and all of it is locked.
const STACK_BYTES: usize = 64 << 10;

/// A workload that was started.
#[derive(Debug)]
enum Running {
    Pingpong(pingpong::Running),
    Hogs(hogs::Running),
}

/// Carries a trial's workloads out and sends phases and results; gives how many results.
pub(crate) fn run(trial: &Trial, online: &[u32], link: &Link) -> Result<u32, AgentError> {
    let workloads = &trial.workloads;
    check_cpus(workloads, online)?;
    stand_aside(workloads)?;
    sys::notice_children().context("install a signal handler")?;
    let mut random = Random::new(trial.seed);
    let explain = |interruption| explain(interruption, workloads);

    let gate = make_gate(workloads)?;
    let started = start_all(workloads, gate, &mut random)?;
    gate.wait_for_arrivals().map_err(explain)?;
    // Best effort: an ordinary process may not be allowed to.
    let _ = sys::lock_memory();
    link.send(phase(Phase::Armed))?;

    link.send(phase(Phase::WarmUp))?;
    gate.start();
    thread::sleep(Duration::from_nanos(trial.warm_up_ns + random.below(START_SPREAD_NS)));

    link.send(phase(Phase::WindowOpen))?;
    let opened: Vec<Reading> = started.iter().map(Running::read).collect();
    gate.open_at(clock_ns() + SILENCE_NS);
    gate.wait_for_finish().map_err(explain)?;
    let closed: Vec<Reading> = started.iter().map(Running::read).collect();
    let window_closed = phase(Phase::WindowClosed);
    gate.close();
    link.send(window_closed)?;

    let count = started.len() as u32;
    for (running, (opened, closed)) in started.into_iter().zip(opened.into_iter().zip(closed)) {
        link.send(Message::Result(Box::new(running.result(opened, closed)?)))?;
    }
    Ok(count)
}

impl Running {
    /// The CPU time of its hogs, of which there may be none.
    fn read(&self) -> Reading {
        match self {
            Self::Pingpong(_) => Reading::default(),
            Self::Hogs(hogs) => hogs.read(),
        }
    }

    fn result(self, opened: Reading, closed: Reading) -> Result<WorkloadResult, AgentError> {
        match self {
            Self::Pingpong(pingpong) => pingpong.result(),
            Self::Hogs(hogs) => hogs.result(opened, closed),
        }
    }
}

/// A thread or process that passes the gate.
#[derive(Clone, Copy, Debug)]
struct Worker {
    cpu: u32,
    /// The number of its workload.
    workload: usize,
    gate: Gate,
}

impl Worker {
    /// Does the work on the worker's CPU; a failure reaches the main thread through the gate.
    fn run(self, work: impl FnOnce(Gate) -> io::Result<()>) {
        if let Err(error) = sys::pin(self.cpu).and_then(|()| work(self.gate)) {
            self.gate.fail(self.workload, &error);
        }
    }
}

fn start_thread(
    worker: Worker,
    work: impl FnOnce(Gate) -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<()>, AgentError> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(move || worker.run(work)).context("start a thread")
}

/// Starts everything, in the order of the orders but that processes come first: they must be forked
/// while there is one thread.
fn start_all(workloads: &[Workload], gate: Gate, random: &mut Random) -> Result<Vec<Running>, AgentError> {
    let mut started = Vec::new();
    let (forking, threading): (Vec<_>, Vec<_>) =
        workloads.iter().enumerate().partition(|(_, workload)| forks(workload));
    for (index, workload) in forking.into_iter().chain(threading) {
        let running = match workload {
            Workload::Pingpong(orders) => pingpong::start(orders, index, gate).map(Running::Pingpong),
            Workload::Hogs(orders) => hogs::start(orders, index, gate, random).map(Running::Hogs),
        };
        let running = running.context(format_args!("start workload `{}`", workload.name()))?;
        started.push((index, running));
    }
    started.sort_by_key(|(index, _)| *index);
    Ok(started.into_iter().map(|(_, running)| running).collect())
}

fn forks(workload: &Workload) -> bool {
    matches!(workload, Workload::Pingpong(pingpong) if pingpong.between == Partners::Processes)
}

fn make_gate(workloads: &[Workload]) -> Result<Gate, AgentError> {
    let workers = |workload: &Workload| match workload {
        Workload::Pingpong(_) => pingpong::PARTNERS,
        Workload::Hogs(orders) => hogs::workers(orders),
    };
    let ending = workloads.iter().filter(|workload| workload.ends_by_itself()).map(workers).sum();
    Gate::new(workloads.iter().map(workers).sum(), ending).context("map shared memory")
}

fn check_cpus(workloads: &[Workload], online: &[u32]) -> Result<(), AgentError> {
    for workload in workloads {
        if let Some(cpu) = cpus(workload).iter().find(|cpu| !online.contains(cpu)) {
            let name = workload.name();
            return Err(AgentError::new(format!("workload `{name}` wants CPU {cpu}, which is not online")));
        }
    }
    Ok(())
}

/// Moves the main thread to a CPU that no workload uses, if there is one.
fn stand_aside(workloads: &[Workload]) -> Result<(), AgentError> {
    let mut allowed = sys::allowed_cpus().context("ask for the CPUs of this process")?.into_iter();
    match allowed.find(|cpu| !workloads.iter().any(|workload| cpus(workload).contains(cpu))) {
        Some(free) => sys::pin(free).context(format_args!("move to CPU {free}")),
        None => Ok(()),
    }
}

fn cpus(workload: &Workload) -> &[u32] {
    match workload {
        Workload::Pingpong(orders) => &orders.cpus,
        Workload::Hogs(orders) => &orders.cpus,
    }
}

fn explain(interruption: Interruption, workloads: &[Workload]) -> AgentError {
    match interruption {
        Interruption::Failed { workload, error } => {
            let name = workloads.get(workload).map_or("?", Workload::name);
            AgentError::caused_by(format!("workload `{name}`"), error)
        }
        Interruption::Died { status } => {
            AgentError::new(format!("a partner process died with status {status}"))
        }
    }
}

/// The message that a phase begins now.
fn phase(phase: Phase) -> Message {
    Message::Phase { phase, guest_ns: clock_ns() }
}

#[cfg(test)]
mod tests {
    use twinboot_protocol::{Hogs, Spin};

    use super::*;

    fn hogs(cpus: &[u32]) -> Workload {
        Workload::Hogs(Hogs {
            name: "load".to_owned(),
            cpus: cpus.to_vec(),
            per_cpu: 1,
            load_percent: 100,
            spin: Spin::Plain,
        })
    }

    fn check(cpus: &[u32], online: &[u32], expected: Result<(), &str>) {
        let found = check_cpus(&[hogs(cpus)], online).map_err(|error| error.chain());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn cpus_must_be_online() {
        check(&[0, 2], &[0, 1, 2], Ok(()));
        check(&[0, 3], &[0, 1, 2], Err("workload `load` wants CPU 3, which is not online"));
    }
}
