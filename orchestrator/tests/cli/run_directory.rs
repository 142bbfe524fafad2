// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run leaves behind and what can be made of it: reports, going on, the cache.

use std::fs;

use serde_json::Value;

use crate::bench::Bench;
use crate::usage::files;

/// A bench with a finished run in `out`, a regression.
fn with_run() -> Bench {
    let bench = Bench::new();
    bench.record_agent();
    bench.patch("guest:runs", "guest:slow");
    bench.run().ends_with(1);
    bench
}

#[test]
fn a_run_is_reported_as_often_as_asked() {
    let bench = with_run();
    let report = bench.twinboot(&["report", "out"]).ends_with(1);
    assert!(report.stdout.contains("patched") && report.stdout.contains("pingpong.mean"), "{report}");
    assert_eq!(report.stderr, "");
    let json = bench.twinboot(&["report", "out", "--json"]).ends_with(1).json();
    assert_eq!((&json["verdict"], &json["exit_code"]), (&"regressed".into(), &1.into()));
    assert_eq!(json["trials"].as_array().unwrap().len(), 12);
    let markdown = bench.twinboot(&["report", "out", "--format", "markdown"]).ends_with(1);
    assert_eq!(markdown.stdout.lines().next(), bench.read("out/report.md").lines().next());
}

#[test]
fn a_run_directory_holds_the_whole_story() {
    let bench = with_run();
    let mut names: Vec<_> = fs::read_dir(bench.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(".lock"))
        .collect();
    names.sort();
    let expected =
        ["consoles", "events.jsonl", "plan.json", "report.md", "result.json", "setting.json", "trials"];
    assert_eq!(names, expected, "and no file of a guest");
    assert_eq!(fs::read_dir(bench.path("out/trials")).unwrap().count(), 12);
    for line in bench.read("out/events.jsonl").lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["unix_ms"].is_u64() && !event["event"].is_null(), "{line}");
    }
}

#[test]
fn going_on_repeats_nothing() {
    let bench = with_run();
    let before = bench.read("out/result.json");
    let (booted, made) = (bench.booted(), bench.made());
    let ended = bench.twinboot(&["run", "--resume", "out"]).ends_with(1);
    ended.says("12 of them done before");
    assert_eq!((bench.booted(), bench.made()), (booted.clone(), made.clone()));

    // A run that was killed before its last trials.
    for lost in ["result.json", "report.md", "trials/0011.json", "trials/0012.json"] {
        fs::remove_file(bench.path("out").join(lost)).unwrap();
    }
    bench.twinboot(&["report", "out"]).ends_with(8).snapshot("unfinished_run");
    // It may go on from anywhere.
    let mut command = bench.command(&["run", "--resume"]);
    command.arg(bench.path("out")).current_dir("/");
    bench.outcome(&command.output().unwrap()).ends_with(1);
    assert_eq!(bench.booted().len(), booted.len() + 2);
    assert_eq!(bench.made(), made);
    let verdict = |text: &str| serde_json::from_str::<Value>(text).unwrap()["judgements"].clone();
    assert_eq!(verdict(&bench.read("out/result.json")), verdict(&before));
}

#[test]
fn going_on_with_what_is_no_run_or_another_run_is_refused() {
    let bench = with_run();
    bench.twinboot(&["run", "--resume", "nowhere"]).ends_with(2).says("nowhere: there is no run");
    bench.edit("experiment.yaml", "name: tiny", "name: other");
    let ended = bench.twinboot(&["run", "experiment.yaml", "--resume", "out"]).ends_with(2);
    ended.says("out is a run of `tiny`, not of `other`");
    bench.edit("change.patch", "guest:slow", "guest:runs!");
    let ended = bench.twinboot(&["run", "--resume", "out"]).ends_with(2);
    ended.says("the kernel of arm `patched` is not the one that the earlier trials ran");
}

#[test]
fn a_run_is_never_overwritten() {
    let bench = with_run();
    let before = bench.read("out/result.json");
    bench.run().ends_with(2).says("out: there is a run already; `--resume out` goes on with it");
    assert_eq!(bench.read("out/result.json"), before);

    // Without --out each run has a directory of its own; the second finds its kernels in the cache.
    let made = bench.made();
    for number in [1, 2] {
        bench.twinboot(&["run", "experiment.yaml", "--patch", "change.patch"]).ends_with(1);
        assert!(bench.path(&format!("twinboot-run-tiny-{number}/result.json")).is_file());
    }
    assert_eq!(bench.made(), made);
}

#[test]
fn a_replayed_trial_is_compared() {
    let bench = with_run();
    let before = files(&bench.path("out"));
    let ended = bench.twinboot(&["replay", "out"]).succeeds();
    assert_eq!(ended.stdout, "trial 1 (patched) is equal: digest [HASH]\n");
    let json = bench.twinboot(&["replay", "out", "3", "--json"]).succeeds().json();
    assert_eq!((&json["trial"], &json["arm"], &json["equal"]), (&3.into(), &"base".into(), &true.into()));
    assert_eq!(json["before"], json["again"]);
    assert_eq!(files(&bench.path("out")), before);
    assert_eq!(files(&bench.path("temporary")), [""; 0], "nothing is left lying around");

    // Another figure than the guest measures.
    let mut record: Value = serde_json::from_str(&bench.read("out/trials/0003.json")).unwrap();
    record["digest"] = "0".repeat(64).into();
    record["results"][0]["pingpong"]["window_ns"] = 1.into();
    bench.write("out/trials/0003.json", record.to_string());
    bench.twinboot(&["replay", "out", "3"]).ends_with(1).snapshot("replay_differs");
    let json = bench.twinboot(&["replay", "out", "3", "--json"]).ends_with(1).json();
    let difference = "results[0].pingpong.window_ns: 1 against 12000000";
    assert_eq!((&json["equal"], &json["difference"]), (&false.into(), &difference.into()));
}

#[test]
fn a_replay_makes_a_lost_kernel_again_and_takes_no_other() {
    let bench = with_run();
    let made = bench.made();
    bench.twinboot(&["cache", "--prune", "0"]).succeeds();
    bench.twinboot(&["replay", "out"]).succeeds();
    assert!(made.len() < bench.made().len());
    bench.twinboot(&["cache", "--prune", "0"]).succeeds();
    bench.edit("change.patch", "guest:slow", "guest:runs!");
    let other = "the kernel of arm `patched` is not the one that the earlier trials ran";
    bench.twinboot(&["replay", "out"]).ends_with(2).says(other);
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let bench = with_run();
    let other = "there is no trial 13; the run has the trials 1 to 12";
    bench.twinboot(&["replay", "out", "13"]).ends_with(2).says(other);
    bench.edit("out/plan.json", r#""clock": "virtual""#, r#""clock": "wall""#);
    bench.twinboot(&["replay", "out"]).ends_with(2).snapshot("replay_under_the_wall_clock");
    assert_eq!(bench.booted().len(), 12);
}

#[test]
fn verified_trials_are_in_the_result() {
    let bench = Bench::new();
    bench.record_agent();
    bench.patch("guest:runs", "guest:slow");
    let run = ["run", "experiment.yaml", "--patch", "change.patch", "--verify", "--out", "out"];
    bench.twinboot(&run).ends_with(1).snapshot("verified");
    let result: Value = serde_json::from_str(&bench.read("out/result.json")).unwrap();
    let expected = serde_json::json!({"trials": 2, "equal": 2, "differing": []});
    assert_eq!((&result["verification"], bench.booted().len()), (&expected, 14));
    assert!(bench.read("out/report.md").contains("- Run again: 2 of 12 trials, equal to the last digit.\n"));

    // A run that was killed before it had verified its last trial.
    let again = files(&bench.path("out/verified"));
    assert_eq!(again.len(), 4, "two records and two consoles: {again:?}");
    for lost in ["out/result.json", "out/report.md", &again[2]] {
        fs::remove_file(bench.path(lost)).unwrap();
    }
    let ended = bench.twinboot(&["report", "out"]).ends_with(1);
    assert!(ended.stdout.contains("not finished: 1 of 2 trials to verify ran again"), "{ended}");
    bench.twinboot(&["run", "--resume", "out"]).ends_with(1).says("1 trial runs once more");
    let result: Value = serde_json::from_str(&bench.read("out/result.json")).unwrap();
    assert_eq!((&result["verification"], bench.booted().len()), (&expected, 15));
}

#[test]
fn a_verified_trial_that_differs_makes_the_run_invalid() {
    let bench = Bench::new();
    bench.record_agent();
    bench.edit("linux/kernel/x.c", "guest:runs", "guest:drifts");
    bench.patch("return 1", "return 10");
    let run = ["run", "experiment.yaml", "--patch", "change.patch", "--verify", "--out", "out"];
    bench.twinboot(&run).ends_with(8).snapshot("verified_and_different");
    let result: Value = serde_json::from_str(&bench.read("out/result.json")).unwrap();
    assert_eq!((&result["verdict"], &result["verification"]["equal"]), (&"invalid".into(), &0.into()));
    assert_eq!(result["judgements"][0]["verdict"], "no-difference", "the judgement stands as it was");
    assert!(bench.read("out/report.md").contains("of which 2 DIFFER from the first time."));
}

#[test]
fn a_run_that_is_settled_early_says_that_it_verified_nothing() {
    let bench = Bench::new();
    bench.record_agent();
    bench.patch("guest:runs", "guest:panics");
    let run = ["run", "experiment.yaml", "--patch", "change.patch", "--verify", "--out", "out"];
    let ended = bench.twinboot(&run).ends_with(6);
    assert!(ended.stdout.contains("WARNING: no trial was run again"), "{ended}");
    assert!(!bench.path("out/verified").exists());
    // What ended with a fault is replayed all the same.
    let ended = bench.twinboot(&["replay", "out"]).succeeds();
    assert_eq!(ended.stdout, "trial 1 (patched) is equal: kernel panic while booting again\n");
}

#[test]
fn the_cache_is_shown_and_pruned() {
    let bench = Bench::new();
    let empty = bench.twinboot(&["cache", "--json"]).succeeds().json();
    assert_eq!(empty["entries"].as_array().unwrap().len(), 0);
    bench.patch("/* The scheduler. */", "/* The best scheduler. */");
    bench.run().succeeds();
    // Which entry was used last may be a matter of a clock tick, so only the sum's line is compared.
    let shown = bench.twinboot(&["cache"]).succeeds().stdout;
    assert_eq!(shown.lines().count(), 6, "{shown}");
    assert!(shown.ends_with("in all; the limit is 30 GiB (TWINBOOT_CACHE_SIZE)\n"), "{shown}");
    // A source, two kernels and their objects.
    let json = bench.twinboot(&["cache", "--json"]).succeeds().json();
    assert_eq!(json["entries"].as_array().unwrap().len(), 5);
    bench.twinboot(&["cache", "--prune", "0"]).succeeds().says("removed 5 entries");
    let json = bench.twinboot(&["cache", "--json"]).succeeds().json();
    assert_eq!(json["entries"].as_array().unwrap().len(), 0);
}
