// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's machine protocol, as little of it as is needed: events as they come, and a question now and
//! then. One JSON object a line, over a socket that QEMU inherited.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// The connection to one QEMU.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
}

/// What matters to us of QEMU's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QmpEvent {
    /// The guest's kernel panicked.
    Panicked,
    /// The guest reset itself or powered off; the reason is QEMU's word.
    Shutdown { reason: String },
    /// QEMU has closed the connection.
    Closed,
}

impl Qmp {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new() }
    }

    /// Leaves negotiation mode, so that events come.
    pub(crate) async fn begin(&mut self) {
        self.send("qmp_capabilities", json!({})).await;
    }

    /// The next event that matters. May be dropped and called again without loss.
    pub(crate) async fn event(&mut self) -> QmpEvent {
        loop {
            let Some(value) = self.receive().await else { return QmpEvent::Closed };
            match value["event"].as_str() {
                Some("GUEST_PANICKED") => return QmpEvent::Panicked,
                Some("SHUTDOWN") => {
                    let reason = value["data"]["reason"].as_str().unwrap_or("unknown");
                    return QmpEvent::Shutdown { reason: reason.to_owned() };
                }
                _ => {}
            }
        }
    }

    /// What the human monitor answers; empty when QEMU no longer does.
    pub(crate) async fn monitor(&mut self, command: &str) -> String {
        self.send("human-monitor-command", json!({ "command-line": command })).await;
        let answer = async {
            loop {
                let value = self.receive().await?;
                if let Some(text) = value["return"].as_str() {
                    return Some(text.to_owned());
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(5), answer).await.ok().flatten().unwrap_or_default()
    }

    /// A QEMU that has ended takes nothing; its exit tells why.
    async fn send(&mut self, command: &str, arguments: Value) {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        let _ = self.stream.get_mut().write_all(line.as_bytes()).await;
    }

    async fn receive(&mut self) -> Option<Value> {
        loop {
            let read = self.stream.read_until(b'\n', &mut self.line).await;
            if !matches!(read, Ok(1..)) {
                return None;
            }
            let line = std::mem::take(&mut self.line);
            if let Ok(value) = serde_json::from_slice(&line) {
                return Some(value);
            }
        }
    }
}
