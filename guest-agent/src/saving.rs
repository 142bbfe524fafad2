// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops the machine at one nanosecond of its own clock, so that it can be saved and is the same whenever and
//! wherever that is done. A command from the host would come whenever the host pleases.
//!
//! The means is a watchdog that nobody feeds: the Intel 6300ESB on the PCI bus, which QEMU has for every
//! architecture and lets pause the machine when time is up. Its preset time of two seconds needs two writes
//! to its configuration space and no driver. When it strikes, all CPUs idle, and QEMU stops before the clock
//! goes on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, Context};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Vendor and device as sysfs has them.
const WATCHDOG: (&str, &str) = ("0x8086", "0x25ab");

/// WDT configuration register: no interrupt when the first half of the time is up (bits 0 and 1), ticks of a
/// microsecond (bit 2), so two times 2^20 of them.
const CONFIGURATION: (u64, [u8; 2]) = (0x60, 0x0007_u16.to_le_bytes());
/// WDT lock register: enabled (bit 1).
const LOCK: (u64, [u8; 1]) = (0x68, [0x02]);

/// Has the machine stopped in about two seconds of its clock.
pub(crate) fn stop_soon() -> Result<(), AgentError> {
    let device = find(Path::new(DEVICES)).ok_or_else(|| {
        AgentError::new("there is no watchdog of the kind 6300ESB, so the machine cannot be saved here")
    })?;
    let path = device.join("config");
    let file = File::options().write(true).open(&path).context(format_args!("open {}", path.display()))?;
    file.write_all_at(&CONFIGURATION.1, CONFIGURATION.0)
        .and_then(|()| file.write_all_at(&LOCK.1, LOCK.0))
        .context(format_args!("write {}", path.display()))
}

fn find(devices: &Path) -> Option<PathBuf> {
    let is = |device: &Path, file: &str, expected: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim_end() == expected)
    };
    let mut found = fs::read_dir(devices).ok()?.flatten().map(|entry| entry.path());
    found.find(|device| is(device, "vendor", WATCHDOG.0) && is(device, "device", WATCHDOG.1))
}
