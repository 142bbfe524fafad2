// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of a run when its guests do this or that.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::{Bench, Ended};

/// Runs the experiment where the base's guests do one thing and the patched arm's another.
fn run(bench: &Bench, base: &str, patched: &str) -> Ended {
    bench.record_agent();
    bench.edit("linux/kernel/x.c", "guest:runs", &format!("guest:{base}"));
    if base == patched {
        bench.patch("return 1", "return 10");
    } else {
        bench.patch(&format!("guest:{base}"), &format!("guest:{patched}"));
    }
    bench.run()
}

#[test]
fn slower_wake_ups_are_a_regression() {
    let bench = Bench::new();
    run(&bench, "runs", "slow").ends_with(1).snapshot("regression");
    assert_eq!(bench.booted().len(), 12);
    for (process, _) in bench.booted() {
        assert!(!is_alive(process), "QEMU is ended with its trial");
    }
    assert_eq!(
        std::fs::read_dir(bench.path("temporary")).unwrap().count(),
        0,
        "nothing is left lying around"
    );
}

#[test]
fn equal_wake_ups_are_no_difference() {
    let bench = Bench::new();
    let ended = run(&bench, "runs", "runs").succeeds();
    assert!(ended.stdout.contains("no difference larger than 5 %"), "{ended}");
}

#[test]
fn only_the_patched_kernel_panics() {
    let bench = Bench::one_guest_at_a_time();
    run(&bench, "runs", "panics").ends_with(6).snapshot("patched_panics");
    assert_eq!(bench.booted().len(), 2, "the first block settles it");
}

#[test]
fn both_kernels_panic() {
    let bench = Bench::one_guest_at_a_time();
    run(&bench, "panics", "panics").ends_with(5).snapshot("both_panic");
}

#[test]
fn only_the_patched_kernel_warns() {
    let bench = Bench::one_guest_at_a_time();
    let ended = run(&bench, "runs", "warns").ends_with(6);
    assert!(ended.stdout.contains("WARNING: CPU: 1 PID: 42 at kernel/x.c:7"), "{ended}");
}

#[test]
fn a_qemu_that_refuses_is_the_hosts_trouble() {
    let bench = Bench::one_guest_at_a_time();
    run(&bench, "refused", "refused").ends_with(7).snapshot("qemu_refuses");
    assert_eq!(bench.booted().len(), 1, "it would refuse again");
}

#[test]
fn a_qemu_that_dies_gets_a_second_chance() {
    for (guest, snapshot) in [("killed", "qemu_killed"), ("gone", "qemu_gone")] {
        let bench = Bench::one_guest_at_a_time();
        run(&bench, guest, guest).ends_with(7).snapshot(snapshot);
        assert_eq!(bench.booted().len(), 2, "once and once more");
    }
}

#[test]
fn a_guest_that_is_not_what_was_asked_for_is_no_verdict() {
    let bench = Bench::one_guest_at_a_time();
    bench.record_agent();
    bench.edit("experiment.yaml", "cores: 2", "cores: 4");
    bench.patch("return 2", "return 3");
    bench.run().ends_with(8).snapshot("unproven");
}

#[test]
fn ctrl_c_leaves_a_run_to_resume_and_no_process() {
    let bench = Bench::one_guest_at_a_time();
    bench.edit("linux/kernel/x.c", "guest:runs", "guest:hangs");
    let mut command = bench.command(&["run", "experiment.yaml", "--aa", "--out", "out"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while bench.booted().is_empty() {
        assert_eq!(child.try_wait().unwrap(), None, "it waits for its guest");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let ended = bench.outcome(&child.wait_with_output().unwrap()).ends_with(7);
    ended.says("stopped by Ctrl-C; `twinboot run --resume out` goes on");
    assert!(!is_alive(bench.booted()[0].0), "QEMU ends with Twinboot");
}

/// Whether a process runs; one that has ended and that nobody has reaped yet does not.
fn is_alive(process: u32) -> bool {
    // Its name stands in parentheses before its state.
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}
