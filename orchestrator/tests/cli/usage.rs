// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verbs that say something and run nothing: help, plan, schema, completions, manual pages, doctor.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use crate::bench::{Bench, REPOSITORY};

#[test]
fn help_tells_verbs_options_and_exit_codes() {
    let bench = Bench::new();
    bench.twinboot(&["--help"]).succeeds().snapshot("help");
    bench.twinboot(&["run", "--help"]).succeeds().snapshot("help_of_run");
    bench.twinboot(&["replay", "--help"]).succeeds().snapshot("help_of_replay");
    assert!(bench.twinboot(&["--version"]).succeeds().stdout.starts_with("twinboot "));
}

#[test]
fn wrong_usage_ends_with_2() {
    let bench = Bench::new();
    #[track_caller]
    fn check(bench: &Bench, arguments: &[&str], says: &str) {
        bench.twinboot(arguments).ends_with(2).says(says);
    }
    check(&bench, &[], "Usage: twinboot");
    check(&bench, &["runn"], "a similar subcommand exists: 'run'");
    check(&bench, &["run"], "<FILE>");
    check(&bench, &["run", "missing.yaml"], "no experiment file missing.yaml");
    check(&bench, &["run", "."], "error: ");
    check(&bench, &["run", "experiment.yaml", "--seeds", "0"], "--seeds");
    let (series, patch) = (["--series", "a"], ["--patch", "b"]);
    check(
        &bench,
        &[&["run", "experiment.yaml"], &series[..], &patch[..]].concat(),
        "'--series <MBOX|DIR>' cannot be used with '--patch <FILE>...'",
    );
    check(&bench, &["plan", "experiment.yaml", "--range", "v1"], "--range wants `A..B`, not `v1`");
    check(&bench, &["plan", "experiment.yaml", "--aa", "--patch", "b"], "'--aa' cannot be used with");
    check(&bench, &["run", "--resume", "out", "--seeds", "9"], "cannot be used with");
    check(&bench, &["run", "--resume", "out", "--verify"], "cannot be used with");
    check(&bench, &["replay", "out"], "out: there is no run (no plan.json)");
    check(&bench, &["replay", "out", "first"], "invalid value 'first'");
    check(&bench, &["boot", "experiment.yaml", "other"], "there is no arm `other`; there are base, patched");
    check(&bench, &["report", "out"], "out: there is no run (no plan.json)");
    check(&bench, &["cache", "--prune", "much"], "invalid value 'much'");
    assert!(!bench.path("cache").exists(), "wrong usage makes nothing");
}

#[test]
fn a_wrong_experiment_file_is_shown_with_a_caret() {
    let bench = Bench::new();
    bench.edit("experiment.yaml", "rounds: 2000", "round: 2000");
    for verb in ["plan", "run"] {
        bench.twinboot(&[verb, "experiment.yaml"]).ends_with(2).snapshot("wrong_experiment");
    }
    assert_eq!(bench.made(), [""; 0]);
}

#[test]
fn the_plan_of_the_quick_experiment() {
    let bench = Bench::new();
    let mut command = bench.command(&["plan", "configs/quick.yaml"]);
    let output = command.current_dir(REPOSITORY).output().unwrap();
    bench.outcome(&output).succeeds().snapshot("plan_of_quick");
}

#[test]
fn the_plan_of_a_large_machine_with_isolated_cpus() {
    let bench = Bench::new();
    let small = "arch: x86_64\n  topology: {sockets: 1, cores: 2, threads: 1}\n  memory: 128M";
    let large = "machine: power9-104\n  isolate: {cpus: \"4-51,56-103\"}\n  cmdline: [nohz_full=8]";
    bench.edit("experiment.yaml", small, large);
    bench.twinboot(&["plan", "experiment.yaml"]).succeeds().snapshot("plan_of_a_large_machine");
    bench.edit("experiment.yaml", "cmdline: [nohz_full=8]", "memory: 768M");
    let refused = "memory node 0 has 384 MiB, and the machine pseries takes multiples of 256 MiB";
    bench.twinboot(&["plan", "experiment.yaml"]).ends_with(2).says(refused);
}

#[test]
fn a_plan_has_json_and_takes_changes() {
    let bench = Bench::new();
    let plan = bench.twinboot(&["plan", "experiment.yaml", "--json", "--seeds", "9"]).succeeds().json();
    assert_eq!(plan["experiment"]["name"], "tiny");
    assert_eq!(plan["trials"].as_array().unwrap().len(), 18);
    assert_eq!(plan["command"], "twinboot plan experiment.yaml --json --seeds 9");
    let plan = bench.twinboot(&["plan", "experiment.yaml", "--patch", "a.patch", "b c.patch"]).succeeds();
    assert!(plan.stdout.contains("[BENCH]/b c.patch"), "{plan}");
    let plan = bench.twinboot(&["plan", "experiment.yaml", "--aa"]).succeeds();
    assert!(plan.stdout.contains("arm again:"), "{plan}");
    let plan = bench.twinboot(&["plan", "experiment.yaml", "--verify", "--seeds", "5"]).succeeds();
    assert!(plan.stdout.contains("\nrun again and compared: trials "), "{plan}");
    bench.edit("experiment.yaml", "clock: virtual", "clock: wall");
    for verb in ["plan", "run"] {
        let refused =
            "--verify wants `clock: virtual`; under the host's clock no trial measures the same twice";
        bench.twinboot(&[verb, "experiment.yaml", "--verify"]).ends_with(2).says(refused);
    }
}

#[test]
fn a_plan_does_nothing() {
    let bench = Bench::new();
    let before = files(&bench.path(""));
    bench.twinboot(&["plan", "experiment.yaml"]).succeeds();
    assert_eq!(files(&bench.path("")), before);
    assert!(bench.made().is_empty() && bench.booted().is_empty());
}

/// Every file and directory below, sorted.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(files(&entry.path()));
        }
    }
    names.sort();
    names
}

#[test]
fn schemas_are_printed() {
    let bench = Bench::new();
    let schema = bench.twinboot(&["schema"]).succeeds();
    let published = fs::read_to_string(Path::new(REPOSITORY).join("configs/schema.json")).unwrap();
    assert_eq!(schema.stdout, published);
    let schema = bench.twinboot(&["schema", "result"]).succeeds().json();
    assert!(schema["properties"]["verdict"].is_object());
}

#[test]
fn completions_and_manual_pages_are_written() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let completions = bench.twinboot(&["completions", shell]).succeeds();
        assert!(completions.stdout.contains("resume"), "{shell}");
    }
    bench.twinboot(&["man", "manual"]).succeeds();
    assert!(bench.read("manual/twinboot.1").contains("Exit codes"));
    assert!(bench.read("manual/twinboot-run.1").contains("resume"));
}

#[test]
fn a_reader_may_close_standard_output_early() {
    let bench = Bench::new();
    let mut command = bench.command(&["schema"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // The reader goes away with the rest unread.
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "{\n");
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(0), ""));
}

#[test]
fn doctor_names_what_is_missing_and_what_mends_it() {
    let bench = Bench::new();
    let ended = bench.outcome(&bench.command(&["doctor"]).env("PATH", "").output().unwrap()).ends_with(7);
    let check = |mark: &str, program: &str, package: &str| {
        let mut lines =
            ended.stdout.lines().skip_while(|line| !line.starts_with(&format!("{mark}  {program} (")));
        assert!(lines.next().is_some(), "{program} in\n{ended}");
        let mend = lines.next().unwrap();
        assert!(mend.contains("apt-get install "), "{package} in\n{ended}");
        assert!(mend.ends_with(&format!(" {package}")), "{package} in\n{ended}");
    };
    for (program, package) in [
        ("make", "make"),
        ("gcc", "gcc"),
        ("ld", "binutils"),
        ("flex", "flex"),
        ("bison", "bison"),
        ("bc", "bc"),
        ("git", "git"),
        ("tar", "tar"),
        ("xz", "xz-utils"),
        ("cp", "coreutils"),
        ("qemu-system-x86_64", "qemu-system-x86"),
    ] {
        check("MISSING", program, package);
    }
    // Without these, x86-64 can still be tested.
    for (program, package) in [
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("qemu-system-ppc64", "qemu-system-ppc"),
        ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
        ("powerpc64le-linux-gnu-gcc", "gcc-powerpc64le-linux-gnu"),
    ] {
        check("lacking", program, package);
    }
}

#[test]
fn doctor_sees_when_an_architecture_is_mended() {
    let bench = Bench::new();
    let find = |what: &str| {
        // It succeeds all the while: x86-64 lacks nothing.
        let checks = bench.twinboot(&["doctor", "--json"]).succeeds().json();
        let mut checks = checks.as_array().unwrap().iter();
        checks.find(|check| check["what"] == what).unwrap().clone()
    };
    for (what, file) in [
        ("the agent for aarch64 guests", "agent/twinboot-agent-aarch64"),
        ("a shell for interactive ppc64le guests", "agent/busybox-ppc64le"),
    ] {
        assert_eq!(find(what)["state"], "lacking", "{what}");
        bench.write(file, "no program");
        assert_eq!(
            (&find(what)["state"], &find(what)["mend"]),
            (&"good".into(), &serde_json::Value::Null),
            "{what}"
        );
    }
    let mend = &find("the agent for ppc64le guests")["mend"];
    assert_eq!(mend, "ci/setup --cross && ci/build");
}

#[test]
fn doctor_has_json() {
    let bench = Bench::new();
    let checks = bench.twinboot(&["doctor", "--json"]).json();
    let find = |what: &str| {
        let mut checks = checks.as_array().unwrap().iter();
        checks.find(|check| check["what"].as_str().unwrap().starts_with(what)).unwrap()
    };
    let qemu = find("qemu-system-x86_64");
    assert_eq!(
        (&qemu["state"], &qemu["found"]),
        (&"good".into(), &"QEMU emulator version 10.0.2 (a fake)".into())
    );
    assert_eq!(find("the agent for x86_64")["state"], "good");
    assert_eq!(find("make")["found"], bench.program("make").display().to_string());
}
