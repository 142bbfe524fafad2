// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions of QEMU that are known to emulate an architecture wrongly, so that a guest's trouble is not taken for
//! the kernel's. Pure. It says nothing about versions that nobody has reported, and nothing about KVM.

/// Major, minor and micro version.
type Version = (u32, u32, u32);

/// A fault of the versions from `first` up to, but without, `fixed`.
struct KnownFault {
    uname: &'static str,
    first: Version,
    fixed: Version,
    what: &'static str,
}

const KNOWN_FAULTS: &[KnownFault] = &[
    // Public reports: ClangBuiltLinux/continuous-integration 262, four boots of five failed with 3.1.
    KnownFault {
        uname: "ppc64le",
        first: (0, 0, 0),
        fixed: (4, 2, 0),
        what: "many ppc64le guests do not boot before QEMU 4.2",
    },
    // Public reports: QEMU 1769, AlmaLinux/cloud-images 366. Ubuntu 24.04 has this version.
    KnownFault {
        uname: "ppc64le",
        first: (8, 2, 2),
        fixed: (8, 2, 3),
        what: "its vector instructions of POWER9 compute wrong results",
    },
];

/// What is wrong with this QEMU for guests of that architecture, if it is known. `version` starts with the
/// number, or has it after other words.
pub(crate) fn known_bad(version: &str, uname: &str) -> Option<&'static str> {
    let number = number(version)?;
    let mut faults = KNOWN_FAULTS.iter().filter(|fault| fault.uname == uname);
    faults.find(|fault| fault.first <= number && number < fault.fixed).map(|fault| fault.what)
}

/// `(10, 0, 2)` out of `QEMU emulator version 10.0.2 (Debian ...)`.
pub(crate) fn number(version: &str) -> Option<Version> {
    version.split_whitespace().find_map(|word| {
        let mut parts = word.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        Some((major, minor, parts.next().flatten().unwrap_or(0)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        #[track_caller]
        fn check(version: &str, expected: Option<Version>) {
            assert_eq!(number(version), expected, "{version}");
        }
        check("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", Some((10, 0, 2)));
        check("7.2", Some((7, 2, 0)));
        check("9.1.0-rc3", Some((9, 1, 0)));
        check("8.2.2(Ubuntu)", Some((8, 2, 2)));
        check("no version here", None);
        check("", None);
    }

    #[test]
    fn bad_versions_are_known() {
        #[track_caller]
        fn check(version: &str, uname: &str, expected: Option<&str>) {
            let said = known_bad(version, uname);
            assert_eq!(said.is_some(), expected.is_some(), "{version} for {uname}: {said:?}");
            assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()), "{said:?}");
        }
        check("8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.4)", "ppc64le", Some("POWER9"));
        check("8.2.2", "aarch64", None);
        check("8.2.2", "x86_64", None);
        check("8.2.1", "ppc64le", None);
        check("8.2.3", "ppc64le", None);
        check("4.1.1", "ppc64le", Some("do not boot"));
        check("4.2.0", "ppc64le", None);
        check("10.0.2 (Debian 1:10.0.2+ds-2)", "ppc64le", None);
        check("unknown", "ppc64le", None);
    }
}
