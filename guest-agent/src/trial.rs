// SPDX-License-Identifier: MIT OR Apache-2.0
//! One trial from the first message to the last, the same for init and for an ordinary process.

use std::borrow::Cow;

use twinboot_protocol::{Message, Orders, PROTOCOL, Trial};

use crate::error::{AgentError, Context};
use crate::link::Link;
use crate::{facts, isolation, saving, sys, workload};

/// Carries out the orders. When it fails, the last message is the caller's to send.
pub(crate) fn run(orders: &[u8], link: &Link) -> Result<(), AgentError> {
    link.send(Message::Hello { protocol: PROTOCOL, agent: env!("CARGO_PKG_VERSION").to_owned() })?;
    let orders = Orders::from_json(orders).context("read the orders")?;
    facts::wait_for_clock_source();
    let machine = facts::read()?;
    let online: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
    link.send(Message::Machine(Box::new(machine)))?;
    if let Some(proof) = &orders.isolation {
        let seen = isolation::observe(proof, &online).context("gather the proof of isolation")?;
        link.send(Message::Isolation(Box::new(seen)))?;
    }
    let trial = match &orders.trial {
        Some(trial) => Cow::Borrowed(trial),
        None => Cow::Owned(wait_for_trial(link)?),
    };
    // Best effort: only the guest's init may.
    let _ = sys::seed_random(trial.seed);
    let results = workload::run(&trial, &online, link)?;
    link.send(Message::Done { results })
}

/// Lets the machine be saved, and goes on in one that was restored, with the trial that it is given there.
fn wait_for_trial(link: &Link) -> Result<Trial, AgentError> {
    link.send(Message::Ready)?;
    saving::stop_soon()?;
    let trial = link.receive()?;
    trial.check().context("read the trial's orders")?;
    Ok(trial)
}
