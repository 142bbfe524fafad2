// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way to the host: messages go as frames into the port (or a file), or condensed onto standard output;
//! a saved guest is given its trial on the same port.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use twinboot_protocol::frame::Decoder;
use twinboot_protocol::{Message, Trial, frame, summary};

use crate::error::{AgentError, Context};
use crate::sys;

/// A way to the host, one message at a time.
#[derive(Debug)]
pub(crate) struct Link(Mutex<Sink>);

#[derive(Debug)]
enum Sink {
    Frames { port: File, sequence: u32 },
    Summary(Vec<Message>),
}

impl Link {
    /// Sends frames.
    pub(crate) fn frames(port: File) -> Self {
        Self(Mutex::new(Sink::Frames { port, sequence: 0 }))
    }

    /// Prints a summary when the last message has come.
    pub(crate) fn summary() -> Self {
        Self(Mutex::new(Sink::Summary(Vec::new())))
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), AgentError> {
        self.lock().send(message).context("send a message to the host")
    }

    /// Waits for the trial that the host sends.
    pub(crate) fn receive(&self) -> Result<Trial, AgentError> {
        self.lock().receive().context("receive the trial from the host")
    }

    /// Tells the host why nothing more will come, and sees to it that nothing does. Never comes back.
    pub(crate) fn fail_forever(&self, reason: String) -> ! {
        let mut sink = self.lock();
        let _ = sink.send(Message::Failed { reason });
        sys::pause_forever()
    }

    /// Whether nobody is sending now, not even the caller.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.try_lock().is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    fn send(&mut self, message: Message) -> io::Result<()> {
        match self {
            Self::Frames { port, sequence } => {
                port.write_all(&frame::encode(*sequence, &message))?;
                *sequence += 1;
            }
            Self::Summary(messages) => {
                let is_last = matches!(message, Message::Done { .. } | Message::Failed { .. });
                messages.push(message);
                if is_last {
                    writeln!(io::stdout(), "{}", summary(messages))?;
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Trial> {
        let Self::Frames { port, .. } = self else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "there is no port to receive from"));
        };
        let mut decoder = Decoder::<Trial>::new();
        let mut buffer = [0; 4096];
        loop {
            match port.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => decoder.push(&buffer[..count]),
            }
            if let Some((_, trial)) = decoder.next().map_err(io::Error::other)? {
                return Ok(trial);
            }
        }
    }
}
