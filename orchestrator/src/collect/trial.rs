// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one trial left behind: from a guest's messages to a record with a digest and one number for each
//! metric. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinboot_protocol::{Histogram, Machine, Message, WorkloadResult};

use crate::agent::isolation::{self, Proof};
use crate::agent::verify::{self, Expected};
use crate::cache::digest;
use crate::config::{Isolate, Metric, Statistic};
use crate::vm::fault::Fault;
use crate::vm::guest::{GuestRun, Outcome};

/// One trial as it is stored in `trials/NNNN.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TrialRecord {
    pub(crate) number: u32,
    pub(crate) block: u32,
    pub(crate) arm: String,
    pub(crate) seed: u64,
    /// What went wrong, if anything. A mere warning leaves the measurements beside it.
    pub(crate) fault: Option<Fault>,
    /// Whether the completion frame came.
    pub(crate) complete: bool,
    /// Ways in which the guest or the measurement is not what was asked for.
    pub(crate) differences: Vec<String>,
    /// SHA-256 over all that the guest sent, as sent.
    pub(crate) digest: String,
    /// One number for each metric, in nanoseconds.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// How many samples stand behind each metric.
    pub(crate) samples: BTreeMap<String, u64>,
    pub(crate) machine: Option<Machine>,
    /// When the experiment isolates CPUs; its differences are among the others.
    pub(crate) isolation: Option<Proof>,
    pub(crate) results: Vec<WorkloadResult>,
    /// From QEMU's start to the agent's first frame, in seconds; absent where the guest was restored.
    pub(crate) boot_seconds: Option<f64>,
    /// From QEMU's start to the restored guest going on, in seconds.
    #[serde(default)]
    pub(crate) restore_seconds: Option<f64>,
    /// From QEMU's start to its end, in seconds.
    pub(crate) seconds: f64,
    /// The share of the host's CPU time that its own hypervisor took meanwhile; absent where it does not say.
    #[serde(default)]
    pub(crate) stolen: Option<f64>,
}

/// Which trial it was.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) number: u32,
    pub(crate) block: u32,
    pub(crate) arm: String,
    pub(crate) seed: u64,
}

/// Turns what came out of a guest into a record.
pub(crate) fn record(
    identity: Identity,
    run: GuestRun,
    expected: &Expected<'_>,
    isolate: Option<&Isolate>,
    metrics: &[Metric],
) -> TrialRecord {
    let Identity { number, block, arm, seed } = identity;
    let digest = digest(run.messages.iter().map(|(payload, _)| payload));
    let complete = run.messages.iter().any(|(_, message)| matches!(message, Message::Done { .. }));
    let (mut machine, mut observed, mut results, mut differences) = (None, None, Vec::new(), Vec::new());
    for (_, message) in run.messages {
        match message {
            Message::Hello { protocol, .. } => differences.extend(verify::protocol_matches(protocol).err()),
            Message::Machine(seen) => {
                differences.extend(verify::differences(expected, &seen));
                machine = Some(*seen);
            }
            Message::Result(result) => results.push(*result),
            Message::Isolation(seen) => observed = Some(*seen),
            Message::Ready | Message::Phase { .. } | Message::Failed { .. } | Message::Done { .. } => {}
        }
    }
    // A guest that died earlier is a fault, not one that was not isolated.
    let reported = machine.as_ref().filter(|_| complete || observed.is_some());
    let isolation = isolate.zip(reported).map(|(isolate, machine)| {
        isolation::prove(isolate, expected.topology.cpus(), machine, observed.as_ref())
    });
    differences.extend(isolation.iter().flat_map(Proof::differences).cloned());
    differences.extend(results.iter().filter_map(short_of_samples));
    let mut record = TrialRecord {
        number,
        block,
        arm,
        seed,
        fault: match run.outcome {
            Outcome::Done => None,
            Outcome::Fault(fault) => Some(*fault),
        },
        complete,
        differences,
        digest,
        metrics: BTreeMap::new(),
        samples: BTreeMap::new(),
        machine,
        isolation,
        results,
        boot_seconds: run.times.hello.as_ref().map(Duration::as_secs_f64),
        restore_seconds: run.times.restored.as_ref().map(Duration::as_secs_f64),
        seconds: run.times.end.as_secs_f64(),
        stolen: None,
    };
    for metric in metrics {
        let Some(latency) = latency_of(&record.results, &metric.workload) else { continue };
        record.samples.insert(metric.to_string(), latency.count());
        if let Some(value) = value(latency, metric.statistic) {
            record.metrics.insert(metric.to_string(), value);
        }
    }
    record
}

impl TrialRecord {
    /// Differences other than those of isolation.
    pub(crate) fn other_differences(&self) -> impl Iterator<Item = &String> {
        let of_isolation: Vec<&String> = self.isolation.iter().flat_map(Proof::differences).collect();
        self.differences.iter().filter(move |difference| !of_isolation.contains(difference))
    }

    /// Whether its figures may be judged: it ended well, or with a warning that the caller has excused.
    pub(crate) fn is_usable(&self, warning_excused: bool) -> bool {
        let fault_excused = self.fault.as_ref().is_none_or(|_| warning_excused && self.complete);
        self.complete && fault_excused && self.differences.is_empty()
    }
}

/// The latencies that a workload measured.
pub(crate) fn latency_of<'a>(results: &'a [WorkloadResult], workload: &str) -> Option<&'a Histogram> {
    results.iter().find_map(|result| match result {
        WorkloadResult::Pingpong { name, latency, .. } if name == workload => Some(latency),
        _ => None,
    })
}

fn value(latency: &Histogram, statistic: Statistic) -> Option<f64> {
    match statistic {
        Statistic::Mean => latency.mean(),
        Statistic::Max => latency.max().map(|max| max as f64),
        quantile => latency.quantile(quantile.quantile()?).map(|value| value as f64),
    }
}

fn short_of_samples(result: &WorkloadResult) -> Option<String> {
    match result {
        WorkloadResult::Pingpong { name, expected, latency, .. } if latency.count() != *expected => {
            Some(format!("samples of {name}: expected {expected}, seen {}", latency.count()))
        }
        _ => None,
    }
}
