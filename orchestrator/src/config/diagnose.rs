// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with an experiment file, in plain words: the place, the line, a caret, what was
//! expected and the nearest valid name. The YAML reader's errors are put into the same words as the
//! findings of `check`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_yaml::{DefaultMessageFormatter, Error as YamlError, MessageFormatter};

use super::located::{Located, Mark};
use super::names::one_of;
use crate::fs::FileError;

/// An experiment file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("no experiment file {}{}", file.display(), did_you_mean(similar.as_deref()))]
    Missing { file: PathBuf, similar: Option<PathBuf> },
    #[error(transparent)]
    Read(FileError),
    #[error("{0}")]
    Invalid(Report),
}

/// Everything that is wrong with one file, and its text to show it in.
#[derive(Debug)]
pub(crate) struct Report {
    file: PathBuf,
    text: String,
    /// At least one, in the order of their places.
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Problem {
    mark: Mark,
    /// What is wrong; heads the message.
    what: String,
    /// What would be right; stands beside the caret.
    remedy: String,
}

impl Problem {
    pub(super) fn new(mark: Mark, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { mark, what: what.into(), remedy: remedy.into() }
    }
}

impl<T> Located<T> {
    /// Something wrong with this value.
    pub(super) fn problem(&self, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem::new(self.mark, what, remedy)
    }
}

impl ConfigError {
    /// For a file that could not be read; `is_file` tells whether a file of similar name is there.
    pub(super) fn unreadable(file: &Path, error: FileError, is_file: impl Fn(&Path) -> bool) -> Self {
        if !error.is_not_found() {
            return Self::Read(error);
        }
        let typed = file.display();
        let guesses = [format!("{typed}.yaml"), format!("configs/{typed}.yaml"), format!("configs/{typed}")];
        let similar = guesses.into_iter().map(PathBuf::from).find(|guess| is_file(guess));
        Self::Missing { file: file.to_owned(), similar }
    }

    pub(super) fn invalid(file: &Path, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.mark);
        Self::Invalid(Report { file: file.to_owned(), text: text.to_owned(), problems })
    }
}

/// The text of a file without its byte order mark, which is no column of the first line, or the place
/// where it stops being UTF-8.
pub(super) fn decode(file: &Path, mut bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes.drain(..'\u{feff}'.len_utf8());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        // Up to there, the replaced text is the original.
        let before = &text[..valid];
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        let mark = Mark { line: before.matches('\n').count() + 1, column, length: 1 };
        let what = format!("the byte 0x{:02X} is not UTF-8", error.as_bytes()[valid]);
        ConfigError::invalid(file, &text, vec![Problem::new(mark, what, "expected text in UTF-8")])
    })
}

/// Puts an error of the YAML reader into our words.
pub(super) fn translate(error: &YamlError, text: &str) -> Problem {
    let mark: Mark = error.location().unwrap_or(serde_yaml::Location::UNKNOWN).into();
    let problem = |what: String, remedy: &str| Problem::new(mark, what, remedy);
    match innermost(error) {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            problem(format!("unknown key `{field}`"), &unknown_key(field, expected))
        }
        YamlError::SerdeUnknownVariant { expected, .. } if mark.length == 0 => {
            problem("no value".to_owned(), &one_of("", expected.iter().copied()))
        }
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            problem(format!("unknown value `{variant}`"), &one_of(variant, expected.iter().copied()))
        }
        YamlError::SerdeMissingField { field, .. } => {
            problem(format!("missing key `{field}`"), &format!("expected `{field}` as well in this mapping"))
        }
        YamlError::DuplicateMappingKey { key, .. } => problem(
            format!("duplicate key{}", key.as_ref().map(|key| format!(" `{key}`")).unwrap_or_default()),
            "expected each key once",
        ),
        YamlError::Unexpected { expected, .. } => wrong_kind(mark, text, expected),
        YamlError::InvalidScalar { .. } => problem(
            format!("`{}` is not a whole number that fits", typed(mark, text)),
            "expected a whole number",
        ),
        YamlError::NullIntoString { .. } => problem("no value".to_owned(), "expected a value"),
        YamlError::SerdeInvalidType { expected, .. } => {
            problem("wrong kind of value".to_owned(), &format!("expected {expected}"))
        }
        YamlError::UnexpectedValueForUnitEnumVariant { .. } => wrong_kind(mark, text, "string scalar"),
        YamlError::Eof { .. } => {
            problem("the file is empty".to_owned(), "expected an experiment: name, kernel, guest, arms, ...")
        }
        YamlError::MultipleDocuments { .. } => {
            problem("a second YAML document".to_owned(), "expected one experiment in a file")
        }
        YamlError::ExternalMessage { msg, .. } if msg.contains("tabs disallowed") => {
            problem("a tab at the start of the line".to_owned(), "expected spaces: YAML takes no tabs here")
        }
        YamlError::ExternalMessage { msg, .. } if msg.contains("mapping values are not allowed") => problem(
            "a `:` where YAML takes none".to_owned(),
            "a text with a colon and a space needs quotes; a key needs the right indentation",
        ),
        other => problem(format!("not valid YAML: {}", DefaultMessageFormatter.format_message(other)), ""),
    }
}

/// An error of the reader without what is wrapped around it.
fn innermost(mut error: &YamlError) -> &YamlError {
    while let YamlError::AliasError { error: inner, .. } | YamlError::WithSnippet { error: inner, .. } = error
    {
        error = inner;
    }
    error
}

fn unknown_key(key: &str, valid: &[&str]) -> String {
    if key.starts_with(|c: char| c.is_ascii_digit()) {
        // `{cpus: 0-3,8}` is, to YAML, a key 8.
        return "expected a name; a list with commas needs quotes inside { }".to_owned();
    }
    one_of(key, valid.iter().copied())
}

/// Something stands where something of another kind should; `wanted` is in the reader's words.
fn wrong_kind(mark: Mark, text: &str, wanted: &str) -> Problem {
    let (kind, remedy) = match wanted {
        "mapping start" => ("a mapping", "expected `key: value` lines, or `{}`"),
        "sequence start" => ("a list", "expected `- value` lines, or `[value]`"),
        _ => ("a single value", "expected a single value"),
    };
    match found(mark, text) {
        Some(found) => Problem::new(mark, format!("{found} is not {kind}"), remedy),
        None => Problem::new(mark, "no value", remedy),
    }
}

/// What begins at a place, if anything does.
fn found(mark: Mark, text: &str) -> Option<String> {
    let mut rest = rest_of_line(mark, text).chars();
    match (rest.next(), rest.next()) {
        (Some('{'), _) => Some("a mapping".to_owned()),
        (Some('['), _) | (Some('-'), None | Some(' ')) => Some("a list".to_owned()),
        _ if 0 < mark.length => Some(format!("`{}`", typed(mark, text))),
        // Apart from lists, only absent values and the beginnings of block mappings have no length.
        (None | Some(':' | '#'), _) => None,
        _ => Some("a mapping".to_owned()),
    }
}

/// The value at a place as it was typed; of several lines the first.
fn typed(mark: Mark, text: &str) -> String {
    let rest = rest_of_line(mark, text);
    match rest.char_indices().nth(mark.length) {
        Some((end, _)) => rest[..end].to_owned(),
        None if rest.chars().count() < mark.length => format!("{rest} ..."),
        None => rest.to_owned(),
    }
}

fn rest_of_line(mark: Mark, text: &str) -> &str {
    let line = line_of(mark, text);
    line.char_indices().nth(mark.column - 1).map_or("", |(start, _)| &line[start..])
}

fn line_of(mark: Mark, text: &str) -> &str {
    text.lines().nth(mark.line - 1).unwrap_or_default()
}

fn did_you_mean(similar: Option<&Path>) -> String {
    similar.map(|path| format!("; did you mean {}?", path.display())).unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if 0 < number {
                formatter.write_str("\n\n")?;
            }
            self.show(problem, formatter)?;
        }
        Ok(())
    }
}

impl Report {
    fn show(&self, problem: &Problem, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { mark, what, remedy } = problem;
        // One column for each character, and nothing that could move the terminal's cursor.
        let harmless = |text: &str| text.replace(char::is_control, " ");
        let line = harmless(line_of(*mark, &self.text));
        let gutter = mark.line.to_string();
        let margin = " ".repeat(gutter.len());
        let carets = "^".repeat(caret_length(*mark, &self.text));
        let remedy = format!("{carets} {}", harmless(remedy));
        writeln!(formatter, "{}:{}:{}: {}", self.file.display(), mark.line, mark.column, harmless(what))?;
        writeln!(formatter, "{margin} |")?;
        writeln!(formatter, "{}", format!("{gutter} | {line}").trim_end())?;
        write!(formatter, "{margin} | {}{}", " ".repeat(mark.column - 1), remedy.trim_end())
    }
}

/// Where the length is not known, or only that of a bracket, the word that begins there.
fn caret_length(mark: Mark, text: &str) -> usize {
    let rest = rest_of_line(mark, text);
    let length = match mark.length {
        0 => rest.find(|c: char| c.is_whitespace() || ":,]}".contains(c)).unwrap_or(rest.len()),
        length => length.min(rest.chars().count()),
    };
    length.max(1)
}
