// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Twinboot's two sides share: the orders that the host gives, the messages that the guest's agent
//! sends, how they are framed on the virtio-serial port, and the histogram that holds latencies.
//!
//! Data flows one way while a trial runs. The [`Orders`] lie in the guest's initramfs; the agent answers
//! with [`Message`]s, each in a [`frame`] with sequence number, length and CRC. A guest that is saved before
//! its trial gets the [`Trial`] in one frame over the port, while it stands still. Nothing here touches a file,
//! a clock or a process.

pub mod cpu_list;
pub mod frame;
pub mod histogram;
pub mod isolation;
pub mod message;
pub mod orders;
mod summary;

pub use histogram::{Counters, Histogram};
pub use isolation::{Irq, Isolation, Task, TickDependency, Ticks};
pub use message::{Cpu, Machine, Message, Node, Phase, WorkloadResult};
pub use orders::{Channel, Hogs, IsolationProof, Orders, Partners, Pingpong, Spin, Trial, Workload};
pub use summary::summary;

/// The version of everything in this crate. Host and agent refuse each other when it differs.
pub const PROTOCOL: u32 = 3;

/// The name of the virtio-serial port that carries the frames.
pub const PORT_NAME: &str = "twinboot";

/// Where the orders lie in the guest's initramfs, as JSON.
pub const ORDERS_PATH: &str = "/twinboot/orders.json";
