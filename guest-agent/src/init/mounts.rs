// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file systems that a trial needs, mounted where everyone expects them. Nothing is mounted over what the
//! initramfs brings, such as files in /tmp: it can be written as it is.

use std::{fs, io};

use crate::error::{AgentError, Context};
use crate::sys;

/// File system, mount point, and whether a trial can do without it.
const MOUNTS: [(&str, &str, Need); 4] = [
    ("proc", "/proc", Need::Required),
    ("sysfs", "/sys", Need::Required),
    ("devtmpfs", "/dev", Need::Required),
    ("tracefs", "/sys/kernel/tracing", Need::Optional),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

/// Mounts them all.
pub(super) fn mount_all() -> Result<(), AgentError> {
    for (kind, target, need) in MOUNTS {
        // A directory that cannot be made shows in the mount. That of tracefs is sysfs's own.
        let _ = fs::create_dir_all(target);
        match sys::mount(kind, target) {
            Err(error) if need == Need::Required && error.kind() != io::ErrorKind::ResourceBusy => {
                return Err(error).context(format_args!("mount {kind} at {target}"));
            }
            _ => {}
        }
    }
    Ok(())
}
