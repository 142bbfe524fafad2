// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GNU build id among the kernel's ELF notes, as /sys/kernel/notes holds them. A note is the lengths
//! of its name and its content, its type, the name, and the content, both padded to four bytes (ELF
//! specification, "Note Section").

use std::fmt::Write;

const NAME: &[u8] = b"GNU\0";
const NT_GNU_BUILD_ID: u32 = 3;

/// The build id in lower-case hexadecimal, if there is one.
pub(super) fn find(mut notes: &[u8]) -> Option<String> {
    loop {
        let name_length = number(&mut notes)?;
        let content_length = number(&mut notes)?;
        let kind = number(&mut notes)?;
        let name = take_padded(&mut notes, name_length)?;
        let content = take_padded(&mut notes, content_length)?;
        if kind == NT_GNU_BUILD_ID && name == NAME {
            return Some(hexadecimal(content));
        }
    }
}

/// Takes a number in the guest's own byte order from the front.
fn number(notes: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = notes.split_first_chunk()?;
    *notes = rest;
    Some(u32::from_ne_bytes(*bytes))
}

/// Takes bytes and their padding from the front. The last note's padding may be missing.
fn take_padded<'a>(notes: &mut &'a [u8], length: u32) -> Option<&'a [u8]> {
    let length = length as usize;
    let content = notes.get(..length)?;
    *notes = notes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(content)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn check(notes: &[Vec<u8>], expected: Option<&str>) {
        assert_eq!(find(&notes.concat()).as_deref(), expected);
    }

    #[test]
    fn notes() {
        let id = note(b"GNU\0", 3, &[0xab, 0x01, 0xff, 0x00, 0x7f]);
        let xen = note(b"Xen\0", 3, &[1, 2, 3]);
        let linux = note(b"Linux\0", 257, b"\0");
        check(std::slice::from_ref(&id), Some("ab01ff007f"));
        check(&[xen.clone(), linux.clone(), id.clone()], Some("ab01ff007f"));
        check(&[xen, linux], None);
        check(&[note(b"GNU\0", 1, &[1])], None);
        check(&[], None);
        check(&[id[..18].to_vec()], None);
        check(&[id[..21].to_vec()], Some("ab01ff007f"));
    }
}
