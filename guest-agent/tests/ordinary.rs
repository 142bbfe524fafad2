// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the real agent as an ordinary process: every channel between both kinds of partners, hogs, and
//! orders that cannot be carried out. Counts are checked; times are the machine's own affair.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use twinboot_protocol::frame::Decoder;
use twinboot_protocol::{
    Channel, Hogs, IsolationProof, Message, Orders, PROTOCOL, Partners, Phase, Pingpong, Spin, Trial,
    Workload, WorkloadResult,
};

const ROUNDS: u64 = 50;

/// A file of this test process, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str, name: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        Self(directory.join(format!("{}-{test}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn orders(workloads: Vec<Workload>) -> Vec<u8> {
    let trial = Trial { seed: 1, warm_up_ns: 1_000_000, workloads };
    Orders { protocol: PROTOCOL, isolation: None, trial: Some(trial) }.to_json()
}

/// The first CPU and the last that this process may use; the same one on a machine with one.
fn cpus() -> [u32; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let numbers: Vec<u32> = list.split([',', '-']).map(|number| number.parse().unwrap()).collect();
    [numbers[0], *numbers.last().unwrap()]
}

fn pingpong(via: Channel, between: Partners, cpus: [u32; 2]) -> Workload {
    Workload::Pingpong(Pingpong { name: "wake".to_owned(), via, between, cpus, rounds: ROUNDS })
}

fn hogs(load_percent: u8, spin: Spin) -> Workload {
    let name = format!("load-{load_percent}");
    Workload::Hogs(Hogs { name, cpus: vec![cpus()[1]], per_cpu: 2, load_percent, spin })
}

/// What the agent says with these orders, and how it ended.
fn run(test: &str, orders: &[u8]) -> (Vec<Message>, Output) {
    let (input, output) = (Scratch::new(test, "orders"), Scratch::new(test, "frames"));
    fs::write(&input.0, orders).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_twinboot-agent"))
        .args(["--orders".as_ref(), input.0.as_os_str(), "--output".as_ref(), output.0.as_os_str()])
        .output()
        .unwrap();
    let mut decoder = Decoder::new();
    decoder.push(&fs::read(&output.0).unwrap());
    let messages = std::iter::from_fn(|| decoder.next().unwrap()).map(|(_, message)| message).collect();
    assert_eq!(decoder.left_over(), 0);
    (messages, ended)
}

/// Runs the workloads and gives their results.
fn results(test: &str, workloads: Vec<Workload>) -> Vec<WorkloadResult> {
    let count = workloads.len();
    let (messages, ended) = run(test, &orders(workloads));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let [
        Message::Hello { protocol: PROTOCOL, .. },
        Message::Machine(machine),
        Message::Phase { phase: Phase::Armed, guest_ns: armed },
        Message::Phase { phase: Phase::WarmUp, guest_ns: warm_up },
        Message::Phase { phase: Phase::WindowOpen, guest_ns: open },
        Message::Phase { phase: Phase::WindowClosed, guest_ns: closed },
        results @ ..,
        Message::Done { results: done },
    ] = &messages[..]
    else {
        panic!("the order of {messages:?}");
    };
    assert!(machine.cpus.iter().any(|cpu| cpu.id == cpus()[0]));
    assert!(armed <= warm_up && warm_up < open && open < closed);
    assert_eq!((results.len(), *done), (count, count as u32));
    let result = |message: &Message| match message {
        Message::Result(result) => WorkloadResult::clone(result),
        other => panic!("{other:?} is no result"),
    };
    results.iter().map(result).collect()
}

fn check_pingpong(result: &WorkloadResult) {
    let WorkloadResult::Pingpong { name, expected, latency, window_ns } = result else {
        panic!("{result:?} is no ping-pong's");
    };
    assert_eq!((name.as_str(), *expected, latency.count()), ("wake", 2 * ROUNDS, 2 * ROUNDS));
    assert!(0 < *window_ns && latency.sum() <= (*window_ns).into(), "one wake-up after the other");
}

fn check_channel(via: Channel) {
    let [first, last] = cpus();
    for between in [Partners::Threads, Partners::Processes] {
        for cpus in [[first, last], [last, last]] {
            let results = results(&format!("{via:?}-{between:?}"), vec![pingpong(via, between, cpus)]);
            check_pingpong(&results[0]);
        }
    }
}

#[test]
fn futex() {
    check_channel(Channel::Futex);
}

#[test]
fn pipe() {
    check_channel(Channel::Pipe);
}

#[test]
fn eventfd() {
    check_channel(Channel::Eventfd);
}

#[test]
fn socketpair() {
    check_channel(Channel::Socketpair);
}

#[test]
fn sched_yield() {
    check_channel(Channel::Yield);
}

#[test]
fn hogs_run_beside() {
    let [first, _] = cpus();
    for between in [Partners::Threads, Partners::Processes] {
        let workloads = vec![
            hogs(100, Spin::Hint),
            pingpong(Channel::Futex, between, [first, first]),
            hogs(50, Spin::Plain),
        ];
        let results = results(&format!("hogs-{between:?}"), workloads);
        check_pingpong(&results[1]);
        for (result, expected) in [(&results[0], "load-100"), (&results[2], "load-50")] {
            let WorkloadResult::Hogs { name, threads, window_ns, .. } = result else {
                panic!("{result:?} is no hogs'");
            };
            assert_eq!((name.as_str(), *threads), (expected, 2));
            assert!(0 < *window_ns);
        }
    }
}

/// An ordinary machine isolates nothing; what can be counted is counted all the same.
#[test]
fn the_proof_of_isolation_comes_before_the_workloads() {
    let [_, last] = cpus();
    let proof = IsolationProof { cpus: vec![last], window_ns: 30_000_000, at_once: 1, spin: Spin::Plain };
    let workloads = vec![pingpong(Channel::Futex, Partners::Threads, [last, last])];
    let mut asked = Orders::from_json(&orders(workloads)).unwrap();
    asked.isolation = Some(proof);
    let (messages, ended) = run("isolation", &asked.to_json());
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let [_, Message::Machine(_), Message::Isolation(seen), Message::Phase { phase: Phase::Armed, .. }, ..] =
        &messages[..]
    else {
        panic!("the order of {messages:?}");
    };
    let has_timer = fs::read_to_string("/proc/interrupts")
        .is_ok_and(|text| text.contains("LOC:") || text.contains("arch_timer"));
    let counted = seen.ticks.iter().find(|ticks| ticks.cpu == last);
    assert_eq!(
        counted.map(|ticks| (ticks.busy, 30_000_000 <= ticks.window_ns)),
        has_timer.then_some((true, true))
    );
}

#[test]
fn summary_goes_to_standard_output() {
    let input = Scratch::new("summary", "orders");
    fs::write(&input.0, orders(vec![pingpong(Channel::Pipe, Partners::Threads, cpus())])).unwrap();
    let ended =
        Command::new(env!("CARGO_BIN_EXE_twinboot-agent")).arg("--orders").arg(&input.0).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success());
    assert!(
        text.contains(&format!("\"count\": {}", 2 * ROUNDS)) && text.contains("\"complete\": true"),
        "{text}"
    );
}

fn check_failure(test: &str, orders: &[u8], expected: &str) {
    let (messages, ended) = run(test, orders);
    assert_eq!(ended.status.code(), Some(1));
    let Some(Message::Failed { reason }) = messages.last() else {
        panic!("the end of {messages:?}");
    };
    assert_eq!(
        String::from_utf8_lossy(&ended.stderr).lines().last(),
        Some(&*format!("twinboot-agent: {reason}"))
    );
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn wrong_orders_fail_clearly() {
    let wake = pingpong(Channel::Futex, Partners::Threads, [0, 9_999]);
    check_failure(
        "no-json",
        b"{",
        "read the orders: the orders are not of the expected form: EOF while parsing",
    );
    check_failure("cpu", &orders(vec![wake]), "workload `wake` wants CPU 9999, which is not online");
    check_failure("none", &orders(vec![]), "read the orders: no workload ends by itself");
}

#[test]
fn wrong_usage_fails_clearly() {
    let agent = || Command::new(env!("CARGO_BIN_EXE_twinboot-agent"));
    let ended = agent().output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("usage:"));
    let ended = agent().args(["--orders", "/nowhere"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("read /nowhere: No such file"));
}
