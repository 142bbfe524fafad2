// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what was typed to what is valid. Every check is made, so that one look at the messages is
//! enough; a value that did not pass is replaced by a placeholder that never leaves this module,
//! because any problem makes the whole file invalid.

mod kernel;
mod machine;
mod trial;

use std::path::{Path, PathBuf};

use super::diagnose::{self, Problem};
use super::located::Located;
use super::{Accel, Arm, Clock, ConfigError, Experiment, Guest, names, raw, size};
use crate::fs;

#[cfg(test)]
pub(super) use {kernel::OWN_FRAGMENTS, machine::OWN_MACHINES};

/// Reads and checks one file.
pub(super) fn load(file: &Path) -> Result<Experiment, ConfigError> {
    let bytes = fs::read(file).map_err(|error| ConfigError::unreadable(file, error, Path::is_file))?;
    let text = diagnose::decode(file, bytes)?;
    // A run may be resumed from another directory.
    let directory = fs::parent(file);
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    parse(file, &text, &Place { directory, home })
}

/// The same for a text that was read from `file`. Of the world it sees the machine's file, if there is one.
pub(super) fn parse(file: &Path, text: &str, place: &Place) -> Result<Experiment, ConfigError> {
    let options = serde_yaml::options! { with_snippet: false };
    let raw = serde_yaml::from_str_with_options(text, options)
        .map_err(|error| ConfigError::invalid(file, text, vec![diagnose::translate(&error, text)]))?;
    let mut findings = Findings::default();
    let experiment = experiment(raw, file, place, &mut findings)?;
    match experiment {
        Some(experiment) if findings.problems.is_empty() => Ok(experiment),
        _ => Err(ConfigError::invalid(file, text, findings.problems)),
    }
}

/// Where relative paths begin.
#[derive(Default)]
pub(super) struct Place {
    /// The experiment file's directory.
    pub(super) directory: PathBuf,
    /// What `~` stands for.
    pub(super) home: Option<PathBuf>,
}

/// The problems found so far.
#[derive(Default)]
struct Findings {
    problems: Vec<Problem>,
}

impl Findings {
    fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The value, or nothing and one problem more.
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.add(problem)).ok()
    }

    /// The values that passed.
    fn keep_all<T>(&mut self, results: impl IntoIterator<Item = Result<T, Problem>>) -> Vec<T> {
        results.into_iter().filter_map(|result| self.keep(result)).collect()
    }
}

/// `None` only when there are findings; an error when a file that it names is wrong.
fn experiment(
    raw: raw::Experiment,
    file: &Path,
    place: &Place,
    findings: &mut Findings,
) -> Result<Option<Experiment>, ConfigError> {
    let name = findings.keep(checked_name(&raw.name));
    let question = raw.question.0.and_then(|question| findings.keep(plain_text(&question)));
    let kernel = kernel::kernel(&raw.kernel, place, findings);
    let machine = machine::of_guest(&raw.guest, place, findings)?;
    let cpus =
        machine.as_ref().and_then(|machine| findings.keep(machine::cpu_count(&machine.value.topology)));
    let guest =
        machine.zip(cpus).and_then(|(machine, cpus)| guest(&raw.guest.value, &machine, cpus, findings));
    let arms = arms(&raw.arms, place, findings);
    let metrics = trial::Measured::of(&raw.trial);
    let trial = trial::trial(&raw.trial, cpus, findings);
    let judge = trial::judge(&raw.judge, &metrics, findings);
    let whole = || {
        Some(Experiment {
            name: name?,
            question,
            file: file.to_owned(),
            kernel,
            guest: guest?,
            arms,
            trial,
            judge: judge?,
        })
    };
    Ok(whole())
}

/// `None` only when there are findings.
fn guest(
    raw: &raw::Guest,
    machine: &Located<raw::Machine>,
    cpus: u32,
    findings: &mut Findings,
) -> Option<Guest> {
    if (raw.clock.value, raw.accel.value) == (Clock::Virtual, Accel::Kvm) {
        findings.add(raw.accel.problem(
            "KVM has no virtual clock",
            "expected auto or tcg, or `clock: wall`: the virtual clock counts emulated instructions",
        ));
    }
    let is_virtual = raw.clock.value == Clock::Virtual;
    if let Some(checkpoint) = raw.checkpoint.0.as_ref().filter(|asked| asked.value && !is_virtual) {
        findings.add(checkpoint.problem(
            "the wall clock has no checkpoints",
            "expected false, or `clock: virtual`: a restored guest would have the layout in memory of one boot",
        ));
    }
    let topology = machine::topology(machine, cpus, findings);
    let isolate = raw.isolate.0.as_ref().and_then(|isolate| machine::isolate(isolate, cpus, findings));
    let cmdline = kernel::cmdline(&raw.cmdline, findings);
    let topology = topology?;
    Some(Guest {
        arch: machine.value.arch.value,
        emulator_threads: raw.emulator_threads.0,
        topology,
        accel: raw.accel.value,
        clock: raw.clock.value,
        checkpoint: is_virtual && raw.checkpoint.0.as_ref().is_none_or(|asked| asked.value),
        isolate,
        cmdline,
    })
}

fn arms(
    raw: &Located<indexmap::IndexMap<Located<raw::Name>, raw::Arm>>,
    place: &Place,
    findings: &mut Findings,
) -> Vec<Arm> {
    if raw.value.len() < 2 {
        findings.add(
            raw.problem("fewer than two arms", "expected a base and at least one arm to compare it with"),
        );
    }
    if let Some((base, _)) = raw.value.first()
        && base.value.0 == Arm::AGAIN
    {
        findings.add(base.problem(
            format!("the base cannot be called `{}`", Arm::AGAIN),
            "expected another name: the second arm of --aa has this one",
        ));
    }
    let arm = |(name, arm): (&Located<raw::Name>, &raw::Arm)| Arm {
        name: findings.keep(checked_name(name)).unwrap_or_default(),
        patches: kernel::patches(arm, place, findings),
        config: kernel::config(&arm.fragments, &arm.options, place, findings),
        cmdline: kernel::cmdline(&arm.cmdline, findings),
    };
    raw.value.iter().map(arm).collect()
}

fn checked_name(name: &Located<raw::Name>) -> Result<String, Problem> {
    let text = &name.value.0;
    if !names::is_name(text) {
        return Err(name.problem(format!("`{text}` is not a name"), "expected letters, digits, `-` and `_`"));
    }
    Ok(text.clone())
}

/// A text with something in it, on one line.
fn plain_text(text: &Located<String>) -> Result<String, Problem> {
    if text.value.trim().is_empty() {
        return Err(text.problem("an empty text", "expected a value"));
    }
    if text.value.trim_end().contains(char::is_control) {
        return Err(text.problem("a control character or a line break", "expected plain text on one line"));
    }
    Ok(text.value.trim_end().to_owned())
}

/// A number that is written as text.
fn quantity<T>(
    kind: &str,
    text: &Located<String>,
    read: impl Fn(&str) -> Result<T, size::Expected>,
) -> Result<T, Problem> {
    read(&text.value).map_err(|expected| {
        text.problem(format!("`{}` is not {kind}", text.value), format!("expected {expected}"))
    })
}

/// A list of CPUs that a guest has.
fn cpu_list(list: &Located<raw::CpuList>, count: u32) -> Result<Vec<u32>, Problem> {
    let text = Located { value: list.value.0.clone(), mark: list.mark };
    quantity("a list of this guest's CPUs", &text, |text| size::cpus(text, count))
}
