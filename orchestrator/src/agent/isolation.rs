// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether isolated CPUs are left alone, from what the agent observed: one row for each thing that was
//! asked for, and for a row that is not proven a sentence with the CPU, what was seen, and the likely
//! cause. Pure. Only what the experiment asks for is judged.

#[cfg(test)]
mod tests;
mod ticks;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use twinboot_protocol::{Isolation, Machine, Task, cpu_list};

use crate::config::{Disturbance, Isolate};

/// What was asked for, and whether it is so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Proof {
    pub(crate) rows: Vec<Row>,
    /// Absent when no ticks were counted.
    pub(crate) ticks: Option<TickRates>,
}

/// One thing that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Row {
    /// For example `full dynticks CPUs`.
    pub(crate) what: String,
    pub(crate) asked: String,
    /// In the guest.
    pub(crate) seen: String,
    pub(crate) proven: bool,
    /// When it is not proven: which CPU, what was seen, and the likely cause.
    pub(crate) why: Option<String>,
}

/// Ticks of CPUs that one thread each kept busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TickRates {
    /// Of the isolated CPUs; absent when none was counted.
    pub(crate) isolated: Option<Rates>,
    /// Of the CPUs that are not isolated, for comparison; absent when none was busy.
    pub(crate) housekeeping: Option<Rates>,
}

/// The ticks of several CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rates {
    /// A CPU list.
    pub(crate) cpus: String,
    /// All that were counted.
    pub(crate) ticks: u64,
    /// For how long each CPU's were counted, in seconds of the guest's clock; the longest.
    pub(crate) seconds: f64,
    /// A second, of the CPU in the middle.
    pub(crate) median: f64,
    /// A second, of the CPU that had most.
    pub(crate) worst: f64,
    /// The CPU that had most.
    pub(crate) worst_cpu: u32,
}

impl Proof {
    /// What is not proven, in sentences.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &String> {
        self.rows.iter().filter_map(|row| row.why.as_ref())
    }
}

/// Compares what was asked for with a guest of so many CPUs. Without observations nothing that needs them
/// is proven.
pub(crate) fn prove(intent: &Isolate, cpus: u32, machine: &Machine, seen: Option<&Isolation>) -> Proof {
    let isolated = cpu_list::format(&intent.cpus);
    let others: Vec<u32> = (0..cpus).filter(|cpu| !intent.cpus.contains(cpu)).collect();
    let prover = Prover { intent, machine, isolated, others: cpu_list::format(&others) };
    let asked = |disturbance| intent.from.contains(&disturbance);

    let mut rows = Vec::new();
    if asked(Disturbance::Tasks) {
        rows.push(prover.isolated_set());
    }
    if asked(Disturbance::Tick) {
        rows.push(prover.dynticks(seen));
    }
    let Some(seen) = seen else {
        rows.push(prover.nothing_observed());
        return Proof { rows, ticks: None };
    };
    if asked(Disturbance::Tasks) {
        rows.push(prover.workqueues(seen));
        rows.push(prover.strays(seen));
    }
    if asked(Disturbance::Tick) {
        rows.push(prover.kernel_threads(seen));
        rows.push(prover.clock(seen));
        rows.push(ticks::stop(&prover, seen));
        rows.push(ticks::can_be_told(&prover, seen));
    }
    if asked(Disturbance::Rcu) {
        rows.push(prover.rcu(seen));
        rows.push(prover.rcu_threads(seen));
    }
    if asked(Disturbance::Interrupts) {
        rows.push(prover.interrupts(seen));
    }
    Proof { rows, ticks: ticks::rates(intent, seen) }
}

/// Nearly every machine boots on it, and the kernel treats it differently.
const BOOT_CPU: u32 = 0;

/// What every row needs.
struct Prover<'a> {
    intent: &'a Isolate,
    machine: &'a Machine,
    /// The isolated CPUs as a CPU list.
    isolated: String,
    /// All other CPUs as a CPU list.
    others: String,
}

impl Prover<'_> {
    fn isolated_set(&self) -> Row {
        let cause = || self.why_not_taken("isolcpus=", "CONFIG_CPU_ISOLATION", &[]);
        self.set("isolated CPUs", "isolcpus=", &self.machine.isolated, cause)
    }

    fn dynticks(&self, seen: Option<&Isolation>) -> Row {
        let complaints = seen.map_or(&[][..], |seen| &seen.complaints);
        let cause = || self.why_no_dynticks(complaints);
        self.set("full dynticks CPUs", "nohz_full=", &self.machine.nohz_full, cause)
    }

    fn rcu(&self, seen: &Isolation) -> Row {
        let cause = || self.why_not_taken("rcu_nocbs=", "CONFIG_RCU_NOCB_CPU", &seen.complaints);
        self.set("RCU-offloaded CPUs", "rcu_nocbs=", &seen.rcu_offloaded_log, cause)
    }

    /// A set of CPUs that the kernel says it has taken.
    fn set(&self, what: &str, parameter: &str, seen: &str, cause: impl Fn() -> String) -> Row {
        let numbers = cpu_list::parse(seen).unwrap_or_default();
        let missing = without(&self.intent.cpus, &numbers);
        let added = without(&numbers, &self.intent.cpus);
        let refused = without(&self.named_by(parameter), &numbers);
        let told = if seen.is_empty() { "none" } else { seen };
        let why = match (missing.is_empty(), added.is_empty()) {
            (true, _) if !refused.is_empty() => Some(format!(
                "{what}: {} named by `{parameter}` and not among them, the guest has {told}; likely cause: {}",
                are(&refused),
                if refused == [BOOT_CPU] {
                    "CPU 0 boots and keeps the time, so the kernel takes it out without a word"
                } else {
                    "the kernel has refused them, or they do not exist"
                }
            )),
            (true, true) => None,
            (false, _) => {
                Some(format!("{what}: {} not among them, the guest has {told}; {}", are(&missing), cause()))
            }
            (true, false) => Some(format!(
                "{what}: {} among them though not asked for, the guest has {told}; likely cause: another \
                 parameter on the command line",
                are(&added)
            )),
        };
        row(what, self.isolated.clone(), told.to_owned(), why)
    }

    /// The CPUs that the command line gives a parameter, without flags such as `domain`; none where there is no
    /// such parameter, or one in a form that only the kernel reads.
    fn named_by(&self, parameter: &str) -> Vec<u32> {
        let words = self.machine.command_line.split_whitespace();
        let value = words.filter_map(|word| word.strip_prefix(parameter)).next_back().unwrap_or_default();
        let is_flag = |part: &&str| part.starts_with(|first: char| first.is_ascii_alphabetic());
        let list: Vec<&str> = value.split(',').filter(|part| !is_flag(part)).collect();
        cpu_list::parse(&list.join(",")).unwrap_or_default()
    }

    fn workqueues(&self, seen: &Isolation) -> Row {
        let what = "unbound work queues' CPUs";
        let told = if seen.workqueues.is_empty() { "unknown" } else { &seen.workqueues };
        let why = match cpu_list::parse(&seen.workqueues).map(|cpus| self.isolated_among(&cpus)) {
            _ if seen.workqueues.is_empty() => Some(format!("{what}: the guest does not tell")),
            Some(reached) if reached.is_empty() => None,
            _ => Some(format!(
                "{what}: the guest has {told}, which reaches isolated CPUs; {}",
                self.why_not_taken("isolcpus=", "CONFIG_CPU_ISOLATION", &[])
            )),
        };
        row(what, self.others.clone(), told.to_owned(), why)
    }

    fn strays(&self, seen: &Isolation) -> Row {
        let what = "stray tasks";
        let strays: Vec<Task> = seen.strays.iter().filter(|task| !serves_a_node(task)).cloned().collect();
        let why = strays.first().map(|task| {
            format!(
                "CPU {} last ran {}, which is not bound to it{}; {}",
                task.cpu,
                named(task),
                and_more(strays.len()),
                if task.cpu == BOOT_CPU {
                    "likely cause: CPU 0 boots, and what ran there then is still there; isolate other CPUs"
                        .to_owned()
                } else {
                    self.why_not_taken("isolcpus=", "CONFIG_CPU_ISOLATION", &[])
                }
            )
        });
        row(what, "none".to_owned(), names(&strays), why)
    }

    fn kernel_threads(&self, seen: &Isolation) -> Row {
        let unbound: Vec<Task> = seen.unbound.iter().filter(|task| !serves_a_node(task)).cloned().collect();
        let why = unbound.first().map(|task| {
            let reached = self.isolated_among(&cpu_list::parse(&task.allowed).unwrap_or_default());
            format!(
                "{} reachable for the kernel thread {}, which may run on CPUs {}{}; {}",
                are(&reached),
                named(task),
                task.allowed,
                and_more(unbound.len()),
                self.why_no_dynticks(&seen.complaints)
            )
        });
        row("unbound kernel threads", "none there".to_owned(), names(&unbound), why)
    }

    fn clock(&self, seen: &Isolation) -> Row {
        let source = &self.machine.clocksource;
        let why = unstable(seen).map(|line| {
            format!(
                "clock: the kernel holds it for unstable, so that no CPU's tick may stop: `{line}`; likely \
                 cause: the host kept the guest waiting, or the CPU model has no invariant clock"
            )
        });
        row("clock", "stable".to_owned(), source.clone(), why)
    }

    fn rcu_threads(&self, seen: &Isolation) -> Row {
        let is_rcus = |task: &&Task| task.name.starts_with("rcuo");
        let strays: Vec<Task> = seen.strays.iter().filter(is_rcus).cloned().collect();
        let why = strays.first().map(|task| {
            format!(
                "CPU {} last ran {}, which executes RCU callbacks of other CPUs{}; likely cause: nothing \
                 keeps kernel threads away, as `nohz_full=` would",
                task.cpu,
                named(task),
                and_more(strays.len())
            )
        });
        row("stray RCU threads", "none".to_owned(), names(&strays), why)
    }

    fn interrupts(&self, seen: &Isolation) -> Row {
        let why = seen.irqs.first().map(|irq| {
            let delivered = self.isolated_among(&cpu_list::parse(&irq.cpus).unwrap_or_default());
            let may = self.isolated_among(&cpu_list::parse(&irq.allowed).unwrap_or_default());
            let how = if delivered.is_empty() {
                format!("{} open to interrupt {} ({})", are(&may), irq.number, irq.name)
            } else {
                format!("{} hit by interrupt {} ({})", are(&delivered), irq.number, irq.name)
            };
            let more = and_more(seen.irqs.len());
            let why = self.why_interrupts(if delivered.is_empty() { &may } else { &delivered });
            format!("{how}, which may be delivered to CPUs {}{more}; {why}", irq.allowed)
        });
        let shown = |irq: &twinboot_protocol::Irq| format!("{} ({}): {}", irq.number, irq.name, irq.allowed);
        let irqs: Vec<String> = seen.irqs.iter().map(shown).collect();
        row("device interrupts", "none there".to_owned(), or_none(&irqs), why)
    }

    fn nothing_observed(&self) -> Row {
        let why = format!(
            "CPUs {}: the guest has sent no observations of them; likely cause: it ended before, or its \
             agent was not asked",
            self.isolated
        );
        row("observations of the agent", "some".to_owned(), "none".to_owned(), Some(why))
    }

    /// Why the set of `nohz_full=` is not what was asked for, as far as can be told.
    fn why_no_dynticks(&self, complaints: &[String]) -> String {
        let taken = cpu_list::parse(&self.machine.nohz_full).unwrap_or_default();
        if !taken.is_empty() && without(&self.intent.cpus, &taken) == [BOOT_CPU] {
            return "likely cause: CPU 0 boots and keeps the time for the others, so the kernel takes it \
                    out; isolate other CPUs"
                .to_owned();
        }
        if self.has("isolcpus=nohz") {
            return self.why_not_taken("isolcpus=", "CONFIG_NO_HZ_FULL", complaints);
        }
        self.why_not_taken("nohz_full=", "CONFIG_NO_HZ_FULL", complaints)
    }

    fn why_interrupts(&self, reached: &[u32]) -> String {
        match self.value("irqaffinity=") {
            None => "likely cause: `irqaffinity=` is not on the command line".to_owned(),
            Some(_) if *reached == [BOOT_CPU] => "likely cause: CPU 0 boots, and the kernel adds it to \
                                                  `irqaffinity=`; isolate other CPUs"
                .to_owned(),
            Some(_) => "likely cause: its driver spreads its interrupts over all CPUs, or the interrupt \
                        controller cannot move it"
                .to_owned(),
        }
    }

    /// Why a parameter with a list of CPUs had no effect, or not the one asked for.
    fn why_not_taken(&self, parameter: &str, option: &str, complaints: &[String]) -> String {
        let name = parameter.trim_end_matches('=');
        if self.machine.unknown_parameters.iter().any(|unknown| unknown.starts_with(parameter)) {
            return format!("likely cause: the kernel does not know `{name}`; it was built without {option}");
        }
        let Some(value) = self.value(parameter) else {
            return format!("likely cause: `{parameter}` is not on the command line");
        };
        // A complaint about the clock has another row.
        if let Some(line) = complaints.iter().find(|line| !line.contains("nstable")) {
            return format!("likely cause, in the kernel's words: `{line}`");
        }
        if !self.lists_all(value) {
            return format!("likely cause: the command line has `{parameter}{value}`");
        }
        "likely cause: unknown".to_owned()
    }

    /// Whether a parameter's value, behind its flags, names all isolated CPUs.
    fn lists_all(&self, value: &str) -> bool {
        let list = value.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        cpu_list::parse(list).is_some_and(|cpus| without(&self.intent.cpus, &cpus).is_empty())
    }

    /// The value of the last such parameter on the command line.
    fn value(&self, parameter: &str) -> Option<&str> {
        self.machine.command_line.split_whitespace().rev().find_map(|word| word.strip_prefix(parameter))
    }

    fn has(&self, start: &str) -> bool {
        self.value(start).is_some()
    }

    fn isolated_among(&self, cpus: &[u32]) -> Vec<u32> {
        cpus.iter().copied().filter(|cpu| self.intent.cpus.contains(cpu)).collect()
    }
}

fn row(what: &str, asked: String, seen: String, why: Option<String>) -> Row {
    Row { what: what.to_owned(), asked, seen, proven: why.is_none(), why }
}

/// The line in which the kernel gives a clock up.
fn unstable(seen: &Isolation) -> Option<&String> {
    seen.complaints.iter().find(|line| line.contains("nstable"))
}

fn without(cpus: &[u32], others: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| !others.contains(cpu)).collect()
}

/// `CPU 2` or `CPUs 2-3`.
fn cpus(numbers: &[u32]) -> String {
    let list = cpu_list::format(numbers);
    if numbers.len() == 1 { format!("CPU {list}") } else { format!("CPUs {list}") }
}

/// `CPU 2 is` or `CPUs 2-3 are`.
fn are(numbers: &[u32]) -> String {
    format!("{} {}", cpus(numbers), if numbers.len() == 1 { "is" } else { "are" })
}

fn named(task: &Task) -> String {
    format!("`{}` ({})", task.name, task.pid)
}

/// `nohz_full` moves kernel threads away; but those that serve a memory node stay with its CPUs, as the kernel
/// has it. They look around once when they start, and sleep until memory runs short.
fn serves_a_node(task: &Task) -> bool {
    ["kswapd", "kcompactd"].iter().any(|name| task.name.starts_with(name))
}

fn and_more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!(" (and {} more)", count - 1),
    }
}

fn names(tasks: &[Task]) -> String {
    or_none(&tasks.iter().map(|task| task.name.clone()).collect::<Vec<_>>())
}

/// How many of a list are shown; the others are counted.
const SHOWN: usize = 3;

fn or_none(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names if names.len() <= SHOWN => names.join(", "),
        names => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
    }
}
