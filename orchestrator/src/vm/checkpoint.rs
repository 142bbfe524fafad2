// SPDX-License-Identifier: MIT OR Apache-2.0
//! A saved guest on disk: booted, its machine reported and its isolation proven, waiting for a trial. What
//! makes two of them the same is in the key; who makes and restores them is [`super::guest`].

use std::path::{Path, PathBuf};

use twinboot_protocol::Message;

use super::guest::Saved;
use super::qemu::{Channels, Console, GuestSpec, KernelFiles, arguments};
use crate::cache::digest;
use crate::fs::{self, FileError};

/// Changes when a saved guest is stored in another way.
const FORMAT: &str = "1";

/// The random seed of a guest that boots to be saved. That of a trial comes with the trial.
pub(crate) const BOOT_SEED: u64 = 1;

/// A directory in the cache with one saved guest.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint(PathBuf);

/// What tells a saved guest from others: QEMU, its command line but for the paths in it, and the content of
/// the files that these name.
pub(crate) fn key(guest: &GuestSpec, kernel_key: &str, initramfs: &[u8], qemu_version: &str) -> String {
    let image = PathBuf::from("kernel");
    let shape = GuestSpec {
        kernel: KernelFiles { symbols: image.clone(), image },
        initramfs: "initramfs".into(),
        seed: BOOT_SEED,
        ..guest.clone()
    };
    let channels = Console::Channels(Channels { console: 0, port: 0, qmp: 0 });
    let words = arguments(&shape, channels).join("\0");
    let parts =
        [FORMAT.as_bytes(), qemu_version.as_bytes(), words.as_bytes(), kernel_key.as_bytes(), initramfs];
    digest(parts)[..32].to_owned()
}

impl Checkpoint {
    /// The one in this directory, whether it is there already or not.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// The initramfs that the guest has booted with; QEMU wants to see it again.
    pub(crate) fn initramfs(&self) -> PathBuf {
        self.0.join("initramfs.cpio")
    }

    /// QEMU's state of the machine, its memory included.
    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// What was heard of the guest before it was saved. Comes last into the directory.
    pub(crate) fn read(&self) -> Result<Saved, FileError> {
        let text = fs::read(&self.0.join("messages.jsonl"))?;
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        // What cannot be read is missing then, and a trial without its machine proves nothing.
        let message = |line: &[u8]| Some((line.to_vec(), serde_json::from_slice::<Message>(line).ok()?));
        let messages = lines.filter_map(message).collect();
        Ok(Saved { messages, console: fs::read(&self.0.join("console.log"))? })
    }

    /// Keeps what was heard beside the state.
    pub(crate) fn write(&self, saved: &Saved) -> Result<(), FileError> {
        let mut text = Vec::new();
        for (payload, _) in &saved.messages {
            text.extend_from_slice(payload);
            text.push(b'\n');
        }
        fs::write_atomic(&self.0.join("console.log"), &saved.console)?;
        fs::write_atomic(&self.0.join("messages.jsonl"), &text)
    }
}
