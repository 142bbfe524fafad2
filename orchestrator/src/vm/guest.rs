// SPDX-License-Identifier: MIT OR Apache-2.0
//! One guest from start to end: starts QEMU, listens to console, port and QMP at once, and ends QEMU
//! when the agent is done, a fault is clear, or nothing comes any more. A guest can also be saved when its agent
//! is ready, and restored for each trial. It judges no figures.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use twinboot_protocol::frame::{self, Decoder};
use twinboot_protocol::{Message, Phase, Trial};

use super::deadline::{Limits, stretch};
use super::fault::{Fault, FaultClass, Report, Stage, cause, classify_line, strip_stamp};
use super::qemu::{Channels, Console, GuestSpec, arguments};
use super::qmp::{Qmp, QmpEvent};
use super::stuck;
use crate::process::{self, ProcessError, Running};
use crate::sys;

/// The host could not even try.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error("make a channel to QEMU")]
    Channel(#[source] std::io::Error),
    #[error("save the guest: {why}")]
    Save { why: String },
    #[error("restore the saved guest: {why}")]
    Restore { why: String },
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// What came out of one guest.
#[derive(Debug)]
pub(crate) struct GuestRun {
    /// The agent's messages with their bytes as received.
    pub(crate) messages: Vec<(Vec<u8>, Message)>,
    pub(crate) console: Vec<u8>,
    pub(crate) outcome: Outcome,
    pub(crate) times: Times,
}

/// What was heard of a guest until it was saved.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) messages: Vec<(Vec<u8>, Message)>,
    pub(crate) console: Vec<u8>,
}

/// How a guest ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The completion frame came, and the kernel had nothing to complain of.
    Done,
    /// Anything else.
    Fault(Box<Fault>),
}

/// Wall times since QEMU's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The agent's first frame, of a guest that has booted.
    pub(crate) hello: Option<Duration>,
    /// The saved state was in place.
    pub(crate) restored: Option<Duration>,
    pub(crate) end: Duration,
}

/// What an observer hears while a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Hello,
    Phase(Phase),
}

/// After a fault, its text is still being written; this long without a byte means it is whole.
const TEXT_SETTLES: Duration = Duration::from_millis(700);

/// How many console lines stand in a fault.
const TAIL_LINES: usize = 50;

/// Runs one guest to its end.
pub(crate) async fn run(
    guest: &GuestSpec,
    limits: Limits,
    mut observe: impl FnMut(Sign),
) -> Result<GuestRun, GuestError> {
    let mut live = Live::start(guest)?;
    live.qmp.begin().await;
    let ending = live.listen(limits, &mut observe).await;
    Ok(live.conclude(guest, ending).await)
}

/// Boots a guest until its agent is ready for a trial, and saves it to a file. What comes back otherwise is the
/// guest that came to nothing.
pub(crate) async fn save(
    guest: &GuestSpec,
    state: &Path,
    limits: Limits,
) -> Result<Result<Saved, GuestRun>, GuestError> {
    let mut live = Live::start(guest)?;
    live.qmp.begin().await;
    let ending = live.listen(limits, &mut |_| ()).await;
    if !matches!(ending, Ending::Ready) {
        return Ok(Err(live.conclude(guest, ending).await));
    }
    live.qmp.save(state).await.map_err(|why| GuestError::Save { why })?;
    live.qemu.kill().await;
    Ok(Ok(Saved { messages: live.messages, console: live.console }))
}

/// Restores a saved guest and runs a trial in it. The trial lies in the port before the guest's clock goes on,
/// so that it comes at the same nanosecond each time.
pub(crate) async fn resume(
    guest: &GuestSpec,
    saved: Saved,
    state: &Path,
    trial: &Trial,
    limits: Limits,
    mut observe: impl FnMut(Sign),
) -> Result<GuestRun, GuestError> {
    let mut live = Live::start(guest)?;
    live.qmp.begin().await;
    live.hear_console(&saved.console);
    live.stage = Stage::Agent;
    live.decoder = Decoder::waiting_for(u32::try_from(saved.messages.len()).unwrap_or(u32::MAX));
    live.messages = saved.messages;
    let restored = async {
        live.qmp.restore(state).await?;
        live.port.write_all(&frame::encode(0, trial)).await.map_err(|error| error.to_string())?;
        live.qmp.go_on().await
    };
    if let Err(why) = restored.await {
        live.qemu.kill().await;
        let complaint = live.complaint().await;
        return Err(GuestError::Restore { why: if complaint.is_empty() { why } else { complaint } });
    }
    live.restored = Some(live.started.elapsed());
    let ending = live.listen(limits, &mut observe).await;
    Ok(live.conclude(guest, ending).await)
}

/// Why listening stopped.
enum Ending {
    Done,
    /// The agent is ready for a trial, and the machine stands still.
    Ready,
    Failed(String),
    Silent {
        waited: Duration,
    },
    Overdue {
        lived: Duration,
    },
    Faulted,
    DamagedFrames(String),
    Exited,
}

/// A running guest and what was heard of it.
struct Live {
    qemu: Running,
    console_stream: UnixStream,
    port: UnixStream,
    qmp: Qmp,
    started: Instant,
    hello: Option<Duration>,
    restored: Option<Duration>,
    stage: Stage,
    console: Vec<u8>,
    /// Bytes of the console that were scanned for faults.
    scanned: usize,
    reported: Vec<Report>,
    decoder: Decoder,
    messages: Vec<(Vec<u8>, Message)>,
    shutdown: Option<String>,
    panicked: bool,
}

impl Live {
    fn start(guest: &GuestSpec) -> Result<Self, GuestError> {
        let (console_stream, console) = channel()?;
        let (port_stream, port) = channel()?;
        let (qmp_stream, qmp) = channel()?;
        let channels =
            Channels { console: console.as_raw_fd(), port: port.as_raw_fd(), qmp: qmp.as_raw_fd() };
        let mut command = process::command(guest.arch.qemu);
        command
            .args(arguments(guest, Console::Channels(channels)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let qemu = process::spawn_keeping(&mut command, vec![console, port, qmp])?;
        Ok(Self {
            qemu,
            console_stream,
            port: port_stream,
            qmp: Qmp::new(qmp_stream),
            started: Instant::now(),
            hello: None,
            restored: None,
            stage: Stage::Boot,
            console: Vec::new(),
            scanned: 0,
            reported: Vec::new(),
            decoder: Decoder::default(),
            messages: Vec::new(),
            shutdown: None,
            panicked: false,
        })
    }

    async fn listen(&mut self, limits: Limits, observe: &mut impl FnMut(Sign)) -> Ending {
        let mut progress = Instant::now();
        let mut console_buffer = vec![0; 1 << 16];
        let mut port_buffer = vec![0; 1 << 16];
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let (mut console_open, mut port_open, mut qmp_open) = (true, true, true);
        loop {
            tokio::select! {
                read = self.console_stream.read(&mut console_buffer), if console_open => match read {
                    Ok(count @ 1..) => {
                        progress = Instant::now();
                        self.hear_console(&console_buffer[..count]);
                    }
                    _ => console_open = false,
                },
                read = self.port.read(&mut port_buffer), if port_open => match read {
                    Ok(count @ 1..) => {
                        progress = Instant::now();
                        self.decoder.push(&port_buffer[..count]);
                        if let Some(ending) = self.hear_port(observe) {
                            return ending;
                        }
                    }
                    _ => port_open = false,
                },
                event = self.qmp.event(), if qmp_open => match event {
                    QmpEvent::Panicked => self.panicked = true,
                    QmpEvent::Shutdown { reason } => self.shutdown = Some(reason),
                    QmpEvent::Stopped if self.is_ready() => return Ending::Ready,
                    QmpEvent::Stopped => {}
                    QmpEvent::Closed => qmp_open = false,
                },
                _ = tick.tick() => {}
            }
            // QEMU closes all three when it ends; only then is everything heard.
            if !console_open && !port_open && !qmp_open {
                return Ending::Exited;
            }
            let silent = progress.elapsed();
            if TEXT_SETTLES < silent
                && self.reported.iter().any(|report| !report.class.lets_the_trial_go_on())
            {
                return Ending::Faulted;
            }
            let stretched = host_stretch();
            if limits.silence.mul_f64(stretched) < silent {
                return Ending::Silent { waited: silent };
            }
            if limits.life.mul_f64(stretched) < self.started.elapsed() {
                return Ending::Overdue { lived: self.started.elapsed() };
            }
        }
    }

    /// Whether the agent waits for a trial.
    fn is_ready(&self) -> bool {
        matches!(self.messages.last(), Some((_, Message::Ready)))
    }

    fn hear_console(&mut self, bytes: &[u8]) {
        self.console.extend_from_slice(bytes);
        while let Some(length) = self.console[self.scanned..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.console[self.scanned..self.scanned + length]);
            if let Some(class) = classify_line(&line) {
                self.reported.push(Report {
                    class,
                    headline: strip_stamp(&line).to_owned(),
                    stage: self.stage,
                });
            }
            self.scanned += length + 1;
        }
    }

    fn hear_port(&mut self, observe: &mut impl FnMut(Sign)) -> Option<Ending> {
        loop {
            let (payload, message) = match self.decoder.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return None,
                Err(error) => return Some(Ending::DamagedFrames(error.to_string())),
            };
            let ending = match &message {
                Message::Hello { .. } => {
                    self.hello = Some(self.started.elapsed());
                    self.stage = Stage::Agent;
                    observe(Sign::Hello);
                    None
                }
                Message::Phase { phase, .. } => {
                    self.stage = match phase {
                        Phase::Armed => Stage::Agent,
                        Phase::WarmUp | Phase::WindowOpen => Stage::Window,
                        Phase::WindowClosed => Stage::Results,
                    };
                    observe(Sign::Phase(*phase));
                    None
                }
                Message::Failed { reason } => Some(Ending::Failed(reason.clone())),
                Message::Done { results } => {
                    let seen = self.messages.iter().filter(|(_, m)| matches!(m, Message::Result(_))).count();
                    Some(if seen == *results as usize {
                        Ending::Done
                    } else {
                        Ending::DamagedFrames(format!("{seen} of {results} results came"))
                    })
                }
                Message::Machine(_) | Message::Isolation(_) | Message::Ready | Message::Result(_) => None,
            };
            self.messages.push((payload, message));
            if ending.is_some() {
                return ending;
            }
        }
    }

    /// Ends QEMU and gives what came out of the guest.
    async fn conclude(mut self, guest: &GuestSpec, ending: Ending) -> GuestRun {
        let outcome = self.outcome(guest, ending).await;
        let times = Times { hello: self.hello, restored: self.restored, end: self.started.elapsed() };
        GuestRun { messages: self.messages, console: self.console, outcome, times }
    }

    /// Ends QEMU and words what happened.
    async fn outcome(&mut self, guest: &GuestSpec, ending: Ending) -> Outcome {
        let cpus = match &ending {
            Ending::Silent { .. } | Ending::Overdue { .. } => {
                stuck::describe(&self.qmp.monitor("info registers -a").await, &guest.kernel.symbols)
            }
            _ => Vec::new(),
        };
        // A QEMU that ended by itself has a status of its own to tell.
        let status = match &ending {
            Ending::Exited => tokio::time::timeout(Duration::from_secs(5), self.qemu.child.wait()).await.ok(),
            _ => None,
        };
        self.qemu.kill().await;
        let complaint = self.complaint().await;
        let said = cause(&self.reported).cloned();
        let stage = said.as_ref().map_or(self.stage, |report| report.stage);
        let (class, headline) = match (ending, said) {
            (Ending::Done, None) => return Outcome::Done,
            (_, Some(said)) => (said.class, said.headline),
            (Ending::Failed(reason), None) => (FaultClass::AgentFailed, reason),
            (Ending::DamagedFrames(what), None) => (FaultClass::BadFrames, what),
            (Ending::Silent { waited }, None) => {
                (FaultClass::Hang, format!("not a sign from the guest for {} s", waited.as_secs()))
            }
            (Ending::Overdue { lived }, None) => {
                (FaultClass::Hang, format!("the trial had not ended after {} s", lived.as_secs()))
            }
            (Ending::Exited | Ending::Faulted | Ending::Ready, None) => {
                self.word_exit(status.and_then(Result::ok), &complaint)
            }
        };
        Outcome::Fault(Box::new(Fault { class, headline, stage, cpus, tail: self.tail() }))
    }

    /// A QEMU that is gone without a word from the guest's kernel.
    fn word_exit(&self, status: Option<ExitStatus>, complaint: &str) -> (FaultClass, String) {
        let words = |what: &str| match complaint {
            "" => what.to_owned(),
            _ => format!("{what}: {complaint}"),
        };
        if self.panicked {
            return (FaultClass::Panic, "the guest's kernel panicked without a message".to_owned());
        }
        if let Some(reason) = self.shutdown.as_deref().filter(|reason| reason.starts_with("guest")) {
            return (FaultClass::TripleFault, format!("the guest ended itself ({reason}) without a message"));
        }
        let Some(status) = status else {
            return (FaultClass::QemuExit, words("QEMU closed its channels"));
        };
        // Whom a signal killed has refused nothing.
        let refused = status.code().is_some_and(|code| code != 0);
        let class = if self.stage == Stage::Boot && self.console.is_empty() && refused {
            FaultClass::QemuRefused
        } else {
            FaultClass::QemuExit
        };
        (class, words(&format!("QEMU ended ({status})")))
    }

    /// What QEMU wrote to its standard error.
    async fn complaint(&mut self) -> String {
        let Some(mut stderr) = self.qemu.child.stderr.take() else { return String::new() };
        let mut text = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(2), stderr.read_to_end(&mut text)).await;
        process::last_lines(&text, 5)
    }

    fn tail(&self) -> Vec<String> {
        process::last_lines(&self.console, TAIL_LINES)
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }
}

/// Our end and QEMU's end of one channel. QEMU never waits for us to read: what a guest may write fits.
fn channel() -> Result<(UnixStream, OwnedFd), GuestError> {
    let open = || {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        sys::set_send_buffer(theirs.as_raw_fd(), 4 << 20);
        Ok((UnixStream::from_std(ours)?, OwnedFd::from(theirs)))
    };
    open().map_err(GuestError::Channel)
}

fn host_stretch() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    stretch(&load, cpus)
}
