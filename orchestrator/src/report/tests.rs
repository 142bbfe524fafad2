// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two results as a run would give them, and all reports of them.

use std::collections::BTreeMap;

use super::*;
use crate::agent::isolation::{Rates, Row, TickRates};
use crate::analyse::{Better, Role, Rule, Series, Unit, judge};
use crate::collect::result::{
    Accelerator, Arm, Design, Fault, Host, Isolation, Node, Patch, Shape, Status, Timings, Topology, VERSION,
};

/// A mean and a p99 for each block and arm.
type Values = Vec<[(f64, f64); 2]>;

fn series(values: &Values, metric: usize) -> Series {
    let (name, role, resolution) =
        [("pingpong.mean", Role::Primary, 0.0), ("pingpong.p99", Role::Also, 1.0 / 128.0)][metric];
    Series {
        metric: name.to_owned(),
        arm: "patched".to_owned(),
        role,
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        resolution,
        pairs: values.iter().map(|pair| pair[metric]).collect(),
    }
}

fn trial(block: u32, position: u32, values: &[(f64, f64); 2]) -> Trial {
    // Turns are ABBA.
    let patched = (block + position).is_multiple_of(2);
    let [mean, p99] = values.map(|(base, other)| if patched { other } else { base });
    let both =
        |mean, p99| BTreeMap::from([("pingpong.mean".to_owned(), mean), ("pingpong.p99".to_owned(), p99)]);
    let number = 2 * (block - 1) + position + 1;
    Trial {
        number,
        arm: if patched { "patched" } else { "base" }.to_owned(),
        block,
        seed: 0x1234_5678_9abc_def0 + u64::from(block),
        digest: Some(format!("{:032x}", u128::MAX / 18_000 * (997 * u128::from(number))).repeat(2)),
        metrics: both(mean, p99),
        samples: BTreeMap::from([("pingpong.mean".to_owned(), 4000), ("pingpong.p99".to_owned(), 4000)]),
        status: Status::Ok,
    }
}

fn arm(name: &str, patches: Vec<Patch>) -> Arm {
    let hex = |digits: &str, count: usize| digits.repeat(8)[name.len()..][..count].to_owned();
    Arm {
        name: name.to_owned(),
        release: "6.12.95-twinboot".to_owned(),
        build_id: hex("81f399aa0b5c", 40),
        config_hash: hex("c0ffee001122", 64),
        patches,
        command_line: "console=ttyS0 panic=-1 nokaslr random.trust_cpu=off clocksource=tsc tsc=reliable \
                       no_timer_check isolcpus=2-3"
            .to_owned(),
    }
}

fn patch() -> Patch {
    Patch {
        subject: "sched: spend about 1 us in try_to_wake_up()".to_owned(),
        patch_id: "5f2c7ad0e1b9a3c4d5e6f708192a3b4c5d6e7f80".to_owned(),
        message_id: Some("20260301120000.1-1-dev@example.org".to_owned()),
        files: vec!["kernel/sched/core.c".to_owned()],
    }
}

fn shape(sockets: u32, cores: u32, threads: u32) -> Shape {
    let node = Node { cpus: "0-3".to_owned(), memory_mib: 512 };
    Shape { sockets, clusters: 1, cores, threads, nodes: vec![node], distances: vec![vec![10]] }
}

fn isolation_rows() -> Vec<Row> {
    let row = |[what, asked, seen]: [&str; 3]| Row {
        what: what.to_owned(),
        asked: asked.to_owned(),
        seen: seen.to_owned(),
        proven: true,
        why: None,
    };
    [
        ["isolated CPUs", "2-3", "2-3"],
        ["ticks, isolated and busy", "4, and 2 a second", "0.0 a second, CPU 3 most: 2.0"],
        ["ticks, another busy CPU", "over 18 a second", "250 a second, CPU 1"],
    ]
    .map(row)
    .to_vec()
}

fn result(values: &Values) -> RunResult {
    let judgements = judge(&[series(values, 0), series(values, 1)], &Rule { minimum_effect: 0.05, seed: 1 });
    let four_cpus = shape(1, 4, 1);
    let blocks = values.len() as u32;
    RunResult {
        version: VERSION,
        twinboot: "0.1.0".to_owned(),
        verdict: judgements[0].verdict,
        exit_code: if judgements[0].verdict == Verdict::Regressed { 1 } else { 8 },
        sentence: judgements[0].explanation.clone(),
        experiment: "quick".to_owned(),
        question: Some(
            "Does the patch make waking a thread through a futex slower beside busy CPUs?".to_owned(),
        ),
        command: "twinboot run configs/quick.yaml --patch my.patch".to_owned(),
        clock: "virtual".to_owned(),
        accelerator: Accelerator {
            name: "tcg".to_owned(),
            why: "the virtual clock counts instructions, which only emulation can".to_owned(),
        },
        host: Host {
            qemu: "7.2.22".to_owned(),
            cpu: "AMD EPYC 7R13 Processor".to_owned(),
            cores: 2,
            load: Some(0.42),
            governor: None,
            kernel: "6.1.0-18-amd64".to_owned(),
            stolen: Some(0.002),
            guests_at_once: 2,
            known_bad: None,
        },
        source: "Debian package linux-source-6.12, version 6.12.95-1".to_owned(),
        arms: vec![arm("base", vec![]), arm("patched", vec![patch()])],
        topology: Topology {
            requested: four_cpus.clone(),
            observed: Some(four_cpus),
            proven: true,
            differences: vec![],
        },
        isolation: Isolation {
            requested: "2-3".to_owned(),
            observed: "2-3".to_owned(),
            proven: Some(true),
            differences: vec![],
            rows: isolation_rows(),
            ticks: Some(TickRates {
                isolated: Some(Rates {
                    cpus: "2-3".to_owned(),
                    ticks: 1,
                    seconds: 0.5,
                    median: 0.0,
                    worst: 2.0,
                    worst_cpu: 3,
                }),
                housekeeping: Some(Rates {
                    cpus: "1".to_owned(),
                    ticks: 125,
                    seconds: 0.5,
                    median: 250.0,
                    worst: 250.0,
                    worst_cpu: 1,
                }),
            }),
        },
        design: Design { blocks, complete: blocks, order: "ABBA".to_owned(), seed: 1, minimum_effect: 0.05 },
        trials: (1..=blocks)
            .flat_map(|block| [0, 1].map(|position| trial(block, position, &values[block as usize - 1])))
            .collect(),
        verification: None,
        judgements,
        faults: vec![],
        timings: Timings {
            source: 11.2,
            build: [("base".to_owned(), 214.7), ("patched".to_owned(), 17.31)].into_iter().collect(),
            boot: 38.9,
            restore: 0.0,
            trial: 61.4,
            analyse: 0.03,
        },
        warnings: vec![],
    }
}

/// About 1 us more, with little scatter.
fn regressed() -> RunResult {
    let factors = [1.000, 1.004, 0.997, 1.002, 0.999, 1.006, 0.995, 1.001];
    let block = |(index, factor): (usize, &f64)| {
        let other = factors[(index + 3) % 8];
        [(6830.0 * factor, 7860.0 * other), (11_900.0 * factor, 13_000.0 * other)]
    };
    result(&factors.iter().enumerate().map(block).collect())
}

/// Much scatter, and a panic in the patched arm.
fn inconclusive() -> RunResult {
    let factors = [1.00, 1.12, 0.91, 1.05, 0.96, 1.17, 0.88];
    let block = |(index, factor): (usize, &f64)| {
        let other = factors[(index + 3) % 7];
        [(6830.0 * factor, 7050.0 * other), (11_900.0 * factor, 14_800.0 * other)]
    };
    let mut result = result(&factors.iter().enumerate().map(block).collect());
    let message = "the kernel panicked 0.8 s after the window opened; the console ends with:\n\
        [    4.120913] BUG: kernel NULL pointer dereference, address: 0000000000000018\n\
        [    4.121377] Code: 48 8b 47 18 48 85 c0 74 0b 48 8b 40 08 e9 5e 1c a7 00 66 90 c3 cc cc \
         cc cc 66 66 2e 0f 1f 84\n\
        [    4.122050] Kernel panic - not syncing: Fatal exception in interrupt";
    result.trials.push(Trial {
        digest: None,
        metrics: BTreeMap::new(),
        samples: BTreeMap::new(),
        status: Status::Fault { class: "panic".to_owned(), message: message.to_owned() },
        ..trial(8, 0, &[(0.0, 0.0); 2])
    });
    result.faults = vec![Fault {
        class: "panic".to_owned(),
        arm: "patched".to_owned(),
        count: 1,
        also_in_base: false,
        message: message.to_owned(),
    }];
    result.design.blocks = 8;
    result.clock = "wall".to_owned();
    result.accelerator = Accelerator { name: "kvm".to_owned(), why: "a probe guest ran under it".to_owned() };
    result.question = None;
    result.arms[1].patches.clear();
    result.isolation = Isolation {
        requested: String::new(),
        observed: String::new(),
        proven: None,
        differences: vec![],
        rows: vec![],
        ticks: None,
    };
    let node = |cpus: &str| Node { cpus: cpus.to_owned(), memory_mib: 2048 };
    result.topology.requested = Shape {
        sockets: 2,
        clusters: 32,
        cores: 2,
        threads: 1,
        nodes: vec![node("0-63"), node("64-127"), node("")],
        distances: vec![vec![10, 20, 31], vec![20, 10, 31], vec![31, 31, 10]],
    };
    result.topology.proven = false;
    result.topology.observed = Some(shape(1, 2, 2));
    result.topology.differences = vec!["CPU 1 of trial 3 shares a core with CPU 0".to_owned()];
    result.warnings = vec![
        "the host's load average was 1.9 on 2 CPUs when the first trial started; end other work, or use \
              the virtual clock"
            .to_owned(),
    ];
    result
}

/// A maintainer reads it in a mail.
fn check_text(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "too long: {line}");
        assert!(line.is_ascii(), "not ASCII: {line}");
        assert_eq!(line.trim_end(), line, "space at the end");
    }
    assert!(!text.contains("\n\n\n"), "two empty lines:\n{text}");
    assert!(text.ends_with('\n') && !text.ends_with("\n\n"));
}

#[test]
fn markdown_of_a_regression() {
    let text = markdown(&regressed()).unwrap();
    check_text(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn markdown_of_an_open_question() {
    let text = markdown(&inconclusive()).unwrap();
    check_text(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn terminal_of_both() {
    let text = [regressed(), inconclusive()].map(|result| terminal(&result, Style::Plain)).join("----\n");
    check_text(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn colours_only_underline() {
    let coloured = terminal(&regressed(), Style::Coloured);
    let plain = coloured.replace("\x1b[1;31m", "").replace("\x1b[0m", "");
    assert_ne!(coloured, plain);
    assert_eq!(plain, terminal(&regressed(), Style::Plain));
}

#[test]
fn what_was_not_isolated_is_said_everywhere() {
    let mut result = regressed();
    let why = "CPU 3: its tick goes on, 50 in 200 ms; likely cause: unknown";
    result.isolation.proven = Some(false);
    result.isolation.differences = vec![why.to_owned()];
    result.isolation.rows[1].proven = false;
    result.isolation.rows[1].why = Some(why.to_owned());
    let text = markdown(&result).unwrap();
    check_text(&text);
    assert!(text.contains(&format!("- Isolation: CPUs 2-3; NOT PROVEN; {why}.")), "{text}");
    assert!(text.contains("| 0.0 a second, CPU 3 most: 2.0 | NO     |"), "{text}");
    assert!(terminal(&result, Style::Plain).contains("\n\nIsolated CPUs 2-3: NOT PROVEN; at most"));
}

#[test]
fn nothing_measured_still_gives_a_report() {
    let mut empty = result(&vec![]);
    empty.verdict = Verdict::NoCodeChange;
    empty.sentence = "The kernels of both arms are the same in code and data.".to_owned();
    empty.judgements.clear();
    empty.isolation.rows.clear();
    let text = markdown(&empty).unwrap();
    check_text(&text);
    assert!(text.starts_with("# quick: NO CODE CHANGE\n") && !text.contains("## Metrics"), "{text}");
    let expected = "NO CODE CHANGE: The kernels of both arms are the same in code and data.\n";
    assert_eq!(terminal(&empty, Style::Plain), expected);
}

/// Also the last bit of each number: a report made again must be the same.
#[test]
fn a_result_survives_its_file() {
    for result in [regressed(), inconclusive()] {
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&json).unwrap(), result);
    }
}

#[test]
fn durations() {
    let check = |seconds: f64, expected: &str| assert_eq!(duration(seconds), expected);
    check(0.03, "0.03 s");
    check(9.94, "9.9 s");
    check(61.4, "61 s");
    check(214.7, "3 min 35 s");
}
