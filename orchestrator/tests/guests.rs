// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring 3: the real program builds real kernels and boots them under emulation. Kernels stay in the
//! user's cache, so only the first run compiles. Needs what `ci/setup` installs and, in
//! TWINBOOT_AGENT_DIR, the agent that `ci/build` makes.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What one run came to.
struct Ran {
    exit: i32,
    result: Value,
    stderr: String,
    directory: PathBuf,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// An experiment on two CPUs under the wall clock, so that a guest boots in seconds.
fn experiment(patched: &str) -> String {
    format!(
        "name: test
kernel:
  sources:
    - debian: linux-source-6.12
    - tarball:
        url: https://cdn.kernel.org/pub/linux/kernel/v6.x/linux-6.12.tar.xz
        sha256: b1a2562be56e42afb3f8489d4c2a7ac472ac23098f1ef1c1e40da601f54625eb
guest:
  arch: x86_64
  topology: {{sockets: 1, cores: 4, threads: 1}}
  memory: 512M
  accel: tcg
  clock: wall
  cmdline: [rcupdate.rcu_cpu_stall_timeout=4]
arms:
  base: {{}}
  patched: {patched}
trial:
  warm_up: 500ms
  workloads:
    - pingpong: {{via: futex, between: threads, cpus: [0, 1], rounds: 2000}}
    - hogs: {{cpus: 2-3, per_cpu: 2, load: 100%, spin: hint}}
judge: {{primary: pingpong.mean, blocks: 2}}
"
    )
}

fn faulty(fault: &str) -> String {
    let patch = root().join("configs/patches/fault-injection.patch");
    experiment(&format!("{{patches: [{patch:?}], cmdline: [twinboot_fault={fault}]}}"))
}

fn twinboot() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinboot"));
    command.stdin(Stdio::null());
    command
}

fn ran(output: &Output, directory: PathBuf) -> Ran {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let exit = output.status.code().unwrap_or(-1);
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ran { exit, result, stderr, directory }
}

fn run_in(directory: &Path, yaml: &str) -> Ran {
    let file = directory.join("experiment.yaml");
    std::fs::write(&file, yaml).unwrap();
    let out = directory.join("run");
    let output = twinboot().arg("run").arg(&file).arg("--out").arg(&out).arg("--json").output().unwrap();
    ran(&output, out)
}

/// Runs an experiment with a fault in its second arm and checks what is said of it.
fn check_fault(fault: &str, class: &str, words: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let ran = run_in(directory.path(), &faulty(fault));
    assert_eq!(ran.exit, 6, "{}", ran.stderr);
    assert_eq!(ran.result["verdict"], "patch-fails");
    let found = &ran.result["faults"][0];
    assert_eq!(found["class"], class, "{found}");
    assert_eq!(found["arm"], "patched");
    for word in words {
        assert!(found["message"].as_str().unwrap().contains(word), "no `{word}` in {found}");
    }
}

/// Runs the quick experiment with more options.
fn run_quick(directory: &Path, options: &[&str]) -> Ran {
    let out = directory.join("run");
    let quick = root().join("configs/quick.yaml");
    let output =
        twinboot().arg("run").arg(&quick).args(options).arg("--json").arg("--out").arg(&out).output();
    ran(&output.unwrap(), out)
}

#[test]
fn a_panic_at_boot_is_told() {
    check_fault("panic-boot", "panic", &["while booting", "twinboot_fault: panic at boot"]);
}

#[test]
fn a_panic_under_load_is_told() {
    check_fault("panic-load", "panic", &["under load", "twinboot_fault: panic under load"]);
}

#[test]
fn an_oops_in_a_thread_is_told() {
    check_fault("oops", "oops", &["BUG: kernel NULL pointer dereference", "strike_under_load"]);
}

#[test]
fn a_cpu_without_interrupts_is_told() {
    check_fault("irqs-off", "rcu-stall", &["rcu: INFO:", "stall"]);
}

#[test]
fn a_silent_hang_is_told_with_the_place() {
    check_fault("hang", "hang", &["not a sign from the guest", "spin_without_interrupts"]);
}

#[test]
fn a_warning_that_only_the_patch_gives_is_told() {
    check_fault("warn", "warning", &["WARNING: CPU:", "twinboot_fault: a warning"]);
}

#[test]
fn the_agents_death_is_told() {
    check_fault("kill-agent", "agent-crash", &["Attempted to kill init"]);
}

#[test]
fn a_reset_without_a_word_is_told() {
    check_fault("reset", "triple-fault", &["the guest ended itself"]);
}

#[test]
fn the_same_warning_in_both_arms_is_no_regression() {
    let patch = root().join("configs/patches/fault-injection.patch");
    let arm = format!("{{patches: [{patch:?}], cmdline: [twinboot_fault=warn]}}");
    let yaml = experiment(&arm).replace("base: {}", &format!("base: {arm}"));
    let directory = tempfile::tempdir().unwrap();
    // Both arms are one kernel with one command line, which is what A/A is for.
    let file = directory.path().join("experiment.yaml");
    std::fs::write(&file, yaml).unwrap();
    let out = directory.path().join("run");
    let output =
        twinboot().arg("run").arg(&file).args(["--aa", "--json", "--out"]).arg(&out).output().unwrap();
    let ran = ran(&output, out);
    assert_eq!(ran.exit, 8, "{}", ran.stderr);
    assert_eq!(ran.result["design"]["complete"], 2, "{}", ran.result);
    let faults = ran.result["faults"].as_array().unwrap();
    let again = faults.iter().find(|fault| fault["arm"] == "again").unwrap();
    assert_eq!(again["also_in_base"], true, "{again}");
}

#[test]
fn a_comment_is_no_code_change() {
    let directory = tempfile::tempdir().unwrap();
    let patch = root().join("configs/patches/comment.patch");
    let ran = run_in(directory.path(), &experiment(&format!("{{patches: [{patch:?}]}}")));
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    assert_eq!(ran.result["verdict"], "no-code-change");
    assert_eq!(ran.result["trials"].as_array().unwrap().len(), 0);
}

#[test]
fn emulation_under_the_hosts_clock_is_shown_and_not_judged() {
    let directory = tempfile::tempdir().unwrap();
    let patch = root().join("configs/patches/wakeup-delay.patch");
    let ran = run_in(directory.path(), &experiment(&format!("{{patches: [{patch:?}]}}")));
    assert_eq!(ran.exit, 8, "{}", ran.stderr);
    assert_eq!(ran.result["topology"]["proven"], true, "{}", ran.result["topology"]);
    assert!(ran.result["trials"][0]["metrics"]["pingpong.mean"].as_f64().unwrap() > 0.0);
    assert!(ran.result["sentence"].as_str().unwrap().contains("never judged"));
}

/// One block of A/A under the virtual clock: the same kernel, orders and seed, so everything that the two
/// guests measured has to be equal to the last byte.
#[test]
fn the_virtual_clock_gives_the_same_digest_twice() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run_quick(directory.path(), &["--aa", "--seeds", "1"]);
    assert_eq!(ran.exit, 8, "one block cannot conclude: {}", ran.stderr);
    let digest = |trial: usize| ran.result["trials"][trial]["digest"].as_str().unwrap().to_owned();
    assert_eq!(digest(0), digest(1));
}

/// Runs trials again, in the run and after it, and takes a tampered record for what it is.
#[test]
fn a_trial_that_runs_again_measures_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run_quick(directory.path(), &["--aa", "--seeds", "1", "--verify"]);
    assert_eq!(ran.exit, 8, "one block cannot conclude: {}", ran.stderr);
    assert_eq!(ran.result["verdict"], "inconclusive", "{}", ran.result["sentence"]);
    let expected = serde_json::json!({"trials": 1, "equal": 1, "differing": []});
    assert_eq!(ran.result["verification"], expected);

    let replay = |number: &str| twinboot().arg("replay").arg(&ran.directory).arg(number).output().unwrap();
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let equal = replay("1");
    assert_eq!(equal.status.code(), Some(0), "{equal:?}");
    let digest = ran.result["trials"][0]["digest"].as_str().unwrap();
    assert!(said(&equal).ends_with(&format!("is equal: digest {digest}\n")), "{equal:?}");

    let file = ran.directory.join("trials/0002.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let latency = &mut record["results"][0]["pingpong"]["latency"];
    let sum = latency["sum"].as_u64().unwrap();
    latency["sum"] = (sum + 1).into();
    record["digest"] = "0".repeat(64).into();
    std::fs::write(&file, record.to_string()).unwrap();
    let differs = replay("2");
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    let first = format!("differs: results[0].pingpong.latency.sum: {} against {sum}\n", sum + 1);
    assert!(said(&differs).ends_with(&first), "{differs:?}");
}

/// The answer that the quick start gives, with as few blocks as can conclude.
/// Guests that were booted and saved apart from each other are one and the same.
#[test]
fn a_guest_saved_again_gives_the_same_trials() {
    let user = twinboot().args(["cache", "--json"]).output().unwrap();
    let user: Value = serde_json::from_slice(&user.stdout).unwrap();
    let user = Path::new(user["root"].as_str().unwrap());
    let digests = || {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        for part in ["sources", "kernels", "builds", "facts", "locks"] {
            std::os::unix::fs::symlink(user.join(part), cache.join(part)).unwrap();
        }
        let out = directory.path().join("run");
        let mut command = twinboot();
        command.arg("run").arg(root().join("configs/quick.yaml")).args(["--aa", "--seeds", "2", "--json"]);
        let output = command.arg("--out").arg(&out).env("TWINBOOT_CACHE", &cache).output().unwrap();
        let ran = ran(&output, out);
        let saved = std::fs::read_dir(cache.join("checkpoints")).unwrap().count();
        assert_eq!(saved, 1, "{}", ran.stderr);
        let trials = ran.result["trials"].as_array().unwrap().clone();
        trials.iter().map(|trial| trial["digest"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (first, second) = (digests(), digests());
    assert_eq!(first.len(), 4);
    assert_eq!(first, second);
    assert!(first.windows(3).all(|three| three[0] != three[2]), "seeds make no difference: {first:?}");
}

#[test]
fn a_microsecond_in_the_wakeup_path_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run_quick(directory.path(), &["--seeds", "6"]);
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    assert_eq!(ran.result["verdict"], "regressed");
    // The patch adds 1001 instructions, each a nanosecond, to every wake-up.
    let added = &ran.result["judgements"][0]["absolute_effect"];
    let end = |which: &str| added["interval"][which].as_f64().unwrap();
    assert!(end("low") <= 1001.0 && 1001.0 <= end("high"), "{added}");
}

/// Killed without a chance to clean up, a run leaves no QEMU and goes on where it was.
#[test]
fn a_killed_run_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("experiment.yaml");
    std::fs::write(&file, experiment("{patches: []}")).unwrap();
    let out = directory.path().join("run");
    let mut child = twinboot()
        .arg("run")
        .arg(&file)
        .args(["--aa", "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first = out.join("trials/0001.json");
    wait_until("the first trial is there", || first.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("no QEMU is left", || !qemu_runs_for(&out));
    let before = std::fs::read(&first).unwrap();

    let output = twinboot().args(["run", "--json", "--resume"]).arg(&out).output().unwrap();
    let ran = ran(&output, out);
    assert_eq!(ran.exit, 8, "{}", ran.stderr);
    assert_eq!(ran.result["trials"].as_array().unwrap().len(), 4);
    assert_eq!(std::fs::read(&first).unwrap(), before, "a trial was measured twice");
    let leftovers: Vec<_> = std::fs::read_dir(&ran.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".guest"))
        .collect();
    assert_eq!(leftovers, Vec::<String>::new());
}

/// Fails only when it never happens: kernels may have to be compiled first.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_secs(3600), "{what}: waited in vain");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a QEMU lives whose initramfs lies in this run directory.
fn qemu_runs_for(run: &Path) -> bool {
    let run = run.to_str().unwrap().as_bytes();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.starts_with(b"qemu-system-") && words.windows(run.len()).any(|window| window == run)
    })
}

/// A small machine of an architecture with two memory nodes and isolated CPUs, under the host's clock.
fn isolated(arch: &str, topology: &str, memory: &str, isolated: &str, partners: &str) -> String {
    let text = experiment("{patches: []}")
        .replace("arch: x86_64", &format!("arch: {arch}"))
        .replace("{sockets: 1, cores: 4, threads: 1}", topology)
        .replace(
            "memory: 512M",
            &format!(
                "memory: {memory}\n  nodes: 2\n  distances: [[10, 21], [21, 10]]\n  isolate: {{cpus: \"{isolated}\"}}"
            ),
        )
        .replace("cpus: [0, 1], rounds: 2000", &format!("cpus: {partners}, rounds: 200"))
        .replace("  cmdline: [rcupdate.rcu_cpu_stall_timeout=4]\n", "");
    // The proof wants the isolated CPUs to itself, and the load is not what is tested.
    let hogs = text.find("    - hogs").unwrap();
    let judge = text.find("judge:").unwrap();
    format!("{}{}", &text[..hogs], &text[judge..])
}

fn x86_isolated() -> String {
    isolated("x86_64", "{sockets: 2, cores: 1, threads: 2}", "512M", "2-3", "[2, 3]")
}

/// Runs one block of A/A.
fn run_once(yaml: &str, path: Option<&Path>) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("experiment.yaml");
    std::fs::write(&file, yaml).unwrap();
    let out = directory.path().join("run");
    let mut command = twinboot();
    if let Some(path) = path {
        let all = std::env::join_paths(
            std::iter::once(path.to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        command.env("PATH", all.unwrap());
    }
    let output = command.arg("run").arg(&file).args(["--aa", "--seeds", "1", "--json", "--out"]).arg(&out);
    ran(&output.output().unwrap(), out)
}

/// Boots a machine and wants all that was asked for to be proven.
fn check_proven(yaml: &str) {
    let ran = run_once(yaml, None);
    assert_eq!(ran.exit, 8, "{}", ran.stderr);
    for what in ["topology", "isolation"] {
        assert_eq!(ran.result[what]["proven"], true, "{}\n{}", ran.result[what], ran.stderr);
    }
    assert_eq!(ran.result["topology"]["observed"]["distances"][0][1], 21);
    assert!(ran.result["trials"][0]["metrics"]["pingpong.mean"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_x86_machine_and_its_isolation_are_proven() {
    check_proven(&x86_isolated());
}

#[test]
fn an_aarch64_machine_and_its_isolation_are_proven() {
    check_proven(&isolated("aarch64", "{sockets: 2, cores: 2, threads: 1}", "512M", "1,3", "[1, 3]"));
}

#[test]
fn a_ppc64le_machine_and_its_isolation_are_proven() {
    check_proven(&isolated("ppc64le", "{sockets: 2, cores: 1, threads: 4}", "1G", "4-7", "[4, 5]"));
}

/// Takes something away from an isolated machine, and wants to be told.
fn check_unproven(yaml: &str, path: Option<&Path>, words: &[&str]) {
    let ran = run_once(yaml, path);
    assert_eq!(ran.exit, 8, "{}", ran.stderr);
    assert_eq!(ran.result["verdict"], "invalid", "{}", ran.result);
    let sentence = ran.result["sentence"].as_str().unwrap();
    for word in words {
        assert!(sentence.contains(word), "no `{word}` in: {sentence}");
    }
}

fn with_parameter(parameter: &str) -> String {
    x86_isolated().replace("  clock: wall\n", &format!("  clock: wall\n  cmdline: [{parameter:?}]\n"))
}

#[test]
fn an_isolation_that_was_taken_away_is_told() {
    check_unproven(&with_parameter("nohz_full="), None, &["nohz_full", "CPU"]);
}

#[test]
fn a_boot_cpu_in_nohz_full_is_told() {
    // Without suspend the kernel takes it, but never all CPUs.
    check_unproven(&with_parameter("nohz_full=0,2-3"), None, &["CPU 0 is among them though not asked for"]);
    check_unproven(
        &with_parameter("nohz_full=0-3"),
        None,
        &["CPU 0 is named by `nohz_full=`", "CPU 0 boots"],
    );
}

#[test]
fn a_cpu_that_stays_offline_is_told() {
    check_unproven(&with_parameter("maxcpus=3"), None, &["CPU 3 is not online"]);
}

/// A QEMU that is told of other distances than the experiment asks for.
#[test]
fn other_distances_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("qemu-system-x86_64"))
        .find(|path| path.is_file())
        .unwrap();
    let wrapper = directory.path().join("qemu-system-x86_64");
    let script = format!(
        "#!/usr/bin/env bash\nargs=()\nfor arg; do args+=(\"${{arg/val=21/val=31}}\"); done\nexec {} \"${{args[@]}}\"\n",
        real.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    check_unproven(&x86_isolated(), Some(directory.path()), &["distance", "21", "31"]);
}
