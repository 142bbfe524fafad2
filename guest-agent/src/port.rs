// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and opens the virtio-serial port that leads to the host. The driver learns a port's name from
//! the device some time after it has found the device, so the search is repeated for a while.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use twinboot_protocol::PORT_NAME;

use crate::error::{AgentError, Context};

const PORTS: &str = "/sys/class/virtio-ports";
const ATTEMPTS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Opens the port called [`PORT_NAME`].
pub(crate) fn open() -> Result<File, AgentError> {
    for _ in 0..ATTEMPTS {
        if let Some(device) = find(Path::new(PORTS)).filter(|device| device.exists()) {
            return File::options()
                .read(true)
                .write(true)
                .open(&device)
                .context(format_args!("open {}", device.display()));
        }
        thread::sleep(PAUSE);
    }
    Err(AgentError::new(format!("there is no virtio-serial port called `{PORT_NAME}`")))
}

/// The device node of the port, if a port of that name is known by now.
fn find(ports: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(ports).ok()?.flatten();
    let port = entries.find(|port| {
        fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim_end() == PORT_NAME)
    })?;
    Some(Path::new("/dev").join(port.file_name()))
}
