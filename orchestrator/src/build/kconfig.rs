// SPDX-License-Identifier: MIT OR Apache-2.0
//! The final .config: what it holds, what it lacks of what was asked for, and which dependency is in the
//! way. The kernel drops an option whose dependencies are unmet without a word; here that is an error
//! before anything is compiled.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::fragment::Requests;
use crate::fs::{self, FileError};

/// A .config as a map; what is "not set" is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DotConfig(pub(crate) BTreeMap<String, String>);

impl DotConfig {
    pub(crate) fn parse(text: &str) -> Self {
        let options = text.lines().filter(|line| line.starts_with("CONFIG_"));
        let pairs = options.filter_map(|line| line.split_once('='));
        Self(pairs.map(|(option, value)| (option.to_owned(), value.to_owned())).collect())
    }

    /// The option's value, `n` when it is not set.
    pub(crate) fn value(&self, option: &str) -> &str {
        self.0.get(option).map_or("n", String::as_str)
    }

    /// Options whose values differ, with both.
    pub(crate) fn differences<'a>(&'a self, other: &'a Self) -> Vec<Difference<'a>> {
        let mut options: Vec<&str> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        options.sort_unstable();
        options.dedup();
        let differs = |option: &&str| self.value(option) != other.value(option);
        options
            .into_iter()
            .filter(differs)
            .map(|option| Difference { option, ours: self.value(option), theirs: other.value(option) })
            .collect()
    }
}

/// One option that two configurations disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference<'a> {
    pub(crate) option: &'a str,
    pub(crate) ours: &'a str,
    pub(crate) theirs: &'a str,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} here, {} in the base", self.option, self.ours, self.theirs)
    }
}

/// An option that was asked for and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) option: String,
    pub(crate) asked: String,
    pub(crate) found: String,
    pub(crate) place: String,
    /// Why, in words.
    pub(crate) because: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, asked, found, place, because } = self;
        write!(f, "{option}={asked} ({place}) is {found} in the final .config: {because}")
    }
}

/// What was asked for and is not there.
pub(crate) fn missing(
    requests: &Requests,
    config: &DotConfig,
    tree: &Path,
    arch_dir: &str,
) -> Result<Vec<Missing>, FileError> {
    let lacking = |option: &str, asked: &str| config.value(option) != asked;
    let mut missing: Vec<Missing> = requests
        .0
        .iter()
        .filter(|(option, request)| !request.optional && lacking(option, &request.value))
        .map(|(option, request)| Missing {
            option: option.clone(),
            asked: request.value.clone(),
            found: config.value(option).to_owned(),
            place: request.place.clone(),
            because: String::new(),
        })
        .collect();
    if !missing.is_empty() {
        // Reading the tree's Kconfig files takes a moment, so only when there is something to explain.
        let symbols = Symbols::read(tree, arch_dir)?;
        for entry in &mut missing {
            entry.because = symbols.explain(&entry.option, &entry.asked, config);
        }
    }
    Ok(missing)
}

/// Where symbols are defined and what they depend on, as far as explaining needs it.
#[derive(Debug, Default)]
struct Symbols {
    /// For each symbol, its definitions: each a list of conditions that must all hold.
    definitions: HashMap<String, Vec<Vec<String>>>,
    /// Which symbols select a symbol.
    selected_by: HashMap<String, Vec<String>>,
}

impl Symbols {
    fn read(tree: &Path, arch_dir: &str) -> Result<Self, FileError> {
        let mut symbols = Self::default();
        let mut directories = vec![tree.to_owned()];
        while let Some(directory) = directories.pop() {
            for path in fs::list(&directory)? {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // Another architecture's Kconfig defines symbols of the same names.
                let foreign = directory.ends_with("arch") && name != arch_dir && !name.starts_with("Kconfig");
                let skipped = matches!(&*name, "Documentation" | "out" | "tools" | "testing" | ".git");
                if path.is_dir() && !path.is_symlink() && !foreign && !skipped {
                    directories.push(path);
                } else if name.starts_with("Kconfig") && path.is_file() {
                    symbols.add(&String::from_utf8_lossy(&fs::read(&path)?));
                }
            }
        }
        Ok(symbols)
    }

    /// Reads one Kconfig file. Menus and `if` blocks add their conditions to what is inside.
    fn add(&mut self, text: &str) {
        /// Whose attributes follow.
        enum Owner {
            Symbol(String),
            Menu,
            Other,
        }
        let text = text.replace("\\\n", " ");
        let mut enclosing: Vec<Vec<String>> = Vec::new();
        let mut owner = Owner::Other;
        let mut help_indent: Option<usize> = None;
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let statement = line.trim();
            if let Some(help) = help_indent {
                if statement.is_empty() || help < indent {
                    continue;
                }
                help_indent = None;
            }
            let (word, rest) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
            match word {
                "help" => help_indent = Some(indent),
                "config" | "menuconfig" => {
                    let conditions = enclosing.concat();
                    self.definitions.entry(rest.trim().to_owned()).or_default().push(conditions);
                    owner = Owner::Symbol(rest.trim().to_owned());
                }
                "menu" => {
                    enclosing.push(Vec::new());
                    owner = Owner::Menu;
                }
                "if" => {
                    enclosing.push(vec![rest.to_owned()]);
                    owner = Owner::Other;
                }
                "endmenu" | "endif" => {
                    enclosing.pop();
                    owner = Owner::Other;
                }
                "choice" | "comment" | "source" => owner = Owner::Other,
                "depends" => {
                    let condition = rest.trim_start_matches("on").trim().to_owned();
                    match &owner {
                        Owner::Symbol(name) => {
                            let definitions = self.definitions.get_mut(name);
                            if let Some(last) = definitions.and_then(|definitions| definitions.last_mut()) {
                                last.push(condition);
                            }
                        }
                        Owner::Menu => {
                            if let Some(last) = enclosing.last_mut() {
                                last.push(condition);
                            }
                        }
                        Owner::Other => {}
                    }
                }
                "select" => {
                    if let (Owner::Symbol(by), Some(target)) = (&owner, rest.split_whitespace().next()) {
                        self.selected_by.entry(target.to_owned()).or_default().push(by.clone());
                    }
                }
                _ => {}
            }
        }
    }

    fn explain(&self, option: &str, asked: &str, config: &DotConfig) -> String {
        let name = option.trim_start_matches("CONFIG_");
        let Some(definitions) = self.definitions.get(name) else {
            return "this kernel has no such option".to_owned();
        };
        let is_set = |symbol: &str| config.value(&format!("CONFIG_{symbol}")) != "n";
        if asked == "n" {
            let selectors = self.selected_by.get(name).into_iter().flatten();
            let active: Vec<_> = selectors.filter(|symbol| is_set(symbol)).map(String::as_str).collect();
            return match active.as_slice() {
                [] => "it cannot be turned off here (it has no prompt, or a default that holds)".to_owned(),
                active => format!("it is selected by {}", active.join(", ")),
            };
        }
        let mut unmet: Vec<&str> = definitions
            .iter()
            .flatten()
            .flat_map(|condition| conjuncts(condition))
            .filter(|condition| !holds(condition, config))
            .collect();
        unmet.sort_unstable();
        unmet.dedup();
        match unmet.as_slice() {
            [] => "no unmet dependency of its own: a choice, a range or a default overrides it".to_owned(),
            unmet => format!("its dependency is not met: {}", unmet.join(" and ")),
        }
    }
}

/// The parts of an expression that must all hold.
fn conjuncts(expression: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut parts = Vec::new();
    let mut start = 0;
    for (index, c) in expression.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '&' if depth == 0 && expression[index..].starts_with("&&") => {
                parts.push(expression[start..index].trim());
                start = index + 2;
            }
            // With an alternative at the top there is nothing to take apart.
            '|' if depth == 0 => return vec![expression.trim()],
            _ => {}
        }
    }
    parts.push(expression[start..].trim());
    parts
}

/// Whether an expression of Kconfig's holds, with `m` as good as `y`.
fn holds(expression: &str, config: &DotConfig) -> bool {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        #[expect(clippy::unwrap_used, reason = "the pattern is a constant that a test compiles")]
        Regex::new(r#"&&|\|\||!=|<=|>=|[!()=<>]|"[^"]*"|\$\([^)]*\)|[A-Za-z0-9_]+"#).unwrap()
    });
    let tokens: Vec<&str> = TOKEN.find_iter(expression).map(|found| found.as_str()).collect();
    let mut parser = Parser { tokens: &tokens, config };
    parser.alternatives()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    config: &'a DotConfig,
}

impl<'a> Parser<'a> {
    fn alternatives(&mut self) -> bool {
        let mut value = self.conjunction();
        while self.take("||") {
            // Both sides are read in any case: `||` of Rust would leave tokens behind.
            let right = self.conjunction();
            value = value || right;
        }
        value
    }

    fn conjunction(&mut self) -> bool {
        let mut value = self.factor();
        while self.take("&&") {
            let right = self.factor();
            value = value && right;
        }
        value
    }

    fn factor(&mut self) -> bool {
        if self.take("!") {
            return !self.factor();
        }
        if self.take("(") {
            let value = self.alternatives();
            self.take(")");
            return value;
        }
        let left = self.operand();
        for operator in ["=", "!=", "<=", ">=", "<", ">"] {
            if self.take(operator) {
                let right = self.operand();
                return compare(&left, operator, &right);
            }
        }
        left != "n" && !left.is_empty()
    }

    /// A symbol's value, or a constant.
    fn operand(&mut self) -> String {
        let Some((token, rest)) = self.tokens.split_first() else { return String::new() };
        self.tokens = rest;
        match *token {
            "y" | "m" | "n" => (*token).to_owned(),
            quoted if quoted.starts_with('"') => quoted.trim_matches('"').to_owned(),
            // What a shell command in a condition says is not known here: it is not blamed.
            macro_call if macro_call.starts_with('$') => "y".to_owned(),
            number if number.parse::<i64>().is_ok() => number.to_owned(),
            symbol => self.config.value(&format!("CONFIG_{symbol}")).trim_matches('"').to_owned(),
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

fn compare(left: &str, operator: &str, right: &str) -> bool {
    let order = match (left.parse::<i64>(), right.parse::<i64>()) {
        (Ok(left), Ok(right)) => left.cmp(&right),
        _ => left.cmp(right),
    };
    match operator {
        "=" => order.is_eq(),
        "!=" => order.is_ne(),
        "<=" => order.is_le(),
        ">=" => order.is_ge(),
        "<" => order.is_lt(),
        _ => order.is_gt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> DotConfig {
        DotConfig::parse(text)
    }

    #[test]
    fn expressions_hold_as_kconfig_says() {
        let config = config("CONFIG_A=y\nCONFIG_N=4\nCONFIG_S=\"x\"\n");
        let check = |expression: &str, expected: bool| {
            assert_eq!(holds(expression, &config), expected, "{expression}");
        };
        check("A", true);
        check("!A", false);
        check("B", false);
        check("A && !B", true);
        check("B || (A && N >= 4)", true);
        check("N < 4 || S = \"x\" && B", false);
        check("S != \"y\"", true);
        check("B=n", true);
        check("$(cc-option,-mfoo)", true);
    }

    #[test]
    fn the_dependency_in_the_way_is_named() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(
            tree.path().join("Kconfig"),
            "menu \"M\"\n\tdepends on OUTER\nconfig WANTED\n\tbool \"w\"\n\tdepends on A && (B || C)\n\thelp\n\t  depends on NOTHING\n\
             config STUCK\n\tbool\nconfig A\n\tbool\n\tselect STUCK\nendmenu\n",
        )
        .unwrap();
        let mut requests = Requests::default();
        requests
            .add_fragment(
                "f",
                "CONFIG_WANTED=y\nCONFIG_GONE=y\nCONFIG_MAYBE=y # optional\n# CONFIG_STUCK is not set",
            )
            .unwrap();
        let found = config("CONFIG_A=y\nCONFIG_STUCK=y\n");
        let missing = missing(&requests, &found, tree.path(), "x86").unwrap();
        let shown: Vec<_> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "CONFIG_WANTED=y (f:1) is n in the final .config: its dependency is not met: (B || C) and OUTER",
                "CONFIG_GONE=y (f:2) is n in the final .config: this kernel has no such option",
                "CONFIG_STUCK=n (f:4) is y in the final .config: it is selected by A",
            ]
        );
    }

    #[test]
    fn differences_name_both_values() {
        let (base, arm) =
            (config("CONFIG_A=y\nCONFIG_B=1\n"), config("CONFIG_A=y\nCONFIG_B=2\nCONFIG_C=y\n"));
        let shown: Vec<_> = arm.differences(&base).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["CONFIG_B: 2 here, 1 in the base", "CONFIG_C: y here, n in the base"]);
    }
}
