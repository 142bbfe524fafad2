// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot plan`: all of it, without doing anything.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::experiment::{Changes, Verification};
use super::output;
use crate::analyse::words::count;
use crate::config::{Guest, Isolate, PatchSource, Source, Topology, cpu_words};
use crate::error::Error;
use crate::exit::Exit;
use crate::plan::{self, Plan};
use crate::vm::qemu::Engine;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The experiment
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    verification: Verification,
    /// Print the plan as JSON, as a run directory holds it
    #[arg(long)]
    json: bool,
}

pub(super) async fn plan(arguments: &Arguments) -> Result<Exit, Error> {
    let plan = arguments.verification.of(arguments.changes.plan(&arguments.file)?)?;
    if arguments.json {
        output::print_json(&plan)?;
    } else {
        output::print(&describe(&plan)?)?;
    }
    Ok(Exit::NoRegression)
}

/// The plan in words.
fn describe(plan: &Plan) -> Result<String, Error> {
    let experiment = &plan.experiment;
    let mut text = format!("experiment {}", experiment.name);
    if let Some(question) = &experiment.question {
        let _ = write!(text, ": {question}");
    }
    text.push_str("\n\nkernel source, the first that is there:\n");
    for source in &experiment.kernel.sources {
        let _ = writeln!(text, "  {}", source_words(source));
    }
    text.push('\n');
    describe_guest(&experiment.guest, &mut text);
    let engine = plan.engine();
    let shown_engine = engine.unwrap_or(Engine::Kvm);
    for arm in &experiment.arms {
        let requests = plan.requests(arm).map_err(plan::PlanError::from)?;
        let _ = writeln!(text, "\narm {}:", arm.name);
        for patch in &arm.patches {
            let _ = writeln!(text, "  patches        {}", patch_words(patch));
        }
        let _ = writeln!(text, "  configuration  {} options over tinyconfig", requests.0.len());
        let _ = writeln!(text, "  make           O=out ARCH={} {}", plan.arch().make_arch, plan.arch().image);
        let _ = writeln!(text, "  command line   {}", plan.command_line(arm, shown_engine));
        let _ = writeln!(text, "  qemu           {}", plan.shown_qemu(arm, shown_engine));
    }
    text.push_str("\nkernel parameters that Twinboot adds:\n");
    for parameter in plan.arch().parameters.iter().chain(plan.arch().tcg_parameters) {
        let _ = writeln!(text, "  {:<16} {}", parameter.text, parameter.reason);
    }
    let order: Vec<&str> = plan.trials.iter().map(|trial| experiment.arms[trial.arm].name.as_str()).collect();
    let _ =
        writeln!(text, "\n{} trials in {} blocks: {}", order.len(), experiment.judge.blocks, order.join(" "));
    if plan.restores(shown_engine) {
        text.push_str("each arm's guest boots once, and is restored for each trial\n");
    } else if let Some(why) = plan.arch().no_checkpoints.filter(|_| experiment.guest.checkpoint) {
        let _ = writeln!(text, "each trial boots: {why} when it is restored");
    }
    let again: Vec<String> = plan.to_verify().iter().map(|trial| trial.number.to_string()).collect();
    if !again.is_empty() {
        let _ = writeln!(text, "run again and compared: trials {}", again.join(", "));
    }
    let metrics: Vec<String> = experiment.judge.metrics().map(ToString::to_string).collect();
    let _ = writeln!(text, "judged: {}", metrics.join(", "));
    if engine.is_none() {
        text.push_str(
            "engine: KVM if a probe guest runs under it, else emulation (then nothing is judged)\n",
        );
    }
    let estimate = plan::estimate(plan, shown_engine);
    let _ = writeln!(
        text,
        "\ntime on two cores, about: source {}, first kernel {}, each other kernel {}, each trial {}; in all {}",
        minutes(estimate.source),
        minutes(estimate.first_build),
        minutes(estimate.other_build),
        minutes(estimate.each_trial),
        minutes(estimate.total)
    );
    Ok(text)
}

/// The machine and its isolated CPUs.
fn describe_guest(guest: &Guest, text: &mut String) {
    let Topology { sockets, clusters, cores, threads, nodes, distances } = &guest.topology;
    let clusters = if *clusters == 1 { String::new() } else { format!(" x {}", count(*clusters, "cluster")) };
    let _ = writeln!(
        text,
        "guest: {}, {} ({}{clusters} x {} x {}), {} MiB of memory",
        guest.arch,
        count(guest.topology.cpus(), "CPU"),
        count(*sockets, "socket"),
        count(*cores, "core"),
        count(*threads, "thread"),
        guest.topology.memory_mib()
    );
    for (id, node) in nodes.iter().enumerate().filter(|_| 1 < nodes.len()) {
        let near = if node.cpus.is_empty() { "no CPU".to_owned() } else { cpu_words(&node.cpus) };
        let row: Vec<String> = distances[id].iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  node {id:<3} {near}, {} MiB, distances {}", node.memory_mib, row.join(" "));
    }
    if let Some(Isolate { cpus, from }) = &guest.isolate {
        let from: Vec<&str> = from.iter().map(|from| from.name()).collect();
        let _ = writeln!(text, "  isolated {} from {}", cpu_words(cpus), from.join(", "));
    }
}

fn source_words(source: &Source) -> String {
    use crate::config::Location;
    let at = |location: &Location| match location {
        Location::Path(path) => path.display().to_string(),
        Location::Url(url) => url.clone(),
    };
    match source {
        Source::Git { repository, revision } => format!("git {} at {revision}", at(repository)),
        Source::Directory(path) => format!("directory {}", path.display()),
        Source::Tarball { location, .. } => format!("tarball {}", at(location)),
        Source::Debian { package } => format!("Debian's package {package}"),
    }
}

fn patch_words(patch: &PatchSource) -> String {
    match patch {
        PatchSource::Path(path) => path.display().to_string(),
        PatchSource::Range { range, .. } => format!("commits {range}"),
        PatchSource::Revert { commit, .. } => format!("revert {commit}"),
    }
}

fn minutes(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..90 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
