// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches that do not apply and kernels that do not build.

use std::fs;
use std::os::unix::fs::symlink;

use crate::bench::{Bench, diff, mail};

/// A patch that is refused before anything is built.
#[track_caller]
fn check_refused(bench: &Bench, option: &str, says: &[&str]) {
    let arguments = ["run", "experiment.yaml", "--out", "out", option, "patches"];
    let ended = bench.twinboot(&arguments).ends_with(3);
    for what in says {
        assert!(ended.stderr.contains(what), "{what:?} in\n{ended}");
    }
    assert!(bench.made().is_empty(), "nothing was built");
}

#[test]
fn a_patch_that_does_not_apply_is_named_with_file_and_hunk() {
    let bench = Bench::new();
    bench.patch("return 2", "return 3");
    bench.edit("linux/kernel/x.c", "return 2", "return 2 + 2");
    bench.run().ends_with(3).snapshot("patch_does_not_apply");
    assert!(bench.made().is_empty(), "nothing was built");
}

#[test]
fn an_incomplete_series_is_refused() {
    let bench = Bench::new();
    let kernel = bench.read("linux/kernel/x.c");
    let first = mail("[PATCH 1/3] x: one", &diff(&kernel, "return 1", "return 10"));
    let third = mail("[PATCH 3/3] x: three", &diff(&kernel, "return 2", "return 20"));
    bench.write("patches", first + &third);
    check_refused(&bench, "--series", &["2/3 is missing of the 3 patches"]);
}

#[test]
fn carriage_returns_are_named() {
    let bench = Bench::new();
    let patch = diff(&bench.read("linux/kernel/x.c"), "return 1", "return 10");
    bench.write("patches", mail("[PATCH] x: one", &patch).replace('\n', "\r\n"));
    check_refused(
        &bench,
        "--patch",
        &["`x: one`", "its lines end in CR LF", "sed -i 's/\\r$//' [BENCH]/patches"],
    );
}

#[test]
fn no_patch_where_one_should_be() {
    let bench = Bench::new();
    check_refused(&bench, "--patch", &["read [BENCH]/patches"]);
    bench.write("patches", "Dear all,\n\nplease see the attached patch.\n");
    fs::remove_dir_all(bench.path("out")).unwrap();
    check_refused(&bench, "--series", &["find a patch in [BENCH]/patches"]);
}

#[test]
fn a_source_that_is_no_kernel_is_the_experiments_fault() {
    let bench = Bench::new();
    fs::remove_file(bench.path("linux/Kbuild")).unwrap();
    bench.run().ends_with(2).says("use directory [BENCH]/linux as a kernel source: it has no Kbuild");
    fs::remove_dir_all(bench.path("linux")).unwrap();
    fs::remove_dir_all(bench.path("out")).unwrap();
    bench.run().ends_with(2).says("find directory [BENCH]/linux: no such directory");
}

#[test]
fn a_host_without_make_is_sent_to_the_doctor() {
    let bench = Bench::new();
    let some = bench.path("some");
    fs::create_dir(&some).unwrap();
    symlink(bench.program("qemu-system-x86_64"), some.join("qemu-system-x86_64")).unwrap();
    for program in ["bash", "cp", "dirname", "env", "gcc", "git", "ld"] {
        let path = std::env::var_os("PATH").unwrap();
        let there = std::env::split_paths(&path).map(|directory| directory.join(program));
        symlink(there.into_iter().find(|file| file.exists()).unwrap(), some.join(program)).unwrap();
    }
    let mut command = bench.command(&["run", "experiment.yaml", "--out", "out"]);
    bench.outcome(&command.env("PATH", some).output().unwrap()).ends_with(7).snapshot("no_make");
}

#[test]
fn a_host_without_an_agent_finds_out_first() {
    let bench = Bench::new();
    fs::remove_file(bench.path("agent/twinboot-agent-x86_64")).unwrap();
    bench
        .run()
        .ends_with(7)
        .says("find the agent for x86_64: there is no [BENCH]/agent/twinboot-agent-x86_64");
    assert!(bench.made().is_empty(), "nothing was built");
}

#[test]
fn a_kernel_that_does_not_compile_shows_the_compilers_words() {
    let bench = Bench::new();
    bench.patch("return 1;", "return one;");
    let ended =
        bench.run().ends_with(4).says("build the kernel of arm `patched`: the kernel does not compile:");
    // The compiler's own words differ from version to version.
    ended.says("kernel/x.c:6:16: error: 'one' undeclared");
    assert!(bench.booted().is_empty());
}

#[test]
fn an_option_that_the_kernel_drops_is_named_with_its_dependency() {
    let bench = Bench::new();
    bench.edit("experiment.yaml", "linux}]\n", "linux}]\n  options: {CONFIG_WANTED: y}\n");
    bench.run().ends_with(4).snapshot("option_dropped");
    assert_eq!(bench.made(), ["tinyconfig", "olddefconfig"], "nothing was compiled");
}

#[test]
fn a_fragment_that_is_not_there_is_found_while_planning() {
    let bench = Bench::new();
    bench.edit("experiment.yaml", "linux}]\n", "linux}]\n  fragments: [more.config]\n");
    let ended = bench.twinboot(&["plan", "experiment.yaml"]).ends_with(2);
    ended.says("read [BENCH]/more.config");
    bench.write("more.config", "CONFIG_A=y\nset B\n");
    let ended = bench.twinboot(&["plan", "experiment.yaml"]).ends_with(2);
    ended.says("more.config:2: expected `CONFIG_NAME=value` or `# CONFIG_NAME is not set`, found `set B`");
}

#[test]
fn arms_that_differ_in_kernel_parameters_alone_are_booted() {
    let bench = Bench::new();
    bench.edit("experiment.yaml", "patched: {}", "patched: {cmdline: [nosmt]}");
    bench.run();
    assert!(!bench.booted().is_empty());
}

#[test]
fn a_patch_that_changes_no_code_needs_no_boot() {
    let bench = Bench::new();
    bench.patch("/* The scheduler. */", "/* The best scheduler. */");
    bench.run().succeeds().snapshot("no_code_change");
    assert!(bench.booted().is_empty());
}
