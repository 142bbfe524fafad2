// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and paragraphs that are aligned as plain text, in a terminal as in a mail.

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table with a head; every row has as many cells as there are columns.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(head, align)| (head.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// As Markdown, with the columns aligned for those who read it as text.
    pub(super) fn markdown(&self) -> String {
        // A bar inside a cell would end it.
        let escaped =
            |cells: &[String]| cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>();
        let head: Vec<String> = escaped(&self.heads());
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| escaped(row)).collect();
        // Three is the least that a rule of dashes has.
        let widths = self.widths(&head, &rows, 3);
        let rule: Vec<String> = self
            .columns
            .iter()
            .zip(&widths)
            .map(|((_, align), &width)| match align {
                Align::Left => "-".repeat(width + 2),
                Align::Right => format!("{}:", "-".repeat(width + 1)),
            })
            .collect();
        let mut lines = vec![self.line(&head, &widths, "| ", " | ", " |"), format!("|{}|", rule.join("|"))];
        lines.extend(rows.iter().map(|row| self.line(row, &widths, "| ", " | ", " |")));
        lines.join("\n")
    }

    /// The head and the rows, without rules: `gap` spaces between the columns.
    pub(super) fn plain(&self, gap: usize) -> Vec<String> {
        let widths = self.widths(&self.heads(), &self.rows, 0);
        let gap = " ".repeat(gap);
        std::iter::once(&self.heads())
            .chain(&self.rows)
            .map(|row| self.line(row, &widths, "", &gap, "").trim_end().to_owned())
            .collect()
    }

    fn heads(&self) -> Vec<String> {
        self.columns.iter().map(|(head, _)| head.clone()).collect()
    }

    fn widths(&self, head: &[String], rows: &[Vec<String>], least: usize) -> Vec<usize> {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].chars().count(), least]).max().unwrap_or(least)
        };
        (0..self.columns.len()).map(width).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize], start: &str, between: &str, end: &str) -> String {
        let padded = |((cell, &width), (_, align)): ((&String, &usize), &(String, Align))| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = cells.iter().zip(widths).zip(&self.columns).map(padded).collect();
        format!("{start}{}{end}", cells.join(between))
    }
}

/// Breaks a text between words; lines after the first begin with `indent` spaces. A word that is longer
/// than a line stays whole.
pub(super) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in unbroken(text) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) => lines.push(format!("{}{word}", " ".repeat(indent))),
            None => lines.push(word),
        }
    }
    lines.join("\n")
}

/// The words of a text, where `5 %` and `p = 0.01` count as one.
fn unbroken(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(last) if word.starts_with(['%', '=', '<']) || last.ends_with(['=', '<']) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// A console's line that fits; the whole one is in the run directory.
pub(super) fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.trim_end().to_owned();
    }
    line.chars().take(width - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        table.push(vec!["a|b".to_owned(), "1".to_owned()]);
        table.push(vec!["longer".to_owned(), "1000".to_owned()]);
        table
    }

    #[test]
    fn markdown_is_aligned() {
        let expected = "\
| name   |    n |
|--------|-----:|
| a\\|b   |    1 |
| longer | 1000 |";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn plain_has_no_rules() {
        assert_eq!(table().plain(2), ["name       n", "a|b        1", "longer  1000"]);
    }

    #[test]
    fn wrapping() {
        let check = |text: &str, expected: &str| assert_eq!(wrap(text, 10, 2), expected);
        check("", "");
        check("one two", "one two");
        check("one two three  four", "one two\n  three\n  four");
        check("one two 3 %, four", "one two\n  3 %,\n  four");
        check("one two p = 0.1, x", "one two\n  p = 0.1,\n  x");
        check("a word-longer-than-that stays", "a\n  word-longer-than-that\n  stays");
    }
}
