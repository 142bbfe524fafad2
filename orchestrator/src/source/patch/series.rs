// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the mails of a mailbox or a directory to one complete series in order. Pure.
//!
//! Replies, cover letters and mails without a diff are no patches. Of several versions of a series the
//! newest is taken, if they have a subject in common, which shows that they are versions of one series.
//! Every patch `1/n` to `n/n` has to be there exactly once.

use std::collections::BTreeMap;

use super::error::SeriesFault;
use super::mail::Mail;

/// What the brackets of a subject say: `Re: [RFC PATCH net-next v2 03/10] x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// The subject without them.
    pub(super) title: String,
    pub(super) is_reply: bool,
    /// 1 when none is given.
    pub(super) version: u32,
    /// `n` and `m` of `n/m`.
    pub(super) number: Option<(u32, u32)>,
}

impl Tag {
    pub(super) fn parse(subject: &str) -> Self {
        let mut tag = Self { title: String::new(), is_reply: false, version: 1, number: None };
        let mut rest = subject.trim();
        while let Some(behind) = strip_reply(rest) {
            tag.is_reply = true;
            rest = behind;
        }
        let mut title = rest;
        // Lists put a bracket of their own before `[PATCH]`; a subject may have one of its own behind it.
        while let Some((bracket, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            rest = behind.trim_start();
            if tag.take(bracket) {
                title = rest;
                break;
            }
        }
        tag.title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        tag
    }

    /// Reads one bracket; says whether it is one of a patch.
    fn take(&mut self, bracket: &str) -> bool {
        let mut is_patch = false;
        for word in bracket.split([' ', ',', '\t']) {
            let word = word.to_ascii_uppercase();
            let behind = word.strip_prefix("PATCH").or_else(|| word.strip_prefix("RFC"));
            is_patch |= behind.is_some();
            if let Some(version) =
                behind.unwrap_or(&word).strip_prefix('V').and_then(|text| text.parse().ok())
            {
                self.version = version;
            }
            if let Some((n, m)) = word.split_once('/')
                && let (Ok(n), Ok(m)) = (n.parse(), m.parse())
            {
                self.number = Some((n, m));
                is_patch = true;
            }
        }
        is_patch
    }
}

/// The mails that are patches, and a note on every other.
pub(super) fn select(mails: Vec<Mail>, notes: &mut Vec<String>) -> Vec<Mail> {
    let mut patches: Vec<Mail> = Vec::new();
    let mut replies = 0;
    for mail in mails {
        let is_cover = mail.tag.number.is_some_and(|(number, _)| number == 0);
        if mail.tag.is_reply {
            replies += 1;
        } else if is_cover || !mail.has_diff() {
            let kind = if is_cover { "a cover letter" } else { "a mail without a diff" };
            notes.push(format!("left out {kind}: `{}` ({})", mail.tag.title, mail.origin.display()));
        } else if patches.iter().any(|other| other.is_same(&mail)) {
            notes.push(format!("left out a second copy: `{}` ({})", mail.tag.title, mail.origin.display()));
        } else {
            patches.push(mail);
        }
    }
    if 0 < replies {
        notes.push(format!("left out {replies} {}", if replies == 1 { "reply" } else { "replies" }));
    }
    patches
}

/// Picks the newest version, checks that it is complete, and orders it.
pub(super) fn arrange(patches: Vec<Mail>, notes: &mut Vec<String>) -> Result<Vec<Mail>, SeriesFault> {
    let (mut numbered, plain): (Vec<Mail>, Vec<Mail>) =
        patches.into_iter().partition(|mail| mail.tag.number.is_some());
    if let (Some(numbered), Some(plain)) = (numbered.first(), plain.first()) {
        return Err(SeriesFault::Mixed {
            numbered: numbered.tag.title.clone(),
            plain: plain.tag.title.clone(),
        });
    }
    if numbered.is_empty() {
        return Ok(newest_of_each(plain, notes));
    }
    numbered = newest_version(numbered, notes)?;
    check_complete(&numbered)?;
    numbered.sort_by_key(|mail| mail.tag.number);
    Ok(numbered)
}

/// Checks patches that were given one by one: of each series that they name, all have to be there.
pub(super) fn check_each_complete(patches: &[Mail]) -> Result<(), SeriesFault> {
    let mut series: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for Tag { version, number, .. } in patches.iter().map(|mail| &mail.tag) {
        if let Some((number, total)) = number {
            series.entry((*version, *total)).or_default().push(*number);
        }
    }
    series.into_iter().try_for_each(|((_, total), numbers)| check_none_missing(&numbers, total))
}

fn check_complete(patches: &[Mail]) -> Result<(), SeriesFault> {
    let mut seen: BTreeMap<u32, &Mail> = BTreeMap::new();
    let mut common = None;
    for mail in patches {
        let Some((number, total)) = mail.tag.number else { continue };
        let first = *common.get_or_insert(total);
        if first != total {
            return Err(SeriesFault::Totals { first, second: total });
        }
        if let Some(other) = seen.insert(number, mail) {
            let (first, second) = (other.tag.title.clone(), mail.tag.title.clone());
            return Err(SeriesFault::Twice { number, total, first, second });
        }
    }
    let numbers: Vec<u32> = seen.into_keys().collect();
    check_none_missing(&numbers, common.unwrap_or_default())
}

fn check_none_missing(numbers: &[u32], total: u32) -> Result<(), SeriesFault> {
    let missing: Vec<u32> = (1..=total).filter(|number| !numbers.contains(number)).collect();
    if missing.is_empty() { Ok(()) } else { Err(SeriesFault::Incomplete { missing, total }) }
}

fn newest_version(patches: Vec<Mail>, notes: &mut Vec<String>) -> Result<Vec<Mail>, SeriesFault> {
    let newest = patches.iter().map(|mail| mail.tag.version).max().unwrap_or(1);
    let (kept, older): (Vec<Mail>, Vec<Mail>) =
        patches.into_iter().partition(|mail| mail.tag.version == newest);
    let mut versions: Vec<u32> = older.iter().map(|mail| mail.tag.version).collect();
    versions.sort_unstable();
    versions.dedup();
    for old in versions {
        let mut titles = older.iter().filter(|mail| mail.tag.version == old).map(|mail| &mail.tag.title);
        if !titles.any(|title| kept.iter().any(|mail| mail.tag.title == *title)) {
            return Err(SeriesFault::Versions { old, new: newest });
        }
        notes.push(format!("took version {newest} of the series and left out version {old}"));
    }
    Ok(kept)
}

/// Of patches without numbers, the newest version of each subject.
fn newest_of_each(patches: Vec<Mail>, notes: &mut Vec<String>) -> Vec<Mail> {
    let mut kept: Vec<Mail> = Vec::new();
    for mail in patches {
        let other = kept.iter_mut().find(|other| other.tag.title == mail.tag.title);
        match other.filter(|other| other.tag.version != mail.tag.version) {
            None => kept.push(mail),
            Some(other) => {
                let (old, new) = if other.tag.version < mail.tag.version {
                    (std::mem::replace(other, mail).tag.version, &*other)
                } else {
                    (mail.tag.version, &*other)
                };
                notes.push(format!(
                    "took version {} of `{}` and left out version {old}",
                    new.tag.version, new.tag.title
                ));
            }
        }
    }
    kept
}

/// The answer prefixes that mail programs write.
fn strip_reply(subject: &str) -> Option<&str> {
    let (word, rest) = subject.split_once(':')?;
    let is_reply = ["re", "aw", "sv", "antw"].iter().any(|prefix| word.eq_ignore_ascii_case(prefix));
    is_reply.then(|| rest.trim_start())
}
