// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether two kernels are the same in code and data, so that no boot can tell them apart.

use std::path::Path;

use object::{Object, ObjectSection, SectionFlags, SectionKind};

use crate::fs::{self, FileError};
use crate::vm::arch::BugEntry;

/// The build id, which hashes also what is not loaded.
const NOTES: &str = ".notes";
/// The table behind `BUG()` and `WARN()`. It holds source lines, which a comment moves.
const BUG_TABLE: &str = "__bug_table";

/// An image that could not be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompareError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("read the sections of {image}")]
    Format { image: String, source: object::Error },
}

/// One section that is loaded into memory.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    name: String,
    address: u64,
    size: u64,
    /// Empty for a section of zeroes.
    data: Vec<u8>,
}

/// The names of loaded sections that differ between two images, apart from the build id and from the
/// source lines of `BUG()` and `WARN()`. None: the kernels behave alike.
pub(crate) fn differing_sections(
    first: &Path,
    second: &Path,
    bug_entry: BugEntry,
) -> Result<Vec<String>, CompareError> {
    let (first, second) = (loaded(first, bug_entry)?, loaded(second, bug_entry)?);
    let differs = |section: &&Loaded| !second.contains(section);
    let mut names: Vec<_> = first.iter().filter(differs).map(|section| section.name.clone()).collect();
    let known = |section: &&Loaded| first.iter().any(|other| other.name == section.name);
    names.extend(second.iter().filter(|section| !known(section)).map(|section| section.name.clone()));
    Ok(names)
}

/// The GNU build id of an image, in hexadecimal.
pub(crate) fn build_id(image: &Path) -> Result<String, CompareError> {
    let bytes = fs::read(image)?;
    let format = |source| CompareError::Format { image: image.display().to_string(), source };
    let id = object::File::parse(&*bytes).map_err(format)?.build_id().map_err(format)?.unwrap_or_default();
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn loaded(image: &Path, bug_entry: BugEntry) -> Result<Vec<Loaded>, CompareError> {
    let bytes = fs::read(image)?;
    let format = |source| CompareError::Format { image: image.display().to_string(), source };
    let file = object::File::parse(&*bytes).map_err(format)?;
    let mut sections = Vec::new();
    for section in file.sections() {
        let name = section.name().map_err(format)?.to_owned();
        if !is_loaded(&section) || name == NOTES {
            continue;
        }
        let zeroes = matches!(section.kind(), SectionKind::UninitializedData | SectionKind::UninitializedTls);
        let mut data = if zeroes { Vec::new() } else { section.data().map_err(format)?.to_vec() };
        if name == BUG_TABLE {
            forget_lines(&mut data, bug_entry);
        }
        sections.push(Loaded { name, address: section.address(), size: section.size(), data });
    }
    Ok(sections)
}

fn is_loaded(section: &object::Section<'_, '_>) -> bool {
    match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(object::elf::SHF_ALLOC),
        _ => false,
    }
}

fn forget_lines(table: &mut [u8], entry: BugEntry) {
    for bug in table.chunks_exact_mut(entry.size) {
        bug[entry.line_offset..entry.line_offset + entry.line_size].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_of_a_bug_entry_is_forgotten() {
        let entry = BugEntry { size: 12, line_offset: 8, line_size: 2 };
        let mut table: Vec<u8> = (1..=24).collect();
        forget_lines(&mut table, entry);
        let expected = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 0, 0, 23, 24];
        assert_eq!(table, expected);
    }
}
