// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's only unsafe code: what the standard library has no safe call for. Each function is safe
//! to call; nothing here knows why it is called.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::os::unix::thread::JoinHandleExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::{mem, process, ptr};

use twinboot_protocol::Counters;

/// `CLOCK_MONOTONIC` in nanoseconds. No system call where the vDSO serves the clock source.
#[inline]
pub(crate) fn clock_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// The clock that counts one thread's CPU time. Of use while that thread lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    pub(crate) fn of<T>(thread: &JoinHandle<T>) -> io::Result<Self> {
        let mut id = 0;
        // SAFETY: the handle keeps the pthread_t valid (neither joined nor detached), `id` is live.
        match unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut id) } {
            0 => Ok(Self(id)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// CPU time so far, in nanoseconds.
    pub(crate) fn read(self) -> u64 {
        read_clock(self.0)
    }
}

#[inline]
fn read_clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live. The call fails only for a clock that does not exist, and leaves it zero.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    let cpu = cpu as usize;
    if 8 * size_of::<libc::cpu_set_t>() <= cpu {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is plain bits, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` is within the set, as checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is to a live set of the size given.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// The CPUs that the calling thread may run on, in order.
pub(crate) fn allowed_cpus() -> io::Result<Vec<u32>> {
    allowed_cpus_of(0)
}

/// The CPUs that a thread of any process may run on, in order; 0 is the calling one.
pub(crate) fn allowed_cpus_of(thread: u32) -> io::Result<Vec<u32>> {
    // SAFETY: cpu_set_t is plain bits, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live set of the size given.
    check(unsafe { libc::sched_getaffinity(thread as libc::pid_t, size_of_val(&set), &raw mut set) })?;
    // SAFETY: every number is within the set.
    let allowed = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
    Ok((0..8 * size_of_val(&set) as u32).filter(allowed).collect())
}

/// Loads all memory that the process has mapped and keeps it. Needs a privilege or a high limit.
pub(crate) fn lock_memory() -> io::Result<()> {
    // SAFETY: the call takes flags only and does not change what memory holds.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT) })
}

/// Tells the processor, or its emulator, that this CPU only waits: the CPU's turn ends, while Linux still
/// sees a busy task.
#[inline]
pub(crate) fn yield_hint() {
    // On aarch64 the standard library's hint is `isb`, which ends no turn.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register, no flag and no memory.
    unsafe {
        std::arch::asm!("yield", options(nomem, nostack, preserves_flags));
    }
    // There it has none at all for POWER.
    #[cfg(target_arch = "powerpc64")]
    power_yield();
    #[cfg(not(any(target_arch = "aarch64", target_arch = "powerpc64")))]
    std::hint::spin_loop();
}

/// `or 27,27,27`, "the program will probably benefit from yielding" (Power ISA, Book II, "Program Priority
/// Registers"), as a function in machine code: inline assembly for this architecture is not stable in the
/// oldest Rust that builds the agent.
#[cfg(target_arch = "powerpc64")]
#[inline]
fn power_yield() {
    // `or 27,27,27` and `blr`.
    #[unsafe(link_section = ".text.power_yield")]
    static CODE: [u32; 2] = [0x7f7b_db78, 0x4e80_0020];
    // SAFETY: ELFv2 function pointers are addresses of code. This function has no argument, uses no stack and
    // no table of contents, and leaves every register as it was.
    let code: extern "C" fn() = unsafe { std::mem::transmute(CODE.as_ptr()) };
    code();
}

/// Who shares a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FutexScope {
    /// Threads of this process.
    Process,
    /// All processes that map the word.
    Shared,
}

impl FutexScope {
    fn flag(self) -> libc::c_int {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps until woken, if the word still holds `value`. Whether it was woken: not so when the word held
/// something else or a signal came.
#[inline]
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, scope: FutexScope) -> bool {
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: the word is live and aligned for the whole call; no timeout is given.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | scope.flag(), value, forever)
    };
    result == 0
}

/// Wakes at most `count` sleepers; gives how many.
#[inline]
pub(crate) fn futex_wake(word: &AtomicU32, count: i32, scope: FutexScope) -> u32 {
    // SAFETY: the kernel uses the address of the word, which is live, and not what it holds.
    let woken =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), count) };
    u32::try_from(woken).unwrap_or(0)
}

/// Memory that lives as long as the process and that children of [`fork`] share with it.
pub(crate) fn shared<T: ZeroIsValid>() -> io::Result<&'static T> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), size_of::<T>(), protection, flags | libc::MAP_POPULATE, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is never removed, is aligned to a page, large enough, and filled with zeroes,
    // which `T` accepts. Whatever changes in it is inside of cells and atomics, as T: Sync demands.
    Ok(unsafe { &*address.cast::<T>() })
}

/// Types that are valid when all their bytes are zero, and that several threads and processes may use.
///
/// # Safety
/// Both must be so, and the type must hold no address: processes need not agree on those.
pub(crate) unsafe trait ZeroIsValid: Sync {}

// SAFETY: integers, in an atomic; zero is valid.
unsafe impl ZeroIsValid for AtomicU32 {}
// SAFETY: as above.
unsafe impl ZeroIsValid for AtomicU64 {}
// SAFETY: a byte that is 0 or 1, in an atomic.
unsafe impl ZeroIsValid for AtomicBool {}
// SAFETY: an array of what is valid.
unsafe impl<T: ZeroIsValid, const N: usize> ZeroIsValid for [T; N] {}
// SAFETY: a flag and plain counters, for which zeroes are documented to be valid; borrowed by one at a
// time.
unsafe impl ZeroIsValid for Tally {}

/// Defines a struct for [`shared`] memory out of fields that may lie there.
macro_rules! shared_struct {
    ($(#[$attribute:meta])* struct $name:ident { $($(#[$note:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        struct $name { $($(#[$note])* $field: $type,)* }

        const _: fn() = || {
            fn checked<T: $crate::sys::ZeroIsValid>() {}
            $(checked::<$type>();)*
        };

        // SAFETY: the compiler has just checked that it holds for every field.
        unsafe impl $crate::sys::ZeroIsValid for $name {}
    };
}
pub(crate) use shared_struct;

/// Counters in shared memory, borrowed by one thread of one process at a time.
#[derive(Debug)]
pub(crate) struct Tally {
    borrowed: AtomicBool,
    counters: UnsafeCell<Counters>,
}

// SAFETY: the counters are reachable through a `TallyGuard` alone, and the flag lets only one exist.
unsafe impl Sync for Tally {}

/// The right to use a [`Tally`]; ends when dropped.
#[derive(Debug)]
pub(crate) struct TallyGuard<'a>(&'a Tally);

impl Tally {
    /// Borrows the counters, unless somebody has them.
    pub(crate) fn borrow(&self) -> Option<TallyGuard<'_>> {
        let taken = self.borrowed.swap(true, Ordering::Acquire);
        (!taken).then_some(TallyGuard(self))
    }
}

impl Deref for TallyGuard<'_> {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        // SAFETY: no other guard exists while this one does.
        unsafe { &*self.0.counters.get() }
    }
}

impl DerefMut for TallyGuard<'_> {
    fn deref_mut(&mut self) -> &mut Counters {
        // SAFETY: no other guard exists while this one does, and this one is borrowed mutably.
        unsafe { &mut *self.0.counters.get() }
    }
}

impl Drop for TallyGuard<'_> {
    fn drop(&mut self) {
        self.0.borrowed.store(false, Ordering::Release);
    }
}

/// A pipe: its reading end and its writing end.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the pointer is to two live integers.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both descriptors are new and nobody else's.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// An eventfd that counts from 0.
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: the call takes integers only.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    check(descriptor)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A child process that [`fork`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child(libc::pid_t);

/// Runs `work` in a new process that ends with what it returns as exit status, and with its parent. To
/// be called before the first thread is started: a lock held by another thread would stay held.
pub(crate) fn fork(work: impl FnOnce() -> u8) -> io::Result<Child> {
    let parent = process::id();
    // SAFETY: no other thread exists, so the child finds all of its memory in order.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: prctl takes integers here, getppid nothing.
            let orphan = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::getppid().unsigned_abs() != parent
            };
            let status = if orphan { 1 } else { work() };
            // SAFETY: _exit runs nothing of what the parent has registered for its own end.
            unsafe { libc::_exit(status.into()) }
        }
        id => Ok(Child(id)),
    }
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) child: Child,
    /// The exit status, or 128 and the number of the signal, as shells have it.
    pub(crate) status: i32,
}

/// Reaps one ended child if there is any.
pub(crate) fn reap() -> Option<Ended> {
    // A child of number 0 says that all still run.
    wait(-1, libc::WNOHANG).ok().filter(|ended| ended.child.0 != 0)
}

/// Waits until any child has ended; fails when there is none.
pub(crate) fn wait_for_any() -> io::Result<Ended> {
    wait(-1, 0)
}

/// Waits until this child has ended; gives its status.
pub(crate) fn wait_for(child: Child) -> io::Result<i32> {
    wait(child.0, 0).map(|ended| ended.status)
}

fn wait(child: libc::pid_t, flags: libc::c_int) -> io::Result<Ended> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        let id = unsafe { libc::waitpid(child, &raw mut status, flags) };
        match check(id) {
            // The end of a child sends the signal of `notice_children`, too.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) if libc::WIFSIGNALED(status) => {
                return Ok(Ended { child: Child(id), status: 128 + libc::WTERMSIG(status) });
            }
            Ok(()) => return Ok(Ended { child: Child(id), status: libc::WEXITSTATUS(status) }),
        }
    }
}

impl From<&process::Child> for Child {
    fn from(child: &process::Child) -> Self {
        Self(child.id() as libc::pid_t)
    }
}

/// Lets the end of a child interrupt what the main thread sleeps in.
pub(crate) fn notice_children() -> io::Result<()> {
    extern "C" fn ignore(_signal: libc::c_int) {}
    // SAFETY: sigaction is plain data, for which zeroes are valid: no flags (so no restart), empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the pointer is to a live action whose handler does nothing at all.
    check(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut()) })
}

/// What uname(2) tells.
#[derive(Debug)]
pub(crate) struct Uname {
    pub(crate) release: String,
    pub(crate) version: String,
    pub(crate) machine: String,
}

pub(crate) fn uname() -> io::Result<Uname> {
    // SAFETY: utsname is arrays of characters, for which zeroes are valid.
    let mut name: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live value.
    check(unsafe { libc::uname(&raw mut name) })?;
    // SAFETY: the kernel has ended each field with a zero byte.
    let text = |field: &[libc::c_char]| unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into();
    Ok(Uname { release: text(&name.release), version: text(&name.version), machine: text(&name.machine) })
}

/// The kernel's log as far as its buffer holds it.
pub(crate) fn kernel_log() -> io::Result<Vec<u8>> {
    const READ_ALL: libc::c_int = 3;
    const SIZE_BUFFER: libc::c_int = 10;
    // SAFETY: this action ignores the pointer.
    let size = unsafe { libc::klogctl(SIZE_BUFFER, ptr::null_mut(), 0) };
    check(size)?;
    let mut log = vec![0; size.unsigned_abs() as usize];
    // SAFETY: the pointer is to as many live bytes as the length says.
    let length = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), size) };
    check(length)?;
    log.truncate(length.unsigned_abs() as usize);
    Ok(log)
}

/// Makes all that the kernel's random numbers give from now on follow from `seed` and from what they were made
/// of before. Takes a privilege.
pub(crate) fn seed_random(seed: u64) -> io::Result<()> {
    #[repr(C)]
    struct Entropy {
        bits: libc::c_int,
        bytes: libc::c_int,
        seed: [u8; 8],
    }
    // `_IOW('R', 0x03, int[2])` and `_IO('R', 0x07)` of linux/random.h.
    let add = libc::_IOW::<[libc::c_int; 2]>(b'R'.into(), 0x03);
    let reseed = libc::_IO(b'R'.into(), 0x07);
    let entropy = Entropy { bits: 64, bytes: 8, seed: seed.to_le_bytes() };
    let device = File::options().write(true).open("/dev/urandom")?;
    // SAFETY: the call reads a live rand_pool_info of as many bytes as it says. The second takes no argument.
    unsafe {
        check(libc::ioctl(device.as_raw_fd(), add, &raw const entropy))?;
        check(libc::ioctl(device.as_raw_fd(), reseed))
    }
}

/// Mounts a file system that has no device.
pub(crate) fn mount(kind: &str, target: &str) -> io::Result<()> {
    let (kind, target) = (CString::new(kind)?, CString::new(target)?);
    // SAFETY: the strings are live and end with a zero byte; no data is given.
    check(unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, ptr::null()) })
}

/// Makes a command the leader of its own session, with its standard input as controlling terminal.
pub(crate) fn lead_session(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls. It takes
    // no note of errors: a shell without job control is better than none.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
}

/// Waits forever without using the CPU.
pub(crate) fn pause_forever() -> ! {
    loop {
        // SAFETY: pause takes nothing and touches no memory of ours.
        unsafe { libc::pause() };
    }
}

/// Writes out what is not yet written, and powers the machine off. Comes back only when that failed.
pub(crate) fn power_off() -> io::Error {
    // SAFETY: both calls take no pointers.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    io::Error::last_os_error()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
