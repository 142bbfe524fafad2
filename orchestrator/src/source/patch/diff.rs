// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unified diff, as `git diff` and `diff -u` write it: which files, which hunks. Whether it applies is
//! for git to say; this is for the words around that. Format: git's documentation, "diff-format" and
//! "git-diff" (extended headers), and POSIX `diff -u`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The changes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileDiff {
    /// `None` for a new file.
    pub(super) old: Option<PathBuf>,
    /// `None` for a deleted file.
    pub(super) new: Option<PathBuf>,
    /// The old name with its first component, as written.
    pub(super) written: Option<PathBuf>,
    pub(super) hunks: Vec<Hunk>,
    /// Whether it began with a `diff --git` line, so that `---` and `+++` only confirm it.
    is_git: bool,
}

/// One hunk's old side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    /// The `@@` line.
    pub(super) header: String,
    /// Counted from 1.
    pub(super) old_start: usize,
    /// Context and removed lines, without their line ends.
    pub(super) old_lines: Vec<Vec<u8>>,
}

impl FileDiff {
    /// The name under which people look for it.
    pub(super) fn name(&self) -> &Path {
        self.new.as_deref().or(self.old.as_deref()).unwrap_or(Path::new("?"))
    }
}

/// All files of a diff; text around them is passed over.
pub(super) fn parse(diff: &[u8]) -> Vec<FileDiff> {
    let lines: Vec<&[u8]> = lines(diff).collect();
    let mut files: Vec<FileDiff> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(names) = line.strip_prefix(b"diff --git ") {
            let name = common_name(names);
            files.push(FileDiff { old: name.clone(), new: name, is_git: true, ..FileDiff::default() });
        } else if let Some(old) = line.strip_prefix(b"--- ") {
            let Some(new) = lines.get(at).and_then(|next| next.strip_prefix(b"+++ ")) else { continue };
            at += 1;
            if !files.last().is_some_and(|file| file.is_git && file.hunks.is_empty()) {
                files.push(FileDiff::default());
            }
            if let Some(file) = files.last_mut() {
                file.written = file_name(old);
                file.old = file.written.as_deref().map(without_prefix);
                file.new = file_name(new).as_deref().map(without_prefix);
            }
        } else if let Some(file) = files.last_mut() {
            if line.starts_with(b"@@ -") {
                at = take_hunk(file, &lines, at - 1);
            } else if file.is_git && file.hunks.is_empty() {
                take_extended_header(file, line);
            }
        }
    }
    files
}

/// Whether its structure ends its lines in CR LF. Content may: some files have such lines.
pub(super) fn has_crlf(diff: &[u8]) -> bool {
    let is_structure = |line: &&[u8]| line.starts_with(b"@@ -") || line.starts_with(b"diff --git ");
    lines(diff).filter(is_structure).any(|line| line.ends_with(b"\r"))
}

/// Lines without their ends; none after the last end.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn take_extended_header(file: &mut FileDiff, line: &[u8]) {
    let name = |prefix: &[u8]| line.strip_prefix(prefix).and_then(file_name);
    if let Some(old) = name(b"rename from ").or_else(|| name(b"copy from ")) {
        file.old = Some(old);
    } else if let Some(new) = name(b"rename to ").or_else(|| name(b"copy to ")) {
        file.new = Some(new);
    } else if line.starts_with(b"new file mode ") {
        file.old = None;
    } else if line.starts_with(b"deleted file mode ") {
        file.new = None;
    }
}

/// Takes the hunk whose `@@` line is at `at` and gives the index behind it. The counts decide where it ends:
/// a removed line `-- x` looks like a header.
fn take_hunk(file: &mut FileDiff, lines: &[&[u8]], at: usize) -> usize {
    let header = String::from_utf8_lossy(lines[at]).into_owned();
    let Some(((old_start, mut old), (_, mut new))) = hunk_ranges(&header) else { return at + 1 };
    let mut old_lines = Vec::new();
    let mut next = at + 1;
    while (0 < old || 0 < new) && next < lines.len() {
        let (kind, text) = lines[next].split_first().map_or((b' ', &[][..]), |(kind, text)| (*kind, text));
        match kind {
            b' ' => (old, new) = (old.saturating_sub(1), new.saturating_sub(1)),
            b'-' => old = old.saturating_sub(1),
            b'+' => new = new.saturating_sub(1),
            b'\\' => {}
            _ => break,
        }
        if matches!(kind, b' ' | b'-') {
            old_lines.push(text.to_vec());
        }
        next += 1;
    }
    file.hunks.push(Hunk { header, old_start, old_lines });
    next
}

/// Start and count of both sides of `@@ -12,7 +12,8 @@`; a count that is not given is 1.
fn hunk_ranges(header: &str) -> Option<((usize, usize), (usize, usize))> {
    let (old, rest) = header.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    Some((range(old)?, range(new)?))
}

/// The name of a `diff --git a/x b/x` line, when both are the same; else other lines give the names.
fn common_name(names: &[u8]) -> Option<PathBuf> {
    if names.starts_with(b"\"") {
        return file_name(names).as_deref().map(without_prefix);
    }
    let spaces = names.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(index, _)| index);
    let mut halves = spaces.map(|space| (&names[..space], &names[space + 1..]));
    halves.find_map(|(old, new)| {
        let (old, new) = (path(old), path(new));
        (without_prefix(&old) == without_prefix(&new)).then(|| without_prefix(&old))
    })
}

/// A name as a header gives it: quoted as in C, or up to a tab. `/dev/null` is no file.
fn file_name(text: &[u8]) -> Option<PathBuf> {
    let name = match text.strip_prefix(b"\"") {
        Some(quoted) => path(&unquoted(quoted)),
        None => path(text.split(|byte| *byte == b'\t').next().unwrap_or_default()),
    };
    (name != Path::new("/dev/null")).then_some(name)
}

/// Up to the closing quote. Escapes are those of C, numbers are octal.
fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => {
                let Some(escape) = bytes.next() else { break };
                plain.push(match escape {
                    b'0'..=b'7' => {
                        let mut value = u32::from(escape - b'0');
                        while let Some(digit) = bytes.next_if(|next| (b'0'..=b'7').contains(next)) {
                            value = value * 8 + u32::from(digit - b'0');
                        }
                        value as u8
                    }
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    other => other,
                });
            }
            other => plain.push(other),
        }
    }
    plain
}

/// What `-p1` leaves of a name.
fn without_prefix(name: &Path) -> PathBuf {
    let mut parts = name.components();
    let first = parts.next();
    let rest = parts.as_path();
    if rest == Path::new("") {
        first.map_or_else(PathBuf::new, |first| PathBuf::from(first.as_os_str()))
    } else {
        rest.to_owned()
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}
