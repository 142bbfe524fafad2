// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timer tick: whether it stops on isolated CPUs under load, and whether the count can tell.

use twinboot_protocol::{Isolation, Ticks, cpu_list};

use super::{Prover, Rates, Row, TickRates, cpus, row, unstable, without};
use crate::config::Isolate;

/// What a busy isolated CPU may have: the kernel looks after it about once a second, and a tick that something
/// woke runs a few times before it stops again. A tick that goes on comes 100 to 1000 times a second.
const TICKS_AT_ONCE: f64 = 4.0;
const TICKS_A_SECOND: f64 = 2.0;

/// A CPU whose tick runs must have so many times what an isolated CPU may have, or the count tells nothing.
const CLEARLY_MORE: f64 = 2.0;

/// The rates of busy CPUs, if any ticks were counted.
pub(super) fn rates(intent: &Isolate, seen: &Isolation) -> Option<TickRates> {
    let of = |isolated| rates_of(&busy(seen, |cpu| intent.cpus.contains(&cpu) == isolated));
    (!seen.ticks.is_empty()).then(|| TickRates { isolated: of(true), housekeeping: of(false) })
}

/// Whether the tick stops on every isolated CPU.
pub(super) fn stop(prover: &Prover<'_>, seen: &Isolation) -> Row {
    let counted = busy(seen, |cpu| prover.intent.cpus.contains(&cpu));
    let numbers: Vec<u32> = counted.iter().map(|ticks| ticks.cpu).collect();
    let missing = without(&prover.intent.cpus, &numbers);
    let over: Vec<&Ticks> =
        counted.iter().copied().filter(|ticks| allowed(ticks) < ticks.count as f64).collect();
    let worst = over.iter().copied().max_by(|one, other| rate(one).total_cmp(&rate(other)));
    let why = match worst {
        Some(worst) => {
            let also = match over.len() {
                1 => String::new(),
                _ => format!(" (too many also on others of {})", cpus(&over_cpus(&over))),
            };
            Some(format!(
                "CPU {}: its tick goes on, {} in {} while one task kept it busy, where at most {:.0} are \
                 expected{also}; {}",
                worst.cpu,
                worst.count,
                milliseconds(worst),
                allowed(worst),
                why_it_runs(prover, seen, worst.cpu)
            ))
        }
        None if !missing.is_empty() => {
            Some(format!("ticks of {} were not counted; likely cause: not online", cpus(&missing)))
        }
        None => None,
    };
    let told = match rates_of(&counted) {
        Some(rates) => {
            let (median, worst) = (figure(rates.median), figure(rates.worst));
            format!("{median} a second, CPU {} most: {worst}", rates.worst_cpu)
        }
        None => "not counted".to_owned(),
    };
    row(
        "ticks, isolated and busy",
        format!("{TICKS_AT_ONCE:.0}, and {TICKS_A_SECOND:.0} a second"),
        told,
        why,
    )
}

/// Whether the tick of a busy CPU that is not isolated was seen, without which few ticks mean nothing.
pub(super) fn can_be_told(prover: &Prover<'_>, seen: &Isolation) -> Row {
    let least = busy(seen, |cpu| prover.intent.cpus.contains(&cpu)).into_iter();
    let enough = CLEARLY_MORE * least.map(|ticks| allowed(ticks) / seconds(ticks)).fold(0.0, f64::max);
    let others = busy(seen, |cpu| !prover.intent.cpus.contains(&cpu));
    let rates = rates_of(&others);
    let why = match &rates {
        None => Some(
            "no CPU that is not isolated was busy for comparison, so few ticks on the isolated ones prove \
             nothing; likely cause: all CPUs of the agent are isolated"
                .to_owned(),
        ),
        Some(rates) if rates.worst < enough => Some(format!(
            "CPU {} is busy and not isolated, and had only {:.1} ticks a second, where at least {enough:.0} \
             would tell it from the isolated ones; likely cause: the window of {:.0} ms is too short, or the \
             emulator skips ticks",
            rates.worst_cpu,
            rates.worst,
            1000.0 * rates.seconds
        )),
        Some(_) => None,
    };
    let told = match rates {
        Some(rates) => format!("{:.0} a second, CPU {}", rates.worst, rates.worst_cpu),
        None => "not counted".to_owned(),
    };
    row("ticks, another busy CPU", format!("over {enough:.0} a second"), told, why)
}

/// The likely cause of a tick that goes on, the surest first.
fn why_it_runs(prover: &Prover<'_>, seen: &Isolation, cpu: u32) -> String {
    let full = cpu_list::parse(&prover.machine.nohz_full).unwrap_or_default();
    if !full.contains(&cpu) {
        return prover.why_no_dynticks(&seen.complaints);
    }
    if let Some(line) = unstable(seen) {
        return format!("likely cause: the kernel holds its clock for unstable: `{line}`");
    }
    let of_cpu = seen.tick_dependencies.iter().filter(|dependency| dependency.cpu == cpu);
    if let Some(dependency) = of_cpu.max_by_key(|dependency| dependency.count) {
        let (why, count) = (&dependency.why, dependency.count);
        return format!("likely cause: {}; the kernel refused to stop it {count} times", meaning(why));
    }
    if let Some(task) = seen.strays.iter().find(|task| task.cpu == cpu) {
        return format!("likely cause: `{}` ({}) ran there, too", task.name, task.pid);
    }
    "likely cause: unknown; the fragment `trace` in the kernel's configuration lets the guest tell".to_owned()
}

/// The kernel's word for what keeps a tick running, and what it means.
fn meaning(dependency: &str) -> String {
    let meaning = match dependency {
        "POSIX_TIMER" => "a timer that counts CPU time",
        "PERF_EVENTS" => "performance counters that need the tick",
        "SCHED" => "more than one task could run there",
        "CLOCK_UNSTABLE" => "the scheduler's clock is not stable",
        "RCU" | "RCU_EXP" => "RCU waits for the CPU",
        _ => "a reason that Twinboot does not know",
    };
    format!("{meaning} ({dependency})")
}

fn busy(seen: &Isolation, which: impl Fn(u32) -> bool) -> Vec<&Ticks> {
    seen.ticks.iter().filter(|ticks| ticks.busy && 0 < ticks.window_ns && which(ticks.cpu)).collect()
}

fn rates_of(ticks: &[&Ticks]) -> Option<Rates> {
    let worst = ticks.iter().copied().max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let mut sorted: Vec<f64> = ticks.iter().copied().map(rate).collect();
    sorted.sort_by(f64::total_cmp);
    Some(Rates {
        cpus: cpu_list::format(&over_cpus(ticks)),
        ticks: ticks.iter().map(|ticks| ticks.count).sum(),
        seconds: ticks.iter().copied().map(seconds).fold(0.0, f64::max),
        median: sorted[(sorted.len() - 1) / 2],
        worst: rate(worst),
        worst_cpu: worst.cpu,
    })
}

fn over_cpus(ticks: &[&Ticks]) -> Vec<u32> {
    ticks.iter().map(|ticks| ticks.cpu).collect()
}

fn allowed(ticks: &Ticks) -> f64 {
    TICKS_AT_ONCE + TICKS_A_SECOND * seconds(ticks)
}

fn rate(ticks: &Ticks) -> f64 {
    ticks.count as f64 / seconds(ticks)
}

fn seconds(ticks: &Ticks) -> f64 {
    ticks.window_ns as f64 / 1e9
}

/// A rate with a digit after the point only where it matters.
fn figure(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn milliseconds(ticks: &Ticks) -> String {
    format!("{:.0} ms", 1000.0 * seconds(ticks))
}
