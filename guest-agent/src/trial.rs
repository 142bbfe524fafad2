// SPDX-License-Identifier: MIT OR Apache-2.0
//! One trial from the first message to the last, the same for init and for an ordinary process.

use twinboot_protocol::{Message, Orders, PROTOCOL};

use crate::error::{AgentError, Context};
use crate::link::Link;
use crate::{facts, isolation, workload};

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
    let results = workload::run(&orders, &online, link)?;
    link.send(Message::Done { results })
}
