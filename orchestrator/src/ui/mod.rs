// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: what a run is doing, calmly. One line for each thing done; below them, on a terminal
//! alone, one that moves. All of it goes to standard error.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::analyse::words;
use crate::report::Style;
use crate::run::event::{Event, Listener};
use crate::vm::qemu::Engine;

/// Says one line to the person.
pub(crate) fn say(line: &str) {
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether what goes to standard output may carry colours.
pub(crate) fn style_of_stdout() -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !no_color { Style::Coloured } else { Style::Plain }
}

/// Shows the events of a run.
pub(crate) struct Display {
    bar: ProgressBar,
    on_terminal: bool,
    state: RefCell<State>,
    /// When the first trial of this session began.
    trials_began: Cell<Option<Instant>>,
}

#[derive(Default)]
struct State {
    trials: u32,
    done: u32,
    /// Trials that ended in this session, from which the time left is judged.
    ended_here: u32,
    running: BTreeSet<u32>,
}

impl Display {
    pub(crate) fn new() -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{spinner} {msg} ({elapsed})"));
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, on_terminal, state: RefCell::default(), trials_began: Cell::default() }
    }

    /// Takes the moving line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, topic: &str, text: &str) {
        let line = format!("{topic:<8} {text}");
        if self.on_terminal {
            self.bar.println(line);
        } else {
            say(&line);
        }
    }

    /// What the moving line says; without a terminal only what takes long is said.
    fn doing(&self, text: &str) {
        self.bar.set_style(style("{spinner} {msg} ({elapsed})"));
        self.bar.reset_elapsed();
        self.bar.set_message(text.to_owned());
    }

    fn trial_ended(&self, number: u32, what: &str, seconds: f64) {
        let mut state = self.state.borrow_mut();
        state.running.remove(&number);
        state.done += 1;
        state.ended_here += 1;
        let (done, trials) = (state.done, state.trials);
        let left = self.time_left(&state);
        drop(state);
        self.line("trial", &format!("{done}/{trials} {what}, {seconds:.1} s{left}"));
        self.bar.set_position(u64::from(done));
    }

    fn time_left(&self, state: &State) -> String {
        let Some(began) = self.trials_began.get() else { return String::new() };
        let left = began.elapsed() / state.ended_here.max(1) * state.trials.saturating_sub(state.done);
        match left.as_secs() {
            0 => String::new(),
            seconds @ ..90 => format!(", about {seconds} s left"),
            seconds => format!(", about {} min left", seconds.div_ceil(60)),
        }
    }
}

impl Listener for Display {
    fn hear(&self, event: &Event) {
        match event {
            Event::Started { experiment, trials, done } => {
                let mut state = self.state.borrow_mut();
                (state.trials, state.done) = (*trials, *done);
                let resumed =
                    if *done == 0 { String::new() } else { format!(", {done} of them done before") };
                self.line("run", &format!("{experiment}: {trials} trials{resumed}"));
            }
            Event::SourceWanted => self.doing("getting the kernel's source"),
            Event::SourceReady { origin, seconds, .. } => {
                self.line("source", &format!("{origin}, {seconds:.1} s"));
            }
            Event::PatchesRead { arm, subjects } => {
                for subject in subjects {
                    self.line("patch", &format!("{arm}: {subject}"));
                }
            }
            Event::BuildStarted { arm } => {
                let text = format!("building the kernel of arm {arm}");
                if !self.on_terminal {
                    self.line("kernel", &text);
                }
                self.doing(&text);
            }
            Event::BuildProgress { steps, of: Some(of), .. } => {
                self.bar.set_style(style("{spinner} {msg} {wide_bar} {pos}/{len}, {eta} left"));
                self.bar.set_length(u64::from(*of.max(steps)));
                self.bar.set_position(u64::from(*steps));
            }
            Event::BuildProgress { .. } | Event::TrialPhase { .. } => {}
            Event::Built { arm, release, cached: true, .. } => {
                self.line("kernel", &format!("{arm}: {release}, from the cache"));
            }
            Event::Built { arm, release, steps, seconds, .. } => {
                self.line(
                    "kernel",
                    &format!("{arm}: {release}, {}, {seconds:.0} s", words::count(*steps, "build step")),
                );
            }
            Event::SameKernel { arm } => {
                self.line("kernel", &format!("{arm}: the same code and data as the base"));
            }
            Event::ProbeStarted => self.doing("looking whether a guest runs under KVM"),
            Event::EngineChosen { engine, why } => {
                let name = match engine {
                    Engine::Kvm => "KVM",
                    Engine::Tcg => "emulation",
                    Engine::TcgVirtual => "emulation, virtual clock",
                };
                self.line("engine", &format!("{name}: {why}"));
            }
            Event::GuestsAtOnce { guests } => {
                if 1 < *guests {
                    self.line(
                        "guests",
                        &format!("{guests} at once: the virtual clock does not see its neighbours"),
                    );
                }
            }
            Event::CheckpointWanted { arm } => {
                self.doing(&format!("booting the guest of arm {arm}, to be saved"));
            }
            Event::CheckpointSaved { arm, bytes, seconds } => {
                // A boot says nothing about the trials to come.
                self.trials_began.set(self.trials_began.get().map(|_| Instant::now()));
                self.line("saved", &format!("the guest of arm {arm}, {} MiB in {seconds:.0} s", bytes >> 20));
            }
            Event::TrialStarted { number, .. } => {
                if self.trials_began.get().is_none() {
                    self.trials_began.set(Some(Instant::now()));
                    let state = self.state.borrow();
                    self.bar.set_style(style("{spinner} {msg} {wide_bar} {pos}/{len} ({elapsed})"));
                    self.bar.reset_elapsed();
                    self.bar.set_message("trials");
                    self.bar.set_length(u64::from(state.trials));
                    self.bar.set_position(u64::from(state.done));
                }
                self.state.borrow_mut().running.insert(*number);
            }
            Event::TrialEnded { number, block, arm, seconds, trouble, .. } => {
                let trouble = trouble.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
                self.trial_ended(*number, &format!("block {block} {arm}{trouble}"), *seconds);
            }
            Event::TrialRepeated { number, why } => {
                self.line("trial", &format!("{number} is repeated after trouble on the host: {why}"));
            }
            Event::VerificationStarted { trials } => {
                *self.state.borrow_mut() = State { trials: *trials, ..State::default() };
                self.trials_began.set(None);
                let runs =
                    if *trials == 1 { "1 trial runs".to_owned() } else { format!("{trials} trials run") };
                self.line("verify", &format!("{runs} once more, to be compared with the first time"));
            }
            Event::TrialVerified { number, block, arm, seconds, difference, .. } => {
                let found = difference.as_deref().unwrap_or("equal");
                self.trial_ended(*number, &format!("block {block} {arm} again: {found}"), *seconds);
            }
            Event::Warning { text } => self.line("warning", text),
            Event::Ended { .. } => self.clear(),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
