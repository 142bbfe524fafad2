// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate that all workers of a trial pass together, in memory that they share whether they are
//! threads or processes. The main thread sleeps in one futex while they run, and makes no system call
//! until the last partner has finished, a worker has failed or a process has died.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::sys::{self, FutexScope, clock_ns};

/// Stages of a trial, in the word that workers sleep on.
const ARMING: u32 = 0;
const RUNNING: u32 = 1;
const OVER: u32 = 2;

sys::shared_struct! {
    #[derive(Debug)]
    #[repr(C)]
    struct Shared {
        /// Counts what may let the main thread go on; it sleeps on this word.
        events: AtomicU32,
        /// Workers that have not arrived yet.
        to_arrive: AtomicU32,
        /// Workers that end by themselves and have not finished yet.
        to_finish: AtomicU32,
        stage: AtomicU32,
        /// When the window opens, by the monotonic clock in nanoseconds; 0 while that is not decided.
        opens_at: AtomicU64,
        /// The first failure: the workload's number plus 1 in the upper half, the error number below.
        failure: AtomicU64,
    }
}

/// One trial's gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate(&'static Shared);

/// Why the main thread stops waiting without what it waits for.
#[derive(Debug)]
pub(super) enum Interruption {
    /// A worker of this workload could not go on.
    Failed { workload: usize, error: io::Error },
    /// A partner process has ended with this status, though none should.
    Died { status: i32 },
}

impl Gate {
    /// A gate for so many workers, of which so many end by themselves.
    pub(super) fn new(workers: u32, ending: u32) -> io::Result<Self> {
        let shared: &Shared = sys::shared()?;
        shared.to_arrive.store(workers, Ordering::Release);
        shared.to_finish.store(ending, Ordering::Release);
        Ok(Self(shared))
    }

    /// A worker: is ready, and sleeps until the trial starts.
    pub(super) fn arrive(self) {
        self.count_down(&self.0.to_arrive);
        self.sleep_during(ARMING);
    }

    /// A worker that ends by itself: is through, and sleeps until the window closes. It must not end
    /// before, because tearing it down would disturb those that still measure.
    pub(super) fn finish(self) {
        self.count_down(&self.0.to_finish);
        self.sleep_during(RUNNING);
    }

    /// A worker: cannot go on.
    pub(super) fn fail(self, workload: usize, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        let failure = (workload as u64 + 1) << 32 | u64::from(number);
        // Only the first counts: the others follow from it.
        let _ = self.0.failure.compare_exchange(0, failure, Ordering::AcqRel, Ordering::Relaxed);
        self.tell_main();
    }

    /// Whether the window is open (or was).
    #[inline]
    pub(super) fn is_open(self) -> bool {
        let opens_at = self.0.opens_at.load(Ordering::Acquire);
        opens_at != 0 && opens_at <= clock_ns()
    }

    /// Whether the window is closed, and so everything is to stop.
    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.0.stage.load(Ordering::Acquire) == OVER
    }

    /// The main thread: waits until all workers have arrived.
    pub(super) fn wait_for_arrivals(self) -> Result<(), Interruption> {
        self.wait_for(&self.0.to_arrive)
    }

    /// The main thread: lets all workers start.
    pub(super) fn start(self) {
        self.enter(RUNNING);
    }

    /// The main thread: sets when the window opens.
    pub(super) fn open_at(self, time: u64) {
        self.0.opens_at.store(time, Ordering::Release);
    }

    /// The main thread: waits until all workers that end by themselves have finished.
    pub(super) fn wait_for_finish(self) -> Result<(), Interruption> {
        self.wait_for(&self.0.to_finish)
    }

    /// The main thread: stops all workers.
    pub(super) fn close(self) {
        self.enter(OVER);
    }

    fn enter(self, stage: u32) {
        self.0.stage.store(stage, Ordering::Release);
        sys::futex_wake(&self.0.stage, i32::MAX, FutexScope::Shared);
    }

    fn sleep_during(self, stage: u32) {
        while self.0.stage.load(Ordering::Acquire) == stage {
            sys::futex_wait(&self.0.stage, stage, FutexScope::Shared);
        }
    }

    fn wait_for(self, workers: &AtomicU32) -> Result<(), Interruption> {
        loop {
            let seen = self.0.events.load(Ordering::Acquire);
            if let Some((workload, error)) = self.failure() {
                return Err(Interruption::Failed { workload, error });
            }
            if let Some(ended) = sys::reap() {
                return Err(Interruption::Died { status: ended.status });
            }
            if workers.load(Ordering::Acquire) == 0 {
                return Ok(());
            }
            sys::futex_wait(&self.0.events, seen, FutexScope::Shared);
        }
    }

    fn failure(self) -> Option<(usize, io::Error)> {
        let failure = self.0.failure.load(Ordering::Acquire);
        let workload = (failure >> 32).checked_sub(1)? as usize;
        Some((workload, io::Error::from_raw_os_error(failure as u32 as i32)))
    }

    /// The last of the workers wakes the main thread; the others leave it alone.
    fn count_down(self, workers: &AtomicU32) {
        if workers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.tell_main();
        }
    }

    fn tell_main(self) {
        self.0.events.fetch_add(1, Ordering::AcqRel);
        sys::futex_wake(&self.0.events, 1, FutexScope::Shared);
    }
}
