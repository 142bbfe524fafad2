// SPDX-License-Identifier: MIT OR Apache-2.0
//! What carries a wake-up from one partner to the other: each [`Channel`] as two lines, one for each
//! partner. A line makes the one system call that is measured and nothing else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use twinboot_protocol::{Channel, Partners};

use crate::sys::{self, FutexScope};

/// One partner's end of a channel.
#[derive(Debug)]
pub(super) enum Line {
    /// The word never changes: what wakes the sleeper is the call alone.
    Futex(FutexScope),
    /// Data comes out of one descriptor; other data goes into another one (or the same).
    Descriptors {
        from: File,
        to: File,
        token: Token,
    },
    Yield,
}

/// How much an exchange transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Byte,
    /// An eventfd's count.
    Count,
}

/// The two ends of a new channel.
pub(super) fn lines(channel: Channel, between: Partners) -> io::Result<[Line; 2]> {
    let line = |from, to, token| Line::Descriptors { from, to, token };
    Ok(match channel {
        Channel::Futex => {
            let scope = match between {
                Partners::Threads => FutexScope::Process,
                Partners::Processes => FutexScope::Shared,
            };
            [Line::Futex(scope), Line::Futex(scope)]
        }
        Channel::Pipe => {
            let ((from_second, to_first), (from_first, to_second)) = (sys::pipe()?, sys::pipe()?);
            [line(from_second, to_second, Token::Byte), line(from_first, to_first, Token::Byte)]
        }
        Channel::Eventfd => {
            let (first, second) = (sys::eventfd()?, sys::eventfd()?);
            [line(first.try_clone()?, second.try_clone()?, Token::Count), line(second, first, Token::Count)]
        }
        Channel::Socketpair => {
            let (first, second) = UnixStream::pair()?;
            let end = |socket: UnixStream| {
                let descriptor = OwnedFd::from(socket);
                Ok::<_, io::Error>(line(descriptor.try_clone()?.into(), descriptor.into(), Token::Byte))
            };
            [end(first)?, end(second)?]
        }
        Channel::Yield => [Line::Yield, Line::Yield],
    })
}

impl Line {
    /// Wakes the partner, whose word this is. Whether it was there to be woken; if not, the call had no
    /// effect and is to be made again.
    #[inline]
    pub(super) fn wake(&self, partner: &AtomicU32) -> io::Result<bool> {
        match self {
            Self::Futex(scope) => Ok(sys::futex_wake(partner, 1, *scope) == 1),
            Self::Descriptors { to, token, .. } => {
                (&*to).write_all(&1_u64.to_ne_bytes()[..token.length()]).map(|()| true)
            }
            Self::Yield => {
                partner.store(1, Ordering::Release);
                Ok(true)
            }
        }
    }

    /// Waits until the partner wakes this side, whose word this is.
    #[inline]
    pub(super) fn wait(&self, own: &AtomicU32) -> io::Result<()> {
        match self {
            Self::Futex(scope) => while !sys::futex_wait(own, 0, *scope) {},
            Self::Descriptors { from, token, .. } => {
                let mut buffer = [0; size_of::<u64>()];
                if (&*from).read(&mut buffer[..token.length()])? == 0 {
                    // The partner's end is closed.
                    return Err(io::Error::from_raw_os_error(libc::EPIPE));
                }
            }
            Self::Yield => {
                while own.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                    // For an emulator, where a partner on another CPU has no turn while this one spins.
                    sys::yield_hint();
                }
                own.store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl Token {
    fn length(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Count => size_of::<u64>(),
        }
    }
}
