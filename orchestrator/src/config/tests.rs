// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folders of experiment files: valid ones and what they become, wrong ones and their messages,
//! which lie beside them, and the published schema.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use twinboot_protocol::{Channel, Hogs, Partners, Pingpong, Spin, Workload};

use super::check::{OWN_FRAGMENTS, OWN_MACHINES, Place, parse};
use super::*;
use crate::vm::arch;

/// Where the package lies; the paths in messages are relative to it.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The experiment files of a folder, relative to the package.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(PACKAGE).join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let mut files: Vec<PathBuf> = names
        .map(|name| Path::new(folder).join(name))
        .filter(|path| path.extension() == Some(OsStr::new("yaml")))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} holds experiment files");
    files
}

/// What `load` does, with a home directory that is the same everywhere.
fn read(file: &Path) -> Result<Experiment, ConfigError> {
    let text = diagnose::decode(file, fs::read(Path::new(PACKAGE).join(file)).unwrap())?;
    let directory = file.parent().unwrap().to_owned();
    parse(file, &text, &Place { directory, home: Some("/home/someone".into()) })
}

/// A small valid experiment, with one line exchanged for others.
#[track_caller]
fn with(line: &str, replacement: &str) -> Result<Experiment, ConfigError> {
    let text = fs::read_to_string(Path::new(PACKAGE).join("tests/configs/valid/smallest.yaml")).unwrap();
    assert_eq!(text.matches(line).count(), 1, "{line:?} stands once");
    parse(Path::new("x.yaml"), &text.replace(line, replacement), &Place::default())
}

#[test]
fn wrong_files_get_helpful_messages() {
    for file in files("tests/configs/invalid") {
        let message = match read(&file) {
            Ok(experiment) => panic!("{} is refused, not {experiment:?}", file.display()),
            Err(error) => error.to_string(),
        };
        let name = file.file_stem().unwrap().to_str().unwrap();
        insta::with_settings!({
            snapshot_path => Path::new(PACKAGE).join("tests/configs/invalid"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, { insta::assert_snapshot!(name, message) });
    }
}

#[test]
fn valid_files_are_accepted() {
    for file in files("tests/configs/valid").iter().chain(&files("../configs")) {
        if let Err(error) = read(file) {
            panic!("{error}");
        }
    }
}

#[test]
fn every_key_arrives() {
    let directory = Path::new("tests/configs/valid");
    let experiment = read(&directory.join("every-key.yaml")).unwrap();
    let config = |fragments: Vec<Fragment>, options: &[(&str, &str)]| KernelConfig {
        fragments,
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let metric = |text: &str| text.parse::<Metric>().unwrap();
    let expected = Experiment {
        name: "every-key".to_owned(),
        question: Some("Does every key arrive?".to_owned()),
        file: directory.join("every-key.yaml"),
        kernel: Kernel {
            sources: vec![
                Source::Git {
                    repository: Location::Path("/home/someone/linux".into()),
                    revision: "v6.12".to_owned(),
                },
                Source::Git {
                    repository: Location::Url("https://example.org/linux.git".to_owned()),
                    revision: "master".to_owned(),
                },
                Source::Directory("/usr/src/linux".into()),
                Source::Tarball { location: Location::Path(directory.join("linux.tar.gz")), sha256: None },
                Source::Tarball {
                    location: Location::Url("https://example.org/linux.tar.xz".to_owned()),
                    sha256: Some("0123456789abcdef".repeat(4)),
                },
                Source::Debian { package: "linux-source-6.12".to_owned() },
            ],
            compiler: Compiler::Gcc,
            config: config(
                vec![
                    Fragment::Named("isolation".to_owned()),
                    Fragment::File(directory.join("own.config")),
                    Fragment::File(directory.join("fragments/extra")),
                ],
                &[("CONFIG_PREEMPT", "y"), ("CONFIG_HZ", "1000"), ("CONFIG_LOCALVERSION", "-mine")],
            ),
        },
        guest: Guest {
            arch: Arch::X86_64,
            topology: Topology {
                sockets: 2,
                clusters: 1,
                cores: 4,
                threads: 2,
                nodes: vec![
                    MemoryNode { cpus: (0..8).collect(), memory_mib: 1024 },
                    MemoryNode { cpus: (8..16).collect(), memory_mib: 1024 },
                ],
                distances: vec![vec![10, 21], vec![21, 10]],
            },
            isolate: Some(Isolate { cpus: (2..16).collect(), from: Disturbance::ALL.to_vec() }),
            accel: Accel::Kvm,
            emulator_threads: None,
            clock: Clock::Wall,
            checkpoint: false,
            cmdline: vec!["nosmt".to_owned(), r#"dyndbg="file core.c +p""#.to_owned()],
        },
        arms: vec![
            Arm {
                name: "base".to_owned(),
                patches: vec![],
                config: KernelConfig::default(),
                cmdline: vec![],
            },
            Arm {
                name: "patched".to_owned(),
                patches: vec![
                    PatchSource::Path(directory.join("patches/one.patch")),
                    PatchSource::Path("/tmp/series.mbox.gz".into()),
                    PatchSource::Range {
                        repository: Some(directory.join("../linux")),
                        range: "v6.12..topic".to_owned(),
                    },
                    PatchSource::Revert { repository: None, commit: "1234abcd".to_owned() },
                ],
                config: config(vec![Fragment::Named("trace".to_owned())], &[("CONFIG_PREEMPT", "n")]),
                cmdline: vec!["threadirqs".to_owned()],
            },
            Arm {
                name: "third".to_owned(),
                patches: vec![PatchSource::Range { repository: None, range: "a..b".to_owned() }],
                config: KernelConfig::default(),
                cmdline: vec![],
            },
        ],
        trial: Trial {
            warm_up_ns: 20_000_000,
            workloads: vec![
                Workload::Pingpong(Pingpong {
                    name: "pingpong".to_owned(),
                    via: Channel::Futex,
                    between: Partners::Threads,
                    cpus: [0, 15],
                    rounds: 10_000,
                }),
                Workload::Pingpong(Pingpong {
                    name: "pipe-2".to_owned(),
                    via: Channel::Pipe,
                    between: Partners::Processes,
                    cpus: [1, 1],
                    rounds: 1,
                }),
                Workload::Hogs(Hogs {
                    name: "hogs".to_owned(),
                    cpus: vec![2, 3, 8],
                    per_cpu: 2,
                    load_percent: 100,
                    spin: Spin::Hint,
                }),
                Workload::Hogs(Hogs {
                    name: "light".to_owned(),
                    cpus: vec![0, 4, 5],
                    per_cpu: 1,
                    load_percent: 1,
                    spin: Spin::Plain,
                }),
            ],
        },
        judge: Judge {
            primary: metric("pingpong.p999"),
            also: vec![metric("pingpong.mean"), metric("pipe-2.max")],
            minimum_effect: 0.025,
            blocks: 12,
            seed: 18_446_744_073_709_551_615,
        },
    };
    assert_eq!(experiment, expected);
}

#[test]
fn what_stands_beside_a_machine_replaces_its_parts() {
    let experiment = read(Path::new("tests/configs/valid/machine-from-a-file.yaml")).unwrap();
    let node = |cpus: std::ops::Range<u32>, memory_mib| MemoryNode { cpus: cpus.collect(), memory_mib };
    let expected = Guest {
        arch: Arch::Aarch64,
        topology: Topology {
            sockets: 1,
            clusters: 3,
            cores: 1,
            threads: 4,
            nodes: vec![node(0..8, 128), node(8..12, 256), node(0..0, 16)],
            distances: vec![vec![10, 20, 31], vec![20, 10, 32], vec![31, 32, 10]],
        },
        accel: Accel::Auto,
        emulator_threads: None,
        clock: Clock::Virtual,
        checkpoint: true,
        isolate: Some(Isolate {
            cpus: vec![0, 4, 5, 6, 7],
            from: vec![Disturbance::Tasks, Disturbance::Interrupts],
        }),
        cmdline: vec![],
    };
    assert_eq!(experiment.guest, expected);
}

/// A small experiment whose guest is described by `guest` alone.
#[track_caller]
pub(crate) fn with_guest(guest: &str) -> Result<Experiment, ConfigError> {
    with("topology: {sockets: 1, cores: 2, threads: 1}\n  memory: 128M\n  arch: x86_64", guest)
}

/// Twinboot's own machines, by name.
pub(crate) fn own_machines() -> Vec<(&'static str, (Arch, Topology))> {
    let machine = |name| {
        let guest = with_guest(&format!("machine: {name}")).unwrap().guest;
        (name, (guest.arch, guest.topology))
    };
    OWN_MACHINES.map(|(name, _)| machine(name)).to_vec()
}

#[test]
fn own_machines_are_valid_and_are_those_in_the_folder() {
    let mut names: Vec<String> = files("../configs/topologies")
        .iter()
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, OWN_MACHINES.map(|(name, _)| name));
    for (name, (arch, topology)) in own_machines() {
        assert_eq!(arch::spec(arch).refuse(&topology), None, "{name}");
        let cpus: u32 = name.rsplit_once('-').unwrap().1.parse().unwrap();
        assert_eq!(topology.cpus(), cpus, "{name}");
        // They are emulated on laptops.
        assert!(topology.memory_mib() <= 4096, "{name}");
    }
}

#[test]
fn nodes_are_shared_out_evenly() {
    #[track_caller]
    fn check(topology: &str, nodes: u32, expected: &str) {
        let text = format!("arch: aarch64\n  topology: {topology}\n  nodes: {nodes}\n  memory: 1G");
        let shown = match with_guest(&text) {
            Ok(experiment) => experiment
                .guest
                .topology
                .nodes
                .iter()
                .map(|node| cpu_words(&node.cpus))
                .collect::<Vec<_>>()
                .join(" "),
            Err(_) => "refused".to_owned(),
        };
        assert_eq!(shown, expected, "{topology} {nodes}");
    }
    check("{sockets: 2, cores: 2, threads: 2}", 1, "CPUs 0-7");
    check("{sockets: 2, cores: 2, threads: 2}", 2, "CPUs 0-3 CPUs 4-7");
    check("{sockets: 2, cores: 2, threads: 2}", 4, "CPUs 0-1 CPUs 2-3 CPUs 4-5 CPUs 6-7");
    check("{sockets: 2, cores: 2, threads: 2}", 8, "refused");
    check("{sockets: 4, cores: 1, threads: 1}", 2, "CPUs 0-1 CPUs 2-3");
    check("{sockets: 2, clusters: 2, cores: 1, threads: 1}", 4, "CPU 0 CPU 1 CPU 2 CPU 3");
    check("{sockets: 3, cores: 2, threads: 1}", 2, "refused");
    check("{sockets: 2, cores: 2, threads: 2}", 0, "refused");
    check("{sockets: 2, cores: 2, threads: 2}", 4_000_000_000, "refused");
}

#[test]
fn what_is_left_out_has_its_default() {
    let experiment =
        with_guest("machine: laptop-8\n  topology: {sockets: 2, cores: 1, threads: 1}\n  nodes: 2").unwrap();
    let Guest { topology, isolate, .. } = experiment.guest;
    assert_eq!(topology.distances, [[10, 20], [20, 10]]);
    assert_eq!((topology.clusters, isolate), (1, None));
    let experiment = read(Path::new("tests/configs/valid/smallest.yaml")).unwrap();
    assert_eq!((experiment.guest.accel, experiment.guest.clock), (Accel::Auto, Clock::Virtual));
    let Judge { also, minimum_effect, blocks, seed, .. } = experiment.judge;
    assert_eq!((also, minimum_effect, blocks, seed), (vec![], 0.05, 8, 1));
}

#[test]
fn single_values_are_held_against_the_rest() {
    #[track_caller]
    fn check(line: &str, replacement: &str, expected: &str) {
        let result = match with(line, replacement) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string().lines().next().unwrap().to_owned(),
        };
        assert_eq!(result, expected, "{replacement}");
    }
    let rounds = "rounds: 2000";
    let mean = "primary: pingpong.mean";
    check(mean, "primary: pingpong.p99", "accepted");
    check(mean, "primary: pingpong.p999", "x.yaml:13:12: too few samples for p999");
    check(rounds, "rounds: 0", "x.yaml:11:78: not a number of rounds");
    check(rounds, "rounds: 1000000001", "x.yaml:11:78: not a number of rounds");
    let cpus = "cpus: [0, 1]";
    check(cpus, "cpus: [1, 1]", "accepted");
    check(cpus, "cpus: [0]", "x.yaml:11:62: 1 CPUs for two partners");
    check(cpus, "cpus: [0, 2]", "x.yaml:11:66: there is no CPU 2");
    let accel = "memory: 128M";
    check(accel, "memory: 128M\n  accel: kvm\n  clock: wall", "accepted");
    check(accel, "memory: 128M\n  clock: wall", "accepted");
    check(accel, "memory: 128M\n  accel: kvm", "x.yaml:7:10: KVM has no virtual clock");
    check(accel, "memory: 128M\n  cmdline: [a b]", "x.yaml:7:13: several kernel parameters in one");
    let topology = "{sockets: 1, cores: 2, threads: 1}";
    check(topology, "{sockets: 1, cores: 8192, threads: 1}", "accepted");
    let too_many = "x.yaml:5:13: a topology with more CPUs than Linux can have";
    check(topology, "{sockets: 2, cores: 8192, threads: 1}", too_many);
    check(topology, "{sockets: 4294967295, cores: 4294967295, threads: 4}", too_many);
    check(topology, "{sockets: 0, cores: 1, threads: 1}", "x.yaml:5:23: a topology without CPUs");
    let source = "directory: /usr/src/linux";
    check(source, "git: {path: l, revision: -x}", "x.yaml:3:39: `-x` is not a revision");
    check(source, "git: {revision: x}", "x.yaml:3:19: no single place to get it from");
    check(source, "debian: linux-6.12", "x.yaml:3:22: `linux-6.12` is not a source package of the kernel");
    check(source, "directory: ~/linux", "x.yaml:3:25: no home directory");
    check(source, "tarball: {url: 'http://example.org/x'}", "x.yaml:3:29: not an address to download from");
    check(source, "tarball: {path: linux.tar, sha256: abc}", "x.yaml:3:49: not a SHA-256");
    check("arms: {base: {}", "arms: {again: {}", "x.yaml:8:8: the base cannot be called `again`");
    check("arms: {base: {}", "arms: {base: {options: {CONFIG_X2: 0x10}}", "accepted");
    check(
        "arms: {base: {}",
        "arms: {base: {options: {CONFIG_: y}}",
        "x.yaml:8:25: `CONFIG_` is not an option",
    );
    let short = "x.yaml:8:25: `CONFIGX` is not an option's full name";
    check("arms: {base: {}", "arms: {base: {options: {CONFIGX: y}}", short);
    check(mean, "primary: pingpong.mean\n  blocks: 200", "accepted");
    check(mean, "primary: pingpong.mean\n  blocks: 201", "x.yaml:14:11: not a number of blocks");
}

#[test]
fn the_parts_of_a_machine_are_held_against_each_other() {
    #[track_caller]
    fn check(guest: &str, expected: &str) {
        let result = match with_guest(guest) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string().lines().next().unwrap().to_owned(),
        };
        assert_eq!(result, expected, "{guest}");
    }
    let cpus = "arch: x86_64\n  topology: {sockets: 2, cores: 2, threads: 1}";
    let check_nodes = |rest: &str, expected: &str| check(&format!("{cpus}\n  {rest}"), expected);
    check_nodes("memory: 1G", "accepted");
    check_nodes("nodes: 2", "x.yaml:5:3: missing key `memory`");
    check_nodes("memory: 1G\n  distances: [[10]]", "accepted");
    check_nodes("memory: 1G\n  distances: [[11]]", "x.yaml:8:16: 11 is no distance from node 0 to node 0");
    check_nodes("nodes: []", "x.yaml:7:10: not a number of memory nodes");
    let nodes = "nodes: [{cpus: 0-1, memory: 64M}, {cpus: 2-3, memory: 64M}]";
    check_nodes(nodes, "accepted");
    check_nodes(&format!("{nodes}\n  memory: 128M"), "accepted");
    let small = nodes.replace("64M", "32M");
    check_nodes(&small, "x.yaml:7:10: 64M of memory in all nodes");
    // A machine's memory and distances serve its nodes; others need their own.
    let server = |rest: &str| format!("machine: x86-server-128\n  {rest}");
    check(&server("memory: 8G"), "accepted");
    check(&server("nodes: 1"), "x.yaml:5:12: not a distance from each of 1 nodes to each");
    check(&server("nodes: 1\n  distances: [[10]]"), "accepted");
    check(&server("nodes: [{cpus: 0-63, memory: 1G}, {cpus: 64-127, memory: 2G}]"), "accepted");
    check(&server("isolate: {cpus: 0-3, from: [tasks]}"), "accepted");
    check(&server("isolate: {cpus: 1-3, from: []}"), "x.yaml:6:30: isolated from nothing");
}

#[test]
fn patches_from_the_command_line_replace_those_of_the_second_arm() {
    let mut experiment = read(Path::new("tests/configs/valid/every-key.yaml")).unwrap();
    let before = experiment.clone();
    experiment.replace_patches(vec![PatchSource::Path("mine.patch".into())]);
    assert_eq!(experiment.arms[1].patches, [PatchSource::Path("mine.patch".into())]);
    assert_eq!(experiment.arms[1].config, before.arms[1].config);
    assert_eq!((&experiment.arms[0], &experiment.arms[2]), (&before.arms[0], &before.arms[2]));
}

#[test]
fn an_aa_run_compares_the_base_with_itself() {
    let mut experiment = read(Path::new("tests/configs/valid/every-key.yaml")).unwrap();
    let base = experiment.arms[0].clone();
    experiment.as_aa();
    assert_eq!(experiment.arms, [base.clone(), Arm { name: "again".to_owned(), ..base }]);
}

#[test]
fn a_missing_file_comes_with_its_likely_name() {
    let missing = |name: &str, there: &[&str]| {
        let file = Path::new(name);
        let error = crate::fs::read(Path::new("/nowhere/at/all")).unwrap_err();
        let is_file = |path: &Path| there.iter().any(|name| path == Path::new(name));
        ConfigError::unreadable(file, error, is_file).to_string()
    };
    assert_eq!(missing("quick", &[]), "no experiment file quick");
    assert_eq!(
        missing("quick", &["configs/quick.yaml"]),
        "no experiment file quick; did you mean configs/quick.yaml?"
    );
    assert_eq!(
        missing("quick.yaml", &["configs/quick.yaml"]),
        "no experiment file quick.yaml; did you mean configs/quick.yaml?"
    );
    assert_eq!(missing("a/b", &["a/b.yaml"]), "no experiment file a/b; did you mean a/b.yaml?");
}

#[test]
fn own_fragments_are_those_in_the_folder() {
    let mut names: Vec<String> = fs::read_dir(Path::new(PACKAGE).join("../kernel-configs"))
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str().unwrap().strip_suffix(".config").map(str::to_owned)
        })
        .filter(|name| name != "base" && name.parse::<Arch>().is_err())
        .collect();
    names.sort();
    assert_eq!(names, OWN_FRAGMENTS);
}

/// `TWINBOOT_BLESS=1 cargo test schema` writes it anew.
#[test]
fn the_published_schema_is_current() {
    let published = Path::new(PACKAGE).join("../configs/schema.json");
    let current = format!("{:#}\n", schema());
    if env::var_os("TWINBOOT_BLESS").is_some() {
        fs::write(&published, &current).unwrap();
    }
    assert_eq!(fs::read_to_string(&published).unwrap(), current);
}
