// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial's messages condensed for a person: JSON with a handful of figures for each workload instead
//! of whole histograms. Not for judging; that needs all trials of all arms.

use serde::Serialize;

use crate::{Histogram, Isolation, Machine, Message, WorkloadResult};

/// The agent's messages of one trial as indented JSON.
#[must_use]
pub fn summary(messages: &[Message]) -> String {
    let mut summary =
        Summary { machine: None, isolation: None, results: Vec::new(), failed: None, complete: false };
    for message in messages {
        match message {
            Message::Machine(machine) => summary.machine = Some(machine),
            Message::Isolation(isolation) => summary.isolation = Some(isolation),
            Message::Result(result) => summary.results.push(condense(result)),
            Message::Failed { reason } => summary.failed = Some(reason),
            Message::Done { .. } => summary.complete = true,
            Message::Hello { .. } | Message::Ready | Message::Phase { .. } => {}
        }
    }
    serde_json::to_string_pretty(&summary).expect("a summary has no map, and so no key that is not text")
}

#[derive(Serialize)]
struct Summary<'a> {
    machine: Option<&'a Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<&'a Isolation>,
    results: Vec<Condensed<'a>>,
    failed: Option<&'a str>,
    complete: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Condensed<'a> {
    Pingpong { name: &'a str, window_ns: u64, expected: u64, latency_ns: Figures },
    Hogs { name: &'a str, window_ns: u64, threads: u32, busy_ns: u64 },
}

#[derive(Serialize)]
struct Figures {
    count: u64,
    mean: Option<f64>,
    min: Option<u64>,
    median: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

fn condense(result: &WorkloadResult) -> Condensed<'_> {
    match result {
        WorkloadResult::Pingpong { name, expected, latency, window_ns } => Condensed::Pingpong {
            name,
            window_ns: *window_ns,
            expected: *expected,
            latency_ns: figures(latency),
        },
        WorkloadResult::Hogs { name, threads, busy_ns, window_ns } => {
            Condensed::Hogs { name, window_ns: *window_ns, threads: *threads, busy_ns: *busy_ns }
        }
    }
}

fn figures(latency: &Histogram) -> Figures {
    Figures {
        count: latency.count(),
        mean: latency.mean(),
        min: latency.min(),
        median: latency.quantile(0.5),
        p90: latency.quantile(0.9),
        p99: latency.quantile(0.99),
        max: latency.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(messages: &[Message], expected: &[&str]) {
        let found = summary(messages);
        for line in expected {
            assert!(
                found.lines().any(|found| found.trim().trim_end_matches(',') == *line),
                "{line} in {found}"
            );
        }
    }

    #[test]
    fn figures_of_each_workload() {
        let mut latency = Histogram::new();
        [10, 20, 30].into_iter().for_each(|value| latency.record(value));
        let pingpong =
            WorkloadResult::Pingpong { name: "wake".to_owned(), expected: 4, latency, window_ns: 99 };
        let messages = [Message::Result(Box::new(pingpong)), Message::Done { results: 1 }];
        let expected = [
            r#""name": "wake""#,
            r#""expected": 4"#,
            r#""count": 3"#,
            r#""median": 20"#,
            r#""max": 30"#,
            r#""complete": true"#,
        ];
        check(&messages, &expected);
        let failed = Message::Failed { reason: "no port".to_owned() };
        check(&[failed], &[r#""failed": "no port""#, r#""complete": false"#]);
    }
}
