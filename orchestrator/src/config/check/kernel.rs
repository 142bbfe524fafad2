// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what makes a kernel: sources, patches, configuration, parameters, and the paths among them.
//! Whether a path, a revision or an option is really there is found out when it is used.

use std::path::PathBuf;

use super::super::located::Located;
use super::super::{Fragment, Kernel, KernelConfig, Location, PatchSource, Source, names, raw};
use super::{Findings, Place, Problem, plain_text};

/// Twinboot's own fragments that an experiment can ask for; the base's and the architecture's are
/// always in. They lie in kernel-configs/.
pub(crate) const OWN_FRAGMENTS: [&str; 3] = ["debug", "isolation", "trace"];

pub(super) fn kernel(raw: &raw::Kernel, place: &Place, findings: &mut Findings) -> Kernel {
    if raw.sources.value.is_empty() {
        findings.add(raw.sources.problem("no kernel source", "expected at least one"));
    }
    let sources = raw.sources.value.iter().map(|raw| source(raw, place));
    Kernel {
        sources: findings.keep_all(sources),
        config: config(&raw.fragments, &raw.options, place, findings),
        compiler: raw.compiler,
    }
}

pub(super) fn config(
    fragments: &[Located<String>],
    options: &raw::Options,
    place: &Place,
    findings: &mut Findings,
) -> KernelConfig {
    KernelConfig {
        fragments: findings.keep_all(fragments.iter().map(|raw| fragment(raw, place))),
        options: findings.keep_all(options.iter().map(option)).into_iter().collect(),
    }
}

pub(super) fn patches(raw: &raw::Arm, place: &Place, findings: &mut Findings) -> Vec<PatchSource> {
    let files = raw.patches.iter().map(|raw| path(raw, place).map(PatchSource::Path));
    let range = raw.range.0.iter().map(|raw| {
        let range = commits(&raw.commits)?;
        Ok(PatchSource::Range { repository: optional_path(&raw.repository.0, place)?, range })
    });
    let revert = raw.revert.0.iter().map(|raw| {
        let commit = revision(&raw.commit)?;
        Ok(PatchSource::Revert { repository: optional_path(&raw.repository.0, place)?, commit })
    });
    findings.keep_all(files.chain(range).chain(revert))
}

pub(super) fn cmdline(raw: &[Located<String>], findings: &mut Findings) -> Vec<String> {
    findings.keep_all(raw.iter().map(parameter))
}

fn source(raw: &Located<raw::Source>, place: &Place) -> Result<Source, Problem> {
    let raw::Source { debian, tarball, git, directory } = &raw.value;
    match (&debian.0, &tarball.0, &git.0, &directory.0) {
        (Some(package), None, None, None) => debian_package(package),
        (None, Some(archive), None, None) => tarball_source(archive, place),
        (None, None, Some(repository), None) => {
            let raw::Git { path, url, revision: wanted } = &repository.value;
            let repository = location(repository, &path.0, &url.0, place)?;
            Ok(Source::Git { repository, revision: revision(wanted)? })
        }
        (None, None, None, Some(directory)) => path(directory, place).map(Source::Directory),
        _ => Err(raw.problem(
            "not exactly one kind of source",
            "expected one of debian, tarball, git, directory; each alternative is an entry of its own",
        )),
    }
}

fn debian_package(package: &Located<String>) -> Result<Source, Problem> {
    let version = package.value.strip_prefix("linux-source-").unwrap_or_default();
    if version.is_empty() || !version.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(package.problem(
            format!("`{}` is not a source package of the kernel", package.value),
            "expected linux-source-VERSION, such as linux-source-6.12",
        ));
    }
    Ok(Source::Debian { package: package.value.clone() })
}

fn tarball_source(raw: &Located<raw::Tarball>, place: &Place) -> Result<Source, Problem> {
    let raw::Tarball { path, url, sha256 } = &raw.value;
    let location = location(raw, &path.0, &url.0, place)?;
    let sha256 = match (&sha256.0, &url.0) {
        (Some(digits), _) => Some(checked_sha256(digits)?),
        (None, Some(url)) => {
            return Err(url.problem(
                "a download without a checksum",
                "expected `sha256` beside it, so that everyone tests the same source",
            ));
        }
        (None, None) => None,
    };
    Ok(Source::Tarball { location, sha256 })
}

fn checked_sha256(digits: &Located<String>) -> Result<String, Problem> {
    let count = digits.value.chars().count();
    if count != 64 || !digits.value.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(digits.problem(
            "not a SHA-256",
            format!("expected 64 hexadecimal digits; this has {count} characters"),
        ));
    }
    Ok(digits.value.to_ascii_lowercase())
}

/// A path or an address, whichever is there.
fn location<T>(
    raw: &Located<T>,
    local: &Option<Located<String>>,
    url: &Option<Located<String>>,
    place: &Place,
) -> Result<Location, Problem> {
    match (local, url) {
        (Some(local), None) => path(local, place).map(Location::Path),
        (None, Some(url)) => address(url).map(Location::Url),
        _ => Err(raw.problem("no single place to get it from", "expected either `path` or `url`")),
    }
}

fn address(url: &Located<String>) -> Result<String, Problem> {
    let host = url.value.strip_prefix("https://").unwrap_or_default();
    if !host.starts_with(|c: char| c.is_ascii_alphanumeric())
        || url.value.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        return Err(url.problem("not an address to download from", "expected one that begins with https://"));
    }
    Ok(url.value.clone())
}

/// A revision that git cannot take for an option.
fn revision(text: &Located<String>) -> Result<String, Problem> {
    if !is_revision(&text.value) {
        return Err(text
            .problem(format!("`{}` is not a revision", text.value), "expected a tag, a branch or a commit"));
    }
    Ok(text.value.clone())
}

fn commits(range: &Located<String>) -> Result<String, Problem> {
    match range.value.split_once("..") {
        Some((from, to)) if is_revision(from) && is_revision(to) => Ok(range.value.clone()),
        _ => Err(range.problem(
            format!("`{}` is not a range of commits", range.value),
            "expected A..B: the commits after A up to B",
        )),
    }
}

fn is_revision(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['-', '.'])
        && !text.contains("..")
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

fn fragment(raw: &Located<String>, place: &Place) -> Result<Fragment, Problem> {
    let text = &raw.value;
    if text.contains('/') || text.ends_with(".config") {
        return path(raw, place).map(Fragment::File);
    }
    if !OWN_FRAGMENTS.contains(&text.as_str()) {
        let valid = names::one_of(text, OWN_FRAGMENTS);
        return Err(raw.problem(format!("`{text}` is neither a path nor one of Twinboot's fragments"), valid));
    }
    Ok(Fragment::Named(text.clone()))
}

fn option(
    (name, value): (&Located<raw::OptionName>, &Located<raw::OptionValue>),
) -> Result<(String, String), Problem> {
    let symbol = &name.value.0;
    let is_symbol =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match symbol.strip_prefix("CONFIG_") {
        Some(rest) if is_symbol(rest) => {}
        None if is_symbol(symbol) => {
            return Err(name.problem(
                format!("`{symbol}` is not an option's full name"),
                format!("expected CONFIG_{symbol}"),
            ));
        }
        _ => return Err(name.problem(format!("`{symbol}` is not an option"), "expected CONFIG_ and a name")),
    }
    let typed = value.value.0.as_str();
    match typed {
        "m" => Err(value.problem(
            "Twinboot's kernels have no modules",
            "expected y to build it in, or n to leave it out",
        )),
        "true" | "false" | "yes" | "no" => {
            Err(value.problem(format!("`{typed}` is not a value of an option"), "expected y or n"))
        }
        _ if typed.contains(char::is_control) => {
            Err(value.problem("a control character or a line break", "expected y, n, a number or a string"))
        }
        _ => Ok((symbol.clone(), typed.to_owned())),
    }
}

/// One kernel parameter: the kernel splits at spaces outside double quotes.
fn parameter(raw: &Located<String>) -> Result<String, Problem> {
    let text = plain_text(raw)?;
    let mut quoted = false;
    let splits = |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    };
    if text.contains(splits) {
        return Err(raw.problem("several kernel parameters in one", "expected each as an entry of its own"));
    }
    Ok(text)
}

fn optional_path(raw: &Option<Located<String>>, place: &Place) -> Result<Option<PathBuf>, Problem> {
    raw.as_ref().map(|raw| path(raw, place)).transpose()
}

/// A path as it is from the current directory.
pub(super) fn path(raw: &Located<String>, place: &Place) -> Result<PathBuf, Problem> {
    let text = plain_text(raw)?;
    let Some(rest) = text.strip_prefix("~/") else {
        return Ok(place.directory.join(text));
    };
    match &place.home {
        Some(home) => Ok(home.join(rest)),
        None => Err(raw.problem("no home directory", "expected a path without ~, as HOME is not set")),
    }
}
