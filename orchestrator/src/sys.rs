// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's only unsafe code: what the standard library has no safe call for.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Prepares a child so that it is killed when the thread that started it ends, and keeps the given
/// descriptors open under their numbers.
///
/// Twinboot's runtime has one thread, the main one, so "the thread ends" is "Twinboot ends", by whatever
/// signal.
pub(crate) fn bind_to_parent(command: &mut tokio::process::Command, keep: Vec<OwnedFd>) {
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls (prctl,
    // getppid, fcntl); it allocates nothing.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have ended before the call above.
            if libc::getppid().unsigned_abs() != parent {
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
            for descriptor in &keep {
                check(libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0))?;
            }
            Ok(())
        });
    }
}

/// Kills a whole process group; it may be gone already.
pub(crate) fn kill_group(leader: u32) {
    let Ok(group) = libc::pid_t::try_from(leader) else { return };
    // SAFETY: kill takes two integers and touches no memory of ours.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Asks for a send buffer of `bytes`; the kernel gives what its limit allows.
pub(crate) fn set_send_buffer(socket: RawFd, bytes: libc::c_int) {
    // SAFETY: the pointer is to a live c_int and the length is its size.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// The effective user id.
pub(crate) fn user_id() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Bytes free for this user on the file system that holds `path`.
pub(crate) fn free_bytes(path: &std::path::Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain integers, for which zeroes are valid.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values, the path ends with a zero byte.
    check(unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) })?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
