// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest of four CPUs in which 1 to 3 are isolated, and everything that can be wrong with it.

use twinboot_protocol::{Irq, TickDependency, Ticks};

use super::*;

const ALL: [Disturbance; 4] =
    [Disturbance::Tasks, Disturbance::Tick, Disturbance::Rcu, Disturbance::Interrupts];

const COMMAND_LINE: &str = "quiet isolcpus=domain,managed_irq,1-3 nohz_full=1-3 rcu_nocbs=1-3 irqaffinity=0";

struct Guest {
    intent: Isolate,
    machine: Machine,
    seen: Option<Isolation>,
}

impl Guest {
    fn new() -> Self {
        let ticks = |cpu, count| Ticks { cpu, busy: true, count, window_ns: 200_000_000 };
        Self {
            intent: Isolate { cpus: vec![1, 2, 3], from: ALL.to_vec() },
            machine: Machine {
                command_line: COMMAND_LINE.to_owned(),
                isolated: "1-3".to_owned(),
                nohz_full: "1-3".to_owned(),
                clocksource: "tsc".to_owned(),
                ..Machine::default()
            },
            seen: Some(Isolation {
                ticks: vec![ticks(0, 50), ticks(1, 0), ticks(2, 1), ticks(3, 0)],
                rcu_offloaded_log: "1-3".to_owned(),
                workqueues: "0".to_owned(),
                ..Isolation::default()
            }),
        }
    }

    fn seen(&mut self) -> &mut Isolation {
        self.seen.get_or_insert_default()
    }

    /// Without one parameter, as typed.
    fn forget(&mut self, parameter: &str) {
        let words = COMMAND_LINE.split(' ').filter(|word| !word.starts_with(parameter));
        self.machine.command_line = words.collect::<Vec<_>>().join(" ");
    }

    fn prove(&self) -> Proof {
        prove(&self.intent, 4, &self.machine, self.seen.as_ref())
    }
}

fn task(name: &str, allowed: &str, cpu: u32) -> Task {
    Task { pid: 9, name: name.to_owned(), allowed: allowed.to_owned(), cpu }
}

fn check(change: impl FnOnce(&mut Guest), expected: &[&str]) {
    let mut guest = Guest::new();
    change(&mut guest);
    let proof = guest.prove();
    assert_eq!(proof.differences().collect::<Vec<_>>(), expected);
    assert!(proof.rows.iter().all(|row| row.proven == row.why.is_none()));
}

#[test]
fn a_guest_as_asked_for_is_proven() {
    let proof = Guest::new().prove();
    let rows: Vec<String> =
        proof.rows.iter().map(|row| format!("{}: {} / {}", row.what, row.asked, row.seen)).collect();
    let expected = [
        "isolated CPUs: 1-3 / 1-3",
        "full dynticks CPUs: 1-3 / 1-3",
        "unbound work queues' CPUs: 0 / 0",
        "stray tasks: none / none",
        "unbound kernel threads: none there / none",
        "clock: stable / tsc",
        "ticks, isolated and busy: 4, and 2 a second / 0.0 a second, CPU 2 most: 5.0",
        "ticks, another busy CPU: over 44 a second / 250 a second, CPU 0",
        "RCU-offloaded CPUs: 1-3 / 1-3",
        "stray RCU threads: none / none",
        "device interrupts: none there / none",
    ];
    assert_eq!(rows, expected);
    assert_eq!(proof.differences().count(), 0);
    let ticks = proof.ticks.unwrap();
    let isolated = ticks.isolated.unwrap();
    assert_eq!((isolated.cpus.as_str(), isolated.ticks, isolated.worst_cpu), ("1-3", 1, 2));
    assert_eq!(ticks.housekeeping.unwrap().cpus, "0");
}

#[test]
fn parameters_without_effect_are_named() {
    check(
        |guest| {
            guest.forget("isolcpus");
            guest.machine.isolated = String::new();
            guest.seen().workqueues = "0-3".to_owned();
        },
        &[
            "isolated CPUs: CPUs 1-3 are not among them, the guest has none; likely cause: `isolcpus=` is not \
             on the command line",
            "unbound work queues' CPUs: the guest has 0-3, which reaches isolated CPUs; likely cause: \
             `isolcpus=` is not on the command line",
        ],
    );
    check(
        |guest| {
            guest.forget("rcu_nocbs");
            guest.seen().rcu_offloaded_log = String::new();
        },
        &["RCU-offloaded CPUs: CPUs 1-3 are not among them, the guest has none; likely cause: \
             `rcu_nocbs=` is not on the command line"],
    );
    check(
        |guest| {
            guest.machine.unknown_parameters = vec!["rcu_nocbs=1-3".to_owned()];
            guest.seen().rcu_offloaded_log = String::new();
        },
        &["RCU-offloaded CPUs: CPUs 1-3 are not among them, the guest has none; likely cause: the \
             kernel does not know `rcu_nocbs`; it was built without CONFIG_RCU_NOCB_CPU"],
    );
    check(
        |guest| {
            guest.machine.command_line = COMMAND_LINE.replace("managed_irq,1-3", "managed_irq,1-2");
            guest.machine.isolated = "1-2".to_owned();
        },
        &["isolated CPUs: CPU 3 is not among them, the guest has 1-2; likely cause: the command line has \
           `isolcpus=domain,managed_irq,1-2`"],
    );
    check(
        |guest| guest.machine.isolated = "0-3".to_owned(),
        &[
            "isolated CPUs: CPU 0 is among them though not asked for, the guest has 0-3; likely cause: another \
           parameter on the command line",
        ],
    );
}

#[test]
fn no_full_dynticks() {
    check(
        |guest| {
            guest.forget("nohz_full");
            guest.machine.nohz_full = String::new();
            guest.seen().ticks[2].count = 50;
            guest.seen().unbound = vec![task("kthreadd", "0-3", 0), task("oom_reaper", "0-3", 0)];
        },
        &[
            "full dynticks CPUs: CPUs 1-3 are not among them, the guest has none; likely cause: `nohz_full=` \
             is not on the command line",
            "CPUs 1-3 are reachable for the kernel thread `kthreadd` (9), which may run on CPUs 0-3 (and 1 \
             more); likely cause: `nohz_full=` is not on the command line",
            "CPU 2: its tick goes on, 50 in 200 ms while one task kept it busy, where at most 4 are expected; \
             likely cause: `nohz_full=` is not on the command line",
        ],
    );
    check(
        |guest| {
            guest.machine.nohz_full = String::new();
            let line = "Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL";
            guest.seen().complaints = vec![line.to_owned()];
        },
        &["full dynticks CPUs: CPUs 1-3 are not among them, the guest has none; likely cause, in the \
             kernel's words: `Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL`"],
    );
    check(
        |guest| {
            guest.intent = Isolate { cpus: vec![0, 1], from: vec![Disturbance::Tick] };
            guest.machine.nohz_full = "1".to_owned();
            guest.seen().ticks = vec![
                Ticks { cpu: 0, busy: true, count: 1, window_ns: 200_000_000 },
                Ticks { cpu: 1, busy: true, count: 1, window_ns: 200_000_000 },
                Ticks { cpu: 2, busy: true, count: 50, window_ns: 200_000_000 },
            ];
        },
        &[
            "full dynticks CPUs: CPU 0 is not among them, the guest has 1; likely cause: CPU 0 boots and keeps \
           the time for the others, so the kernel takes it out; isolate other CPUs",
        ],
    );
}

#[test]
fn a_tick_that_goes_on_has_a_cause() {
    let check_cause = |change: &dyn Fn(&mut Isolation), cause: &str| {
        let mut guest = Guest::new();
        guest.intent.from = vec![Disturbance::Tick];
        guest.seen().ticks[1].count = 49;
        guest.seen().ticks[3].count = 50;
        change(guest.seen());
        let proof = guest.prove();
        let said = proof.differences().last().unwrap();
        let expected = format!(
            "CPU 3: its tick goes on, 50 in 200 ms while one task kept it busy, where at most 4 are expected \
             (too many also on others of CPUs 1,3); likely cause: {cause}"
        );
        assert_eq!(*said, expected);
    };
    let dependency = |cpu, why: &str, count| TickDependency { cpu, why: why.to_owned(), count };
    check_cause(
        &|seen| {
            seen.tick_dependencies =
                vec![dependency(3, "RCU", 1), dependency(3, "SCHED", 48), dependency(1, "RCU", 99)];
            seen.strays = vec![task("late", "0-3", 3)];
        },
        "more than one task could run there (SCHED); the kernel refused to stop it 48 times",
    );
    check_cause(&|seen| seen.strays = vec![task("late", "0-3", 3)], "`late` (9) ran there, too");
    check_cause(
        &|seen| {
            seen.complaints = vec!["Marking clocksource 'tsc' as unstable".to_owned()];
            seen.tick_dependencies = vec![dependency(3, "CLOCK_UNSTABLE", 48)];
        },
        "the kernel holds its clock for unstable: `Marking clocksource 'tsc' as unstable`",
    );
    check_cause(&|_| {}, "unknown; the fragment `trace` in the kernel's configuration lets the guest tell");
}

#[test]
fn a_count_that_cannot_tell_proves_nothing() {
    check(
        |guest| guest.seen().ticks[0].count = 3,
        &[
            "CPU 0 is busy and not isolated, and had only 15.0 ticks a second, where at least 44 would tell it \
           from the isolated ones; likely cause: the window of 200 ms is too short, or the emulator skips \
           ticks",
        ],
    );
    check(
        |guest| guest.seen().ticks[0].busy = false,
        &["no CPU that is not isolated was busy for comparison, so few ticks on the isolated ones prove \
           nothing; likely cause: all CPUs of the agent are isolated"],
    );
    check(
        |guest| guest.seen().ticks.truncate(3),
        &["ticks of CPU 3 were not counted; likely cause: not online"],
    );
}

#[test]
fn interrupts_and_tasks_are_named() {
    let irq = |cpus: &str, allowed: &str| Irq {
        number: 24,
        name: "virtio0-config".to_owned(),
        cpus: cpus.to_owned(),
        allowed: allowed.to_owned(),
    };
    check(
        |guest| {
            guest.forget("irqaffinity");
            guest.seen().irqs = vec![irq("2", "0-3"), irq("0", "0-3")];
        },
        &["CPU 2 is hit by interrupt 24 (virtio0-config), which may be delivered to CPUs 0-3 (and 1 more); \
           likely cause: `irqaffinity=` is not on the command line"],
    );
    check(
        |guest| guest.seen().irqs = vec![irq("0", "0-3")],
        &["CPUs 1-3 are open to interrupt 24 (virtio0-config), which may be delivered to CPUs 0-3; likely \
           cause: its driver spreads its interrupts over all CPUs, or the interrupt controller cannot move it"],
    );
    check(
        |guest| guest.seen().strays = vec![task("rcuog/0", "0-3", 2)],
        &[
            "CPU 2 last ran `rcuog/0` (9), which is not bound to it; likely cause: unknown",
            "CPU 2 last ran `rcuog/0` (9), which executes RCU callbacks of other CPUs; likely cause: nothing \
             keeps kernel threads away, as `nohz_full=` would",
        ],
    );
    check(
        |guest| {
            guest.intent = Isolate { cpus: vec![0, 1], from: vec![Disturbance::Interrupts] };
            guest.seen().irqs = vec![irq("0", "0,3")];
        },
        &[
            "CPU 0 is hit by interrupt 24 (virtio0-config), which may be delivered to CPUs 0,3; likely cause: CPU \
           0 boots, and the kernel adds it to `irqaffinity=`; isolate other CPUs",
        ],
    );
    check(|guest| guest.seen().unbound = vec![task("kswapd0", "0-3", 0)], &[]);
    check(|guest| guest.seen().strays = vec![task("kswapd0", "0-3", 2)], &[]);
}

#[test]
fn a_boot_cpu_that_the_kernel_takes_out_is_told() {
    check(
        |guest| {
            guest.machine.command_line = COMMAND_LINE.replace("nohz_full=1-3", "nohz_full=0-3");
        },
        &[
            "full dynticks CPUs: CPU 0 is named by `nohz_full=` and not among them, the guest has 1-3; likely cause: \
             CPU 0 boots and keeps the time, so the kernel takes it out without a word",
        ],
    );
}

#[test]
fn only_what_was_asked_for_is_judged() {
    let nothing_taken = |from: Vec<Disturbance>| {
        let mut guest = Guest::new();
        guest.machine = Machine::default();
        guest.seen = Some(Isolation::default());
        guest.intent.from = from;
        guest.prove().rows.into_iter().filter(|row| !row.proven).map(|row| row.what).collect::<Vec<_>>()
    };
    assert_eq!(nothing_taken(vec![Disturbance::Tasks]), ["isolated CPUs", "unbound work queues' CPUs"]);
    assert_eq!(nothing_taken(vec![Disturbance::Rcu]), ["RCU-offloaded CPUs"]);
    assert_eq!(nothing_taken(vec![Disturbance::Interrupts]), Vec::<String>::new());
}

#[test]
fn silence_proves_nothing() {
    check(
        |guest| guest.seen = None,
        &[
            "CPUs 1-3: the guest has sent no observations of them; likely cause: it ended before, or its agent \
           was not asked",
        ],
    );
}
