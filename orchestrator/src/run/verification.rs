// SPDX-License-Identifier: MIT OR Apache-2.0
//! After the last trial: those that the plan has drawn run once more, so that the virtual clock's promise
//! is not only believed. What came of them lies beside the first records and is compared with them.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::RunError;
use super::event::Event;
use super::trials::Bench;
use crate::collect::difference::first_difference;
use crate::collect::trial::TrialRecord;

/// Runs the drawn trials that did not run again yet.
pub(super) async fn run(
    bench: &Bench<'_>,
    records: &[TrialRecord],
    again: &mut Vec<TrialRecord>,
) -> Result<(), RunError> {
    let mut to_do = bench.plan.to_verify();
    to_do.retain(|planned| again.iter().all(|record| record.number != planned.number));
    if to_do.is_empty() {
        return Ok(());
    }
    let trials = u32::try_from(to_do.len()).unwrap_or(u32::MAX);
    bench.listener.hear(&Event::VerificationStarted { trials });
    let mut trials = stream::iter(to_do.into_iter().map(|planned| bench.trial(planned)))
        .buffered(bench.guests_at_once as usize);
    while let Some((record, console)) = trials.try_next().await? {
        bench.store.save_again(&record, &console)?;
        let before = records.iter().find(|before| before.number == record.number);
        bench.listener.hear(&Event::TrialVerified {
            number: record.number,
            block: record.block,
            arm: record.arm.clone(),
            digest: record.digest.clone(),
            seconds: record.seconds,
            difference: before.and_then(|before| first_difference(before, &record)),
        });
        again.push(record);
    }
    Ok(())
}
