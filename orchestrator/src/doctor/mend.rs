// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that mend what this host lacks, as they have to be typed on this host. Pure, but for
//! [`System::look`].

use std::path::Path;

use crate::sys;

/// What the commands depend on.
#[derive(Debug, Default)]
pub(crate) struct System {
    /// Whether the person at the keyboard is root.
    root: bool,
    /// The release's name in /etc/os-release.
    codename: String,
    /// What apt's files say where packages come from.
    sources: String,
    /// Names of the lists of packages that apt has fetched.
    lists: Vec<String>,
}

const BOOKWORM: &str = "bookworm";
const BACKPORTS: &str = "bookworm-backports";

impl System {
    /// Looks at this host.
    pub(crate) fn look() -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let mut sources = read(Path::new("/etc/apt/sources.list"));
        for name in names_in("/etc/apt/sources.list.d") {
            sources.push('\n');
            sources.push_str(&read(&Path::new("/etc/apt/sources.list.d").join(name)));
        }
        Self {
            root: sys::user_id() == 0,
            codename: codename(&read(Path::new("/etc/os-release"))).unwrap_or_default().to_owned(),
            sources,
            lists: names_in("/var/lib/apt/lists"),
        }
    }

    /// Installs a package.
    pub(crate) fn install(&self, package: &str) -> String {
        let sudo = self.sudo();
        let refresh = if self.has_list("") { String::new() } else { self.refresh() };
        format!("{refresh}{sudo}apt-get install {package}")
    }

    /// Installs a QEMU that is new enough. Debian 12's own is not, and QEMU's packages have to be of one version.
    pub(crate) fn install_qemu(&self, package: &str) -> String {
        if self.codename != BOOKWORM {
            return self.install(package);
        }
        let sudo = self.sudo();
        let known =
            self.sources.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(BACKPORTS));
        let add = if known {
            String::new()
        } else {
            let file = "/etc/apt/sources.list.d/backports.list";
            format!("echo 'deb http://deb.debian.org/debian {BACKPORTS} main' | {sudo}tee {file} && ")
        };
        let refresh = if known && self.has_list(BACKPORTS) { String::new() } else { self.refresh() };
        format!("{add}{refresh}{sudo}apt-get install -t {BACKPORTS} {package}")
    }

    /// Replaces a QEMU that does not do, where the release has a better one.
    pub(crate) fn replace_qemu(&self, package: &str) -> Option<String> {
        (self.codename == BOOKWORM).then(|| self.install_qemu(package))
    }

    /// Whether ci/cross knows where to take a shell for guests of other architectures from.
    pub(crate) fn has_foreign_shells(&self) -> bool {
        [BOOKWORM, "trixie"].contains(&self.codename.as_str())
    }

    fn sudo(&self) -> &'static str {
        if self.root { "" } else { "sudo " }
    }

    fn refresh(&self) -> String {
        format!("{}apt-get update && ", self.sudo())
    }

    fn has_list(&self, suite: &str) -> bool {
        self.lists.iter().any(|name| name.contains("_Packages") && name.contains(suite))
    }
}

#[cfg(test)]
impl System {
    /// A host of that release about which nothing else is known.
    pub(super) fn of(codename: &str) -> Self {
        Self { codename: codename.to_owned(), ..Self::default() }
    }
}

fn codename(os_release: &str) -> Option<&str> {
    os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "deb.debian.org_debian_dists_bookworm_main_binary-amd64_Packages.lz4";
    const NEWER: &str = "deb.debian.org_debian_dists_bookworm-backports_main_binary-amd64_Packages";

    fn system(codename: &str, sources: &str, lists: &[&str]) -> System {
        let lists = lists.iter().map(|&name| name.to_owned()).collect();
        System { root: false, codename: codename.to_owned(), sources: sources.to_owned(), lists }
    }

    #[test]
    fn packages_are_installed_with_what_it_takes() {
        #[track_caller]
        fn check(system: &System, expected: &str) {
            assert_eq!(system.install("bc"), expected);
        }
        check(&system(BOOKWORM, "", &[MAIN]), "sudo apt-get install bc");
        check(&System { root: true, ..system(BOOKWORM, "", &[MAIN]) }, "apt-get install bc");
        check(&system(BOOKWORM, "", &["lock", "partial"]), "sudo apt-get update && sudo apt-get install bc");
    }

    #[test]
    fn a_new_enough_qemu_is_installed() {
        #[track_caller]
        fn check(system: &System, expected: &str) {
            assert_eq!(system.install_qemu("qemu-system-arm"), expected);
        }
        let set_up = "Suites: bookworm bookworm-backports\n";
        check(
            &system(BOOKWORM, set_up, &[MAIN, NEWER]),
            "sudo apt-get install -t bookworm-backports qemu-system-arm",
        );
        check(
            &system(BOOKWORM, set_up, &[MAIN]),
            "sudo apt-get update && sudo apt-get install -t bookworm-backports qemu-system-arm",
        );
        check(
            &system(BOOKWORM, "# deb http://deb.debian.org/debian bookworm-backports main\n", &[MAIN]),
            "echo 'deb http://deb.debian.org/debian bookworm-backports main' | \
             sudo tee /etc/apt/sources.list.d/backports.list && sudo apt-get update && \
             sudo apt-get install -t bookworm-backports qemu-system-arm",
        );
        check(&system("noble", "", &[MAIN]), "sudo apt-get install qemu-system-arm");
        assert_eq!(system("noble", "", &[MAIN]).replace_qemu("qemu-system-arm"), None);
        assert!(system(BOOKWORM, "", &[MAIN]).replace_qemu("qemu-system-arm").is_some());
    }

    #[test]
    fn the_release_is_read() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("ID=arch\n"), None);
    }
}
