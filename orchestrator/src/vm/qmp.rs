// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's machine protocol, as little of it as is needed: events as they come, and a question now and
//! then. One JSON object a line, over a socket that QEMU inherited.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// How often QEMU is asked how far it is with a machine's state.
const MIGRATION_POLL: Duration = Duration::from_millis(5);

/// A QEMU that is alive answers at once, but for a host that is very busy.
const ANSWER: Duration = Duration::from_secs(60);

/// The connection to one QEMU.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
    /// How many commands were sent.
    sent: u64,
}

/// What matters to us of QEMU's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QmpEvent {
    /// The guest's kernel panicked.
    Panicked,
    /// The guest reset itself or powered off; the reason is QEMU's word.
    Shutdown { reason: String },
    /// The machine stands still.
    Stopped,
    /// QEMU has closed the connection.
    Closed,
}

impl Qmp {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new(), sent: 0 }
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
                Some("STOP") => return QmpEvent::Stopped,
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
        let answer = self.execute("human-monitor-command", json!({ "command-line": command }));
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
        answer.ok().and_then(Result::ok).and_then(|text| Some(text.as_str()?.to_owned())).unwrap_or_default()
    }

    /// Writes the state of a machine that stands still to a file; says what is wrong if that fails.
    pub(crate) async fn save(&mut self, file: &Path) -> Result<(), String> {
        self.execute("migrate", uri(file)).await?;
        self.wait_for_migration().await
    }

    /// Reads the state of a machine that was started with `-incoming defer`; it stands still then.
    ///
    /// QEMU announces a restored machine to the network five times in its first 1.25 s. Each time a timer of the
    /// host's clock ends the turn of the CPU that runs just then, and no two restored machines are the same any
    /// more: so it is told not to.
    pub(crate) async fn restore(&mut self, file: &Path) -> Result<(), String> {
        self.execute("migrate-set-parameters", json!({ "announce-rounds": 0 })).await?;
        self.execute("migrate-incoming", uri(file)).await?;
        self.wait_for_migration().await?;
        // The state is complete a little before QEMU is; what comes between would go on beside the guest.
        while self.execute("query-status", json!({})).await?["status"] == "inmigrate" {
            tokio::time::sleep(MIGRATION_POLL).await;
        }
        Ok(())
    }

    /// Lets a machine that stands still go on.
    pub(crate) async fn go_on(&mut self) -> Result<(), String> {
        self.execute("cont", json!({})).await.map(drop)
    }

    async fn wait_for_migration(&mut self) -> Result<(), String> {
        loop {
            let state = self.execute("query-migrate", json!({})).await?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed") => {
                    let why = state["error-desc"].as_str().unwrap_or("QEMU does not say why");
                    return Err(why.to_owned());
                }
                _ => tokio::time::sleep(MIGRATION_POLL).await,
            }
        }
    }

    /// Executes a command and gives what it returns. Events meanwhile are passed over.
    async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let id = self.send(command, arguments).await;
        let answer = async {
            loop {
                let mut value = self.receive().await.ok_or("QEMU has ended")?;
                if value["id"] != id {
                    continue;
                }
                if let Some(error) = value.get("error") {
                    return Err(error["desc"].as_str().unwrap_or("QEMU refuses").to_owned());
                }
                if let Some(returned) = value.get_mut("return") {
                    return Ok(returned.take());
                }
            }
        };
        let late = |_| format!("QEMU did not answer to {command} within {} s", ANSWER.as_secs());
        tokio::time::timeout(ANSWER, answer).await.map_err(late)?
    }

    /// Gives the number that QEMU's answer will bear. A QEMU that has ended takes nothing; its exit tells why.
    async fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.sent += 1;
        let line = json!({ "execute": command, "arguments": arguments, "id": self.sent });
        let _ = self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).await;
        self.sent
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

fn uri(file: &Path) -> Value {
    json!({ "uri": format!("file:{}", file.display()) })
}
