// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the CPUs of a guest that hangs are: program counters from QEMU's register dump, named from the
//! kernel's symbol table. Best effort: a hang without names is still a hang.

use std::path::Path;
use std::sync::LazyLock;

use object::{Object, ObjectSymbol, SymbolKind};
use regex::Regex;

/// One line for each CPU in the output of the monitor's `info registers -a`.
pub(crate) fn describe(registers: &str, kernel: &Path) -> Vec<String> {
    let counters = program_counters(registers);
    let image = crate::fs::read(kernel).unwrap_or_default();
    let symbols = object::File::parse(&*image).map(|file| functions(&file)).unwrap_or_default();
    counters
        .into_iter()
        .enumerate()
        .map(|(cpu, counter)| format!("CPU {cpu} is at {}", name(&symbols, counter)))
        .collect()
}

/// The program counters in a register dump: `RIP=`, `PC=` or `NIP `.
fn program_counters(registers: &str) -> Vec<u64> {
    static COUNTER: LazyLock<Regex> = LazyLock::new(|| {
        #[expect(clippy::unwrap_used, reason = "the pattern is a constant that a test compiles")]
        Regex::new(r"\b(?:RIP=|EIP=|PC=|NIP )([0-9a-f]{8,16})\b").unwrap()
    });
    COUNTER
        .captures_iter(registers)
        .filter_map(|captures| u64::from_str_radix(&captures[1], 16).ok())
        .collect()
}

/// The functions of an image, sorted by address.
fn functions(image: &object::File<'_>) -> Vec<(u64, String)> {
    let mut functions: Vec<_> = image
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
        .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())))
        .collect();
    functions.sort();
    functions
}

fn name(functions: &[(u64, String)], counter: u64) -> String {
    let after = functions.partition_point(|(start, _)| *start <= counter);
    match after.checked_sub(1).and_then(|index| functions.get(index)) {
        Some((start, name)) if counter - start < 1 << 20 => format!("{name}+{:#x}", counter - start),
        _ => format!("{counter:#x}, outside the kernel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_and_named() {
        let dump = "CPU#0\nRAX=0000000000000000 RBX=ff\nRIP=ffffffff81000010 RFL=00000246\n\nCPU#1\nRIP=0000000000401000\n";
        assert_eq!(program_counters(dump), [0xffff_ffff_8100_0010, 0x40_1000]);
        let functions =
            [(0xffff_ffff_8100_0000, "startup".to_owned()), (0xffff_ffff_8100_0020, "idle".to_owned())];
        assert_eq!(name(&functions, 0xffff_ffff_8100_0010), "startup+0x10");
        assert_eq!(name(&functions, 0x40_1000), "0x401000, outside the kernel");
    }
}
