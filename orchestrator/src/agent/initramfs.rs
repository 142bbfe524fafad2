// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's initramfs in the "newc" form of cpio (Documentation/driver-api/early-userspace/
//! buffer-format.rst of the kernel). Pure and reproducible: no times, no owners, inode numbers in order.

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File { executable: bool },
    CharDevice { major: u32, minor: u32 },
}

/// An archive that grows entry by entry.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initramfs {
    pub(crate) fn directory(&mut self, path: &str) {
        self.add(path, Kind::Directory, b"");
    }

    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.add(path, Kind::File { executable: false }, content);
    }

    pub(crate) fn program(&mut self, path: &str, content: &[u8]) {
        self.add(path, Kind::File { executable: true }, content);
    }

    pub(crate) fn char_device(&mut self, path: &str, major: u32, minor: u32) {
        self.add(path, Kind::CharDevice { major, minor }, b"");
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 1, 0, (0, 0));
        self.bytes
    }

    fn add(&mut self, path: &str, kind: Kind, content: &[u8]) {
        let (mode, device) = match kind {
            Kind::Directory => (0o040_755, (0, 0)),
            Kind::File { executable: false } => (0o100_644, (0, 0)),
            Kind::File { executable: true } => (0o100_755, (0, 0)),
            Kind::CharDevice { major, minor } => (0o020_600, (major, minor)),
        };
        self.entries += 1;
        let links = if kind == Kind::Directory { 2 } else { 1 };
        self.header(path.trim_start_matches('/'), mode, links, content.len(), device);
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn header(&mut self, path: &str, mode: u32, links: u32, size: usize, device: (u32, u32)) {
        let name_size = path.len() + 1;
        let inode = if mode == 0 { 0 } else { self.entries };
        let fields =
            [inode, mode, 0, 0, links, 0, size as u32, 0, 0, device.0, device.1, name_size as u32, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// Headers with their names, and contents, end on a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Initramfs::default();
        archive.directory("/dev");
        archive.char_device("/dev/console", 5, 1);
        archive.program("/init", b"\x7fELF...");
        archive.file("/orders", b"{}");
        archive.finish()
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        assert_eq!(sample(), sample());
        assert_eq!(sample().len() % 4, 0);
    }

    /// Walks the archive as the kernel's init/initramfs.c does.
    #[test]
    fn entries_are_found_where_the_kernel_looks() {
        let bytes = sample();
        let number = |at: usize| {
            let digits = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        let mut at = 0;
        let mut seen = Vec::new();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name_size) = (number(at + 14), number(at + 54), number(at + 94));
            let name = String::from_utf8_lossy(&bytes[at + 110..at + 110 + name_size - 1]).into_owned();
            let content = (at + 110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                break;
            }
            seen.push(format!(
                "{mode:o} {name} {}",
                String::from_utf8_lossy(&bytes[content..content + size])
            ));
            at = (content + size).next_multiple_of(4);
        }
        assert_eq!(
            seen,
            ["40755 dev ", "20600 dev/console ", "100755 init \u{7f}ELF...", "100644 orders {}"]
        );
    }
}
