// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial that ran twice: whether the guest measured the same, and if not, where the two first differ.
//! Pure. What only the host saw, such as seconds, does not count.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::result::{DifferingTrial, Verification};
use super::trial::TrialRecord;

/// How much is shown of a value that has parts.
const SHOWN: usize = 40;

/// The first difference between two records of one trial, in words; nothing when the guest measured the
/// same and ended the same way.
pub(crate) fn first_difference(before: &TrialRecord, again: &TrialRecord) -> Option<String> {
    let ending = |record: &TrialRecord| record.fault.as_ref().map(|fault| fault.class);
    if before.digest == again.digest && ending(before) == ending(again) {
        return None;
    }
    let parts = measured(before).into_iter().zip(measured(again));
    let found = parts.into_iter().find_map(|((name, before), (_, again))| walk(name, &before, &again));
    // The digest is over all messages as sent, and a record does not keep all of them.
    let elsewhere = "every figure is equal and the digests are not: the difference lies in the phases' times, \
                     or in the agent's version";
    Some(found.unwrap_or_else(|| elsewhere.to_owned()))
}

/// What came of the trials that ran again; nothing when none did.
pub(crate) fn verification(records: &[TrialRecord], again: &[TrialRecord]) -> Option<Verification> {
    let pairs = again.iter().filter_map(|again| {
        let before = records.iter().find(|before| before.number == again.number)?;
        Some((before, again))
    });
    let differences: Vec<_> =
        pairs.map(|(before, again)| (before.number, first_difference(before, again))).collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let differing: Vec<DifferingTrial> = differences
        .iter()
        .filter_map(|(number, difference)| {
            Some(DifferingTrial { number: *number, difference: difference.clone()? })
        })
        .collect();
    (!differences.is_empty()).then(|| Verification {
        trials: count(differences.len()),
        equal: count(differences.len() - differing.len()),
        differing,
    })
}

/// How the guest ended and all that it said of itself, in the order in which it came to be.
fn measured(record: &TrialRecord) -> [(&'static str, Value); 5] {
    [
        ("fault", json!(record.fault.as_ref().map(|fault| fault.class))),
        ("machine", json!(record.machine)),
        ("isolation", json!(record.isolation)),
        ("results", json!(record.results)),
        ("metrics", json!(record.metrics)),
    ]
}

/// The first place below `path` where two values differ. A key that one of them lacks is nothing in it.
fn walk(path: &str, before: &Value, again: &Value) -> Option<String> {
    match (before, again) {
        (Value::Object(before), Value::Object(again)) => {
            let keys: BTreeSet<&String> = before.keys().chain(again.keys()).collect();
            let pair = |key: &String| [before, again].map(|map| map.get(key).unwrap_or(&Value::Null));
            // A sum says more than the first of the buckets that it is made of.
            let (plain, with_parts): (Vec<_>, Vec<_>) = keys
                .into_iter()
                .map(|key| (key, pair(key)))
                .partition(|(_, pair)| !pair.iter().any(has_parts));
            let mut all = plain.into_iter().chain(with_parts);
            all.find_map(|(key, [before, again])| walk(&format!("{path}.{key}"), before, again))
        }
        (Value::Array(before), Value::Array(again)) => (0..before.len().max(again.len())).find_map(|index| {
            let [before, again] = [before, again].map(|list| list.get(index).unwrap_or(&Value::Null));
            walk(&format!("{path}[{index}]"), before, again)
        }),
        _ if before == again => None,
        _ => Some(format!("{path}: {} against {}", shown(before), shown(again))),
    }
}

fn has_parts(value: &&Value) -> bool {
    value.is_object() || value.is_array()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        value if has_parts(&value) => {
            let text = value.to_string();
            let start: String = text.chars().take(SHOWN).collect();
            if start.len() < text.len() { format!("{start}...") } else { text }
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial in which one wake-up took so many nanoseconds.
    fn record(number: u32, digest: &str, wakeup_ns: u64) -> TrialRecord {
        let latency = json!({
            "count": 1, "sum": wakeup_ns, "min": wakeup_ns, "max": wakeup_ns, "buckets": [[wakeup_ns, 1]],
        });
        let pingpong = json!({"name": "pingpong", "expected": 1, "latency": latency, "window_ns": 9});
        let record = json!({
            "number": number, "block": 1, "arm": "base", "seed": 1, "fault": null, "complete": true,
            "differences": [], "digest": digest, "metrics": {"pingpong.mean": wakeup_ns}, "samples": {},
            "machine": null, "isolation": null, "results": [{"pingpong": pingpong}], "boot_seconds": 1.0,
            "seconds": 2.0,
        });
        serde_json::from_value(record).unwrap()
    }

    #[track_caller]
    fn check(again: &TrialRecord, expected: Option<&str>) {
        assert_eq!(first_difference(&record(1, "d", 100), again).as_deref(), expected);
    }

    #[test]
    fn what_the_guest_measured_is_compared() {
        check(&record(1, "d", 100), None);
        check(&TrialRecord { seconds: 99.0, stolen: Some(0.5), ..record(1, "d", 100) }, None);
        check(&record(1, "e", 101), Some("results[0].pingpong.latency.max: 100 against 101"));
        let lost = TrialRecord { results: Vec::new(), ..record(1, "e", 100) };
        check(&lost, Some(r#"results[0]: {"pingpong":{"expected":1,"latency":{"bu... against nothing"#));
        let later = TrialRecord { machine: Some(twinboot_protocol::Machine::default()), ..lost };
        assert!(
            first_difference(&record(1, "d", 100), &later).unwrap().starts_with("machine: nothing against {")
        );
        assert!(
            first_difference(&record(1, "d", 100), &record(1, "e", 100)).unwrap().contains("phases' times")
        );
    }

    #[test]
    fn another_ending_is_a_difference() {
        let fault = json!({"class": "panic", "headline": "x", "stage": "window", "cpus": [], "tail": []});
        let fault = Some(serde_json::from_value(fault).unwrap());
        check(&TrialRecord { fault, ..record(1, "d", 100) }, Some(r#"fault: nothing against "panic""#));
    }

    #[test]
    fn values_are_walked_in_order() {
        let check = |before: Value, again: Value, expected: Option<&str>| {
            assert_eq!(walk("x", &before, &again).as_deref(), expected);
        };
        check(json!({"a": [1, {"b": 2.5}]}), json!({"a": [1, {"b": 2.5}]}), None);
        check(json!({"a": [1, {"b": 2.5}]}), json!({"a": [1, {"b": 3}]}), Some("x.a[1].b: 2.5 against 3"));
        check(json!([1]), json!([1, 2]), Some("x[1]: nothing against 2"));
        check(json!({"a": [1], "b": 1}), json!({"a": [2], "b": 2}), Some("x.b: 1 against 2"));
        check(json!({"a": 1}), json!({"a": 1, "b": "c"}), Some(r#"x.b: nothing against "c""#));
    }

    #[test]
    fn trials_that_ran_again_are_counted() {
        let records = [record(1, "d", 100), record(2, "d", 100), record(3, "d", 100)];
        assert_eq!(verification(&records, &[]), None);
        let found = verification(&records, &[record(1, "d", 100), record(3, "e", 101)]).unwrap();
        assert_eq!((found.trials, found.equal), (2, 1));
        assert_eq!(found.differing.len(), 1);
        assert_eq!(found.differing[0].number, 3);
        assert!(found.differing[0].difference.ends_with("100 against 101"), "{found:?}");
    }
}
