// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bench that every test here gets for itself: a directory with a tiny kernel, an experiment, an
//! agent, fakes on PATH, and nothing of the person's own environment.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use twinboot_protocol::frame::encode;
use twinboot_protocol::{Cpu, Histogram, Machine, Message, PROTOCOL, Phase, WorkloadResult};

/// The program under test.
pub(crate) const TWINBOOT: &str = env!("CARGO_BIN_EXE_twinboot");

/// The repository.
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The tiny kernel's one file. The fake QEMU does what `guest` says.
const KERNEL: &str = "\
/* The scheduler. */
const char guest[] = \"guest:runs\";

int wakeup(void)
{
	return 1;
}

int sleep(void)
{
	return 2;
}
";

const EXPERIMENT: &str = "\
name: tiny
kernel:
  sources: [{directory: linux}]
guest:
  arch: x86_64
  topology: {sockets: 1, cores: 2, threads: 1}
  memory: 128M
  clock: virtual
  # The stand-in for QEMU saves nothing.
  checkpoint: false
arms: {base: {}, patched: {}}
trial:
  warm_up: 0s
  workloads: [pingpong: {via: futex, between: threads, cpus: [0, 1], rounds: 2000}]
judge:
  primary: pingpong.mean
  blocks: 6
";

/// A bench, and where things are on it.
pub(crate) struct Bench {
    directory: TempDir,
    root: PathBuf,
    path: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::named("bench")
    }

    /// A bench whose files all lie below a directory of this name; PATH's alone do not, as a colon would
    /// part them.
    pub(crate) fn named(name: &str) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let root = directory.path().join(name);
        let programs = directory.path().join("bin");
        for part in ["linux/kernel", "agent", "temporary"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        fs::create_dir(&programs).unwrap();
        for fake in ["make", "qemu-system-x86_64"] {
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(fake);
            symlink(there, programs.join(fake)).unwrap();
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let bench = Self { directory, root, path };
        bench.write("linux/Makefile", "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 3\nEXTRAVERSION = -rc1\n");
        bench.write("linux/Kbuild", "obj-y += kernel/\n");
        bench.write("linux/Kconfig", "config WANTED\n\tbool \"wanted\"\n\tdepends on NEEDED\n");
        bench.write("linux/kernel/x.c", KERNEL);
        bench.write("agent/twinboot-agent-x86_64", "no program");
        bench.write("experiment.yaml", EXPERIMENT);
        bench
    }

    /// A bench for what guests do. Under emulation and the host's clock they run one after the other, so
    /// that all output has one order; nothing is judged then.
    pub(crate) fn one_guest_at_a_time() -> Self {
        let bench = Self::new();
        bench.edit("experiment.yaml", "clock: virtual", "clock: wall\n  accel: tcg");
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Exchanges what stands in a file once.
    pub(crate) fn edit(&self, name: &str, old: &str, new: &str) {
        let text = self.read(name);
        assert_eq!(text.matches(old).count(), 1, "{old:?} stands once in {name}");
        self.write(name, text.replace(old, new));
    }

    /// Writes `change.patch`, which exchanges one thing in the kernel.
    pub(crate) fn patch(&self, old: &str, new: &str) {
        self.write("change.patch", diff(&self.read("linux/kernel/x.c"), old, new));
    }

    /// Writes what the agent in a good guest would send, and in one whose wake-ups take longer.
    pub(crate) fn record_agent(&self) {
        let plan = self.twinboot(&["plan", "experiment.yaml"]).succeeds().stdout;
        let line = plan.lines().find_map(|line| line.trim().strip_prefix("command line"));
        let command_line = line.unwrap().trim();
        for (name, latency_ns) in [("frames", 3000), ("frames-slow", 4000)] {
            fs::write(self.program(name), frames(command_line, latency_ns)).unwrap();
        }
    }

    /// `twinboot` on the bench.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TWINBOOT);
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null()).env_clear();
        command.env("PATH", &self.path).env("TMPDIR", self.path("temporary"));
        // Nobody, root neither, can make this directory.
        command.env("HOME", "/dev/null/home");
        command.env("TWINBOOT_CACHE", self.path("cache")).env("TWINBOOT_AGENT_DIR", self.path("agent"));
        command
    }

    pub(crate) fn twinboot(&self, arguments: &[&str]) -> Ended {
        self.outcome(&self.command(arguments).output().unwrap())
    }

    /// Runs the experiment, with `change.patch` if there is one.
    pub(crate) fn run(&self) -> Ended {
        let mut arguments = vec!["run", "experiment.yaml", "--out", "out"];
        if self.path("change.patch").exists() {
            arguments.extend(["--patch", "change.patch"]);
        }
        self.twinboot(&arguments)
    }

    /// What a finished program said, with what differs from run to run taken out.
    pub(crate) fn outcome(&self, output: &Output) -> Ended {
        let text = |bytes: &[u8]| self.without_chance(str::from_utf8(bytes).unwrap());
        Ended {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            raw: output.stdout.clone(),
        }
    }

    /// The targets that make was asked for.
    pub(crate) fn made(&self) -> Vec<String> {
        self.log("make.log")
    }

    /// What the guests that were booted did, each with its process's number.
    pub(crate) fn booted(&self) -> Vec<(u32, String)> {
        let split = |line: String| {
            let (process, guest) = line.split_once(' ').unwrap();
            (process.parse().unwrap(), guest.to_owned())
        };
        self.log("qemu.log").into_iter().map(split).collect()
    }

    /// A file beside the fakes.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.path().join("bin").join(name)
    }

    fn log(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.program(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn without_chance(&self, text: &str) -> String {
        let mut text = text.replace(&self.root.display().to_string(), "[BENCH]");
        let repository = fs::canonicalize(REPOSITORY).unwrap();
        text = text.replace(&repository.display().to_string(), "[REPOSITORY]");
        for (pattern, replacement) in [
            (r", about \d+ (s|min) left", ""),
            (r"\b\d+(\.\d+)? s\b", "[TIME]"),
            (r"\b[0-9a-f]{16,64}\b", "[HASH]"),
            (r"\d+ GiB free", "[SIZE] free"),
        ] {
            text = regex::Regex::new(pattern).unwrap().replace_all(&text, replacement).into_owned();
        }
        text
    }
}

/// What an ended program left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Standard output as it came.
    raw: Vec<u8>,
}

impl Ended {
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        self.ends_with(0)
    }

    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Whether something stands in what was said to the person.
    #[track_caller]
    pub(crate) fn says(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "no {what:?} in\n{self}");
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.raw).unwrap()
    }

    #[track_caller]
    pub(crate) fn snapshot(&self, name: &str) {
        insta::with_settings!({
            snapshot_path => "../snapshots",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, { insta::assert_snapshot!(name, self.to_string()) });
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr, .. } = self;
        writeln!(f, "exit code {code}\n----- stdout\n{stdout}----- stderr\n{stderr}-----")
    }
}

/// A patch that exchanges what stands in a file's text once.
pub(crate) fn diff(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old:?} stands once");
    let count = text.lines().count();
    let lines = text.lines().map(|line| match line.contains(old) {
        true => format!("-{line}\n+{}\n", line.replace(old, new)),
        false => format!(" {line}\n"),
    });
    let lines: String = lines.collect();
    format!("--- a/kernel/x.c\n+++ b/kernel/x.c\n@@ -1,{count} +1,{count} @@\n{lines}")
}

/// A mail with a patch, as `git format-patch` writes it.
pub(crate) fn mail(subject: &str, diff: &str) -> String {
    format!(
        "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n\
         From: A Developer <developer@example.org>\nDate: Tue, 2 Jan 2024 03:04:05 +0000\n\
         Subject: {subject}\n\nWords.\n---\n kernel/x.c | 2 +-\n\n{diff}-- \n2.47.3\n\n"
    )
}

/// What an agent in a guest of two CPUs sends.
fn frames(command_line: &str, latency_ns: u64) -> Vec<u8> {
    let cpu =
        |id: u32| Cpu { id, socket: 0, cluster: -1, core: i64::from(id), siblings: id.to_string(), node: 0 };
    let machine = Machine {
        release: "6.12.3-rc1".to_owned(),
        build_id: "74776962".to_owned(),
        command_line: command_line.to_owned(),
        possible: "0-1".to_owned(),
        online: "0-1".to_owned(),
        cpus: vec![cpu(0), cpu(1)],
        memory_kib: 120 << 10,
        ..Machine::default()
    };
    let mut latency = Histogram::new();
    (0..4000).for_each(|_| latency.record(latency_ns));
    let result = WorkloadResult::Pingpong {
        name: "pingpong".to_owned(),
        expected: 4000,
        latency,
        window_ns: 4000 * latency_ns,
    };
    let messages = [
        Message::Hello { protocol: PROTOCOL, agent: "fake".to_owned() },
        Message::Machine(Box::new(machine)),
        Message::Phase { phase: Phase::WindowOpen, guest_ns: 1 },
        Message::Phase { phase: Phase::WindowClosed, guest_ns: 2 },
        Message::Result(Box::new(result)),
        Message::Done { results: 1 },
    ];
    (0..).zip(&messages).flat_map(|(sequence, message)| encode(sequence, message)).collect()
}
