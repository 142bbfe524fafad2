// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side of the agent: its program, the initramfs that carries it and its orders into the
//! guest, and the check of what it reads back. The port is listened to by the vm stage.

pub(crate) mod binary;
pub(crate) mod initramfs;
pub(crate) mod isolation;
pub(crate) mod verify;

use twinboot_protocol::{ORDERS_PATH, Orders};

use initramfs::Initramfs;

/// A file that a guest gets beside the agent.
#[derive(Clone, Debug)]
pub(crate) struct Extra {
    /// Where in the guest.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// The initramfs of one guest: the agent as init, its orders, and what else the guest is given.
pub(crate) fn initramfs(agent: &[u8], orders: Option<&Orders>, extras: &[Extra]) -> Vec<u8> {
    let mut archive = Initramfs::default();
    for directory in ["/dev", "/proc", "/sys", "/tmp", "/run", "/twinboot"] {
        archive.directory(directory);
    }
    archive.char_device("/dev/console", 5, 1);
    archive.program("/init", agent);
    if let Some(orders) = orders {
        archive.file(ORDERS_PATH, &orders.to_json());
    }
    let mut made = std::collections::BTreeSet::new();
    for extra in extras {
        for directory in directories_above(&extra.path) {
            if made.insert(directory.clone()) {
                archive.directory(&directory);
            }
        }
        archive.program(&extra.path, &extra.content);
    }
    archive.finish()
}

fn directories_above(path: &str) -> Vec<String> {
    let inner = path.match_indices('/').map(|(index, _)| path[..index].to_owned());
    inner.filter(|directory| !directory.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        assert_eq!(directories_above("/usr/lib/x.so"), ["/usr", "/usr/lib"]);
        assert_eq!(directories_above("/x"), Vec::<String>::new());
    }
}
