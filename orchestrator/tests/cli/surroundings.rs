// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same outcome wherever and however Twinboot is started.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bench::{Bench, TWINBOOT};

#[test]
fn neither_place_nor_locale_nor_missing_input_matters() {
    let bench = Bench::named("a b, ö:c");
    bench.record_agent();
    bench.patch("guest:runs", "guest:slow");
    let [experiment, patch, out] = ["experiment.yaml", "change.patch", "out"].map(|name| bench.path(name));
    // The shell closes what a Command cannot: standard input.
    let mut command = Command::new("bash");
    command.args(["-c", "exec \"$@\" <&-", "bash", TWINBOOT, "run"]);
    command.arg(experiment).arg("--patch").arg(patch).arg("--out").arg(&out).current_dir("/");
    let like = bench.command(&[]);
    let environment = like.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.env_clear().envs(environment).env("LANG", "tr_TR.UTF-8").env("LC_ALL", "tr_TR.UTF-8");
    let ended = bench.outcome(&command.output().unwrap()).ends_with(1);
    assert!(ended.stdout.contains("pingpong.mean"), "{ended}");
    assert!(Path::new(&out).join("report.md").is_file());
    assert_eq!(bench.booted().len(), 12);

    // make takes no such path, so objects lie elsewhere; they are found and removed all the same.
    let entries = bench.command(&["cache", "--json"]).output().unwrap().stdout;
    let entries: serde_json::Value = serde_json::from_slice(&entries).unwrap();
    let paths = entries["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap());
    let outside =
        paths.map(Path::new).find(|path| !path.starts_with(bench.path("cache"))).unwrap().to_owned();
    bench.twinboot(&["cache", "--prune", "0"]).succeeds().says("removed 5 entries");
    // Fails unless it is empty.
    fs::remove_dir(outside.parent().unwrap()).unwrap();
}
