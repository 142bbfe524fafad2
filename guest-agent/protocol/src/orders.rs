// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent is to do in a guest, and in its trial. Durations are in nanoseconds of the guest's clock.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PROTOCOL;

/// What a guest's initramfs tells the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// [`crate::PROTOCOL`] of the side that wrote them.
    pub protocol: u32,
    /// Gathers the proof of isolation before the workloads start.
    #[serde(default)]
    pub isolation: Option<IsolationProof>,
    /// The trial. Without it the agent prepares everything, says [`crate::Message::Ready`], lets the machine be
    /// saved, and waits for a frame that holds a [`Trial`].
    #[serde(default)]
    pub trial: Option<Trial>,
}

/// One trial, complete: the agent needs nothing else and asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Perturbs what a reboot would: the kernel's random numbers, the start phases of threads and timers.
    pub seed: u64,
    /// How long everything runs before the window opens.
    pub warm_up_ns: u64,
    /// What runs. The window closes when every workload that ends by itself has ended.
    pub workloads: Vec<Workload>,
}

impl Orders {
    /// Reads orders and checks that they can be carried out, as far as that does not depend on the guest.
    pub fn from_json(json: &[u8]) -> Result<Self, OrdersError> {
        let protocol = serde_json::from_slice::<Version>(json).map_err(OrdersError::NotOrders)?.protocol;
        if protocol != PROTOCOL {
            return Err(OrdersError::OtherProtocol(protocol));
        }
        let orders: Self = serde_json::from_slice(json).map_err(OrdersError::NotOrders)?;
        if let Some(trial) = &orders.trial {
            trial.check()?;
        }
        Ok(orders)
    }

    /// The orders as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("orders have no map, and so no key that is not text")
    }
}

impl Trial {
    /// Whether it can be carried out, as far as that does not depend on the guest.
    pub fn check(&self) -> Result<(), OrdersError> {
        for (index, workload) in self.workloads.iter().enumerate() {
            let name = || workload.name().to_owned();
            if self.workloads[..index].iter().any(|other| other.name() == workload.name()) {
                return Err(OrdersError::NameTwice(name()));
            }
            let empty = match workload {
                Workload::Pingpong(pingpong) => pingpong.rounds == 0,
                Workload::Hogs(hogs) => hogs.cpus.is_empty() || hogs.per_cpu == 0,
            };
            if empty {
                return Err(OrdersError::NothingToDo(name()));
            }
            if matches!(workload, Workload::Hogs(hogs) if !(1..=100).contains(&hogs.load_percent)) {
                return Err(OrdersError::Load(name()));
            }
        }
        if !self.workloads.iter().any(Workload::ends_by_itself) {
            return Err(OrdersError::NoEnd);
        }
        Ok(())
    }
}

/// What is read first: the rest may have another shape in another version.
#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

/// Orders that cannot be carried out.
#[derive(Debug)]
pub enum OrdersError {
    /// Not JSON, or JSON of another shape.
    NotOrders(serde_json::Error),
    /// Written by another version, this one.
    OtherProtocol(u32),
    /// Two workloads share this name.
    NameTwice(String),
    /// The workload of this name has no CPU, no thread or no round.
    NothingToDo(String),
    /// The hogs of this name have a load outside of 1 to 100 percent.
    Load(String),
    /// No workload ends by itself.
    NoEnd,
}

impl fmt::Display for OrdersError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOrders(_) => formatter.write_str("the orders are not of the expected form"),
            Self::OtherProtocol(found) => {
                write!(formatter, "the orders have protocol version {found}, this agent has {PROTOCOL}")
            }
            Self::NameTwice(name) => write!(formatter, "two workloads are called `{name}`"),
            Self::NothingToDo(name) => {
                write!(formatter, "workload `{name}` has no CPU, no thread or no round")
            }
            Self::Load(name) => write!(formatter, "workload `{name}` has a load outside of 1 to 100 percent"),
            Self::NoEnd => formatter.write_str("no workload ends by itself, so the window would never close"),
        }
    }
}

impl Error for OrdersError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotOrders(source) => Some(source),
            _ => None,
        }
    }
}

/// How the proof of isolation is gathered: one pinned busy thread on each isolated CPU, while ticks are
/// counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IsolationProof {
    /// The isolated CPUs.
    pub cpus: Vec<u32>,
    /// For how long each CPU's ticks are counted, in nanoseconds.
    pub window_ns: u64,
    /// How many isolated CPUs are busy at one time, at least 1: an emulator on few cores cannot feed many.
    /// One housekeeping CPU is busy beside them, for comparison.
    pub at_once: u32,
    /// What keeps them busy.
    pub spin: Spin,
}

/// What makes the load, or measures, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Two partners wake each other in turn; measures.
    Pingpong(Pingpong),
    /// Busy threads; load only.
    Hogs(Hogs),
}

impl Workload {
    /// The name under which its results are reported.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pingpong(pingpong) => &pingpong.name,
            Self::Hogs(hogs) => &hogs.name,
        }
    }

    /// Whether it ends when its work is done, rather than when the window closes.
    #[must_use]
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, Self::Pingpong(_))
    }
}

/// Two partners that wake each other in turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pingpong {
    /// The name under which its results are reported.
    pub name: String,
    /// What carries the wake-up.
    pub via: Channel,
    /// Threads of one process, or two processes.
    pub between: Partners,
    /// The CPU of each partner; may be the same one.
    pub cpus: [u32; 2],
    /// Measured exchanges. Each has two wake-ups and so gives two samples.
    pub rounds: u64,
}

/// What carries a wake-up from one partner to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// `futex(2)` wait and wake on a shared word.
    Futex,
    /// A pair of pipes, one byte an exchange.
    Pipe,
    /// A pair of eventfds.
    Eventfd,
    /// A stream socket pair, one byte an exchange.
    Socketpair,
    /// `sched_yield(2)` until the shared word changes.
    Yield,
}

/// Who the two partners are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partners {
    /// Two threads of one process: the switch keeps the address space.
    Threads,
    /// Two processes: the switch changes it.
    Processes,
}

/// Busy threads pinned to CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hogs {
    /// The name under which its results are reported.
    pub name: String,
    /// The CPUs that get hogs.
    pub cpus: Vec<u32>,
    /// How many on each.
    pub per_cpu: u32,
    /// The share of time that each is busy, 1 to 100.
    pub load_percent: u8,
    /// What a busy hog executes.
    pub spin: Spin,
}

/// What a busy hog executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spin {
    /// The architecture's yield hint: the emulator ends the CPU's turn, Linux still sees a busy task.
    Hint,
    /// Plain arithmetic, as on a real machine.
    Plain,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINGPONG: &str =
        r#"{"pingpong":{"name":"wake","via":"futex","between":"threads","cpus":[0,1],"rounds":10}}"#;
    const HOGS: &str =
        r#"{"hogs":{"name":"load","cpus":[2,3],"per_cpu":2,"load_percent":100,"spin":"hint"}}"#;

    fn orders(workloads: &[&str]) -> String {
        let workloads = workloads.join(",");
        format!(r#"{{"protocol":3,"trial":{{"seed":7,"warm_up_ns":1000,"workloads":[{workloads}]}}}}"#)
    }

    fn check(json: &str, expected: &str) {
        let found = match Orders::from_json(json.as_bytes()) {
            Ok(orders) => {
                assert_eq!(Orders::from_json(&orders.to_json()).unwrap(), orders);
                "fine".to_owned()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{json}");
    }

    #[test]
    fn orders_are_checked() {
        check(&orders(&[PINGPONG, HOGS]), "fine");
        check(r#"{"protocol":3}"#, "fine");
        check("{", "the orders are not of the expected form");
        check(&orders(&[&PINGPONG.replace("rounds", "turns")]), "the orders are not of the expected form");
        check(r#"{"protocol":4,"new":0}"#, "the orders have protocol version 4, this agent has 3");
        check(&orders(&[PINGPONG, PINGPONG]), "two workloads are called `wake`");
        check(&orders(&[&PINGPONG.replace("10", "0")]), "workload `wake` has no CPU, no thread or no round");
        check(&orders(&[&HOGS.replace("2,3", "")]), "workload `load` has no CPU, no thread or no round");
        for load in ["0", "101"] {
            let hogs = HOGS.replace("100", load);
            check(&orders(&[&hogs]), "workload `load` has a load outside of 1 to 100 percent");
        }
        check(&orders(&[HOGS]), "no workload ends by itself, so the window would never close");
    }
}
