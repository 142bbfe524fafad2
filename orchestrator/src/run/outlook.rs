// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the trials so far already settle, so that a run does not go on in vain. Pure.

use std::collections::BTreeSet;

use crate::collect::trial::TrialRecord;
use crate::vm::fault::Fault;

/// Why a run stops before its last block.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// The base arm does not get through a trial.
    BaseFails(Box<TrialRecord>),
    /// Another arm does not, and the base does.
    ArmFails(Box<TrialRecord>),
    /// A guest, or what it measured, is not what was asked for.
    Unproven(Box<TrialRecord>),
}

/// Fingerprints of warnings that every arm has: they are nobody's regression.
pub(crate) fn excused(records: &[TrialRecord], arms: &[String]) -> BTreeSet<String> {
    let seen_in = |arm: &String| -> BTreeSet<String> {
        let records = records.iter().filter(|record| record.arm == *arm && record.complete);
        records.filter_map(|record| record.fault.as_ref()).map(Fault::fingerprint).collect()
    };
    let mut arms = arms.iter().map(seen_in);
    let Some(first) = arms.next() else { return BTreeSet::new() };
    arms.fold(first, |common, next| common.intersection(&next).cloned().collect())
}

/// Whether the records settle the run. `arms[0]` is the base.
pub(crate) fn stop(records: &[TrialRecord], arms: &[String]) -> Option<Stop> {
    let base = &arms[0];
    let boxed = |record: &TrialRecord| Box::new(record.clone());
    if let Some(record) = records.iter().find(|record| !record.differences.is_empty()) {
        return Some(Stop::Unproven(boxed(record)));
    }
    if let Some(record) = records.iter().find(|record| record.arm == *base && !record.complete) {
        return Some(Stop::BaseFails(boxed(record)));
    }
    // A warning is judged only when every arm had the chance to give it.
    if !arms.iter().all(|arm| records.iter().any(|record| record.arm == *arm)) {
        return None;
    }
    let excused = excused(records, arms);
    let fails = |record: &&TrialRecord| match &record.fault {
        Some(fault) => !record.complete || !excused.contains(&fault.fingerprint()),
        None => false,
    };
    let failing = || records.iter().filter(fails);
    failing()
        .find(|record| record.arm == *base)
        .map(|record| Stop::BaseFails(boxed(record)))
        .or_else(|| failing().next().map(|record| Stop::ArmFails(boxed(record))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::fault::{FaultClass, Stage};

    fn record(arm: &str, fault: Option<(FaultClass, &str)>) -> TrialRecord {
        let fault = fault.map(|(class, headline)| Fault {
            class,
            headline: headline.to_owned(),
            stage: Stage::Window,
            cpus: Vec::new(),
            tail: Vec::new(),
        });
        TrialRecord {
            number: 1,
            block: 1,
            arm: arm.to_owned(),
            seed: 1,
            complete: fault.as_ref().is_none_or(|fault| fault.class.lets_the_trial_go_on()),
            fault,
            differences: Vec::new(),
            digest: String::new(),
            metrics: Default::default(),
            samples: Default::default(),
            machine: None,
            isolation: None,
            results: Vec::new(),
            boot_seconds: None,
            restore_seconds: None,
            seconds: 1.0,
            stolen: None,
        }
    }

    fn check(records: &[TrialRecord], expected: &str) {
        let arms = ["base".to_owned(), "patched".to_owned()];
        let found = match stop(records, &arms) {
            None => "go on",
            Some(Stop::BaseFails(_)) => "base fails",
            Some(Stop::ArmFails(_)) => "arm fails",
            Some(Stop::Unproven(_)) => "unproven",
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_the_patch_brings_counts_against_it() {
        let warning = |line| Some((FaultClass::Warning, line));
        let panic = Some((FaultClass::Panic, "Fatal exception"));
        check(&[], "go on");
        check(&[record("base", None), record("patched", None)], "go on");
        check(&[record("patched", panic)], "go on");
        check(&[record("patched", panic), record("base", None)], "arm fails");
        check(&[record("base", panic)], "base fails");
        check(&[record("patched", panic), record("base", panic)], "base fails");
        check(&[record("base", warning("x"))], "go on");
        check(&[record("base", warning("x.c:1")), record("patched", warning("x.c:2"))], "go on");
        check(&[record("base", None), record("patched", warning("x"))], "arm fails");
        check(&[record("base", warning("x")), record("patched", None)], "base fails");
        let unproven = TrialRecord { differences: vec!["CPUs".to_owned()], ..record("base", None) };
        check(&[unproven], "unproven");
    }
}
