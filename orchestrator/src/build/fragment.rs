// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel configuration as asked for: fragments in the kernel's own syntax, merged in order. Pure.

use indexmap::IndexMap;

/// Twinboot's own fragments, by the name that experiments use.
const OWN: &[(&str, &str)] = &[
    ("base", include_str!("../../../kernel-configs/base.config")),
    ("x86_64", include_str!("../../../kernel-configs/x86_64.config")),
    ("aarch64", include_str!("../../../kernel-configs/aarch64.config")),
    ("ppc64le", include_str!("../../../kernel-configs/ppc64le.config")),
    ("trace", include_str!("../../../kernel-configs/trace.config")),
    ("isolation", include_str!("../../../kernel-configs/isolation.config")),
    ("debug", include_str!("../../../kernel-configs/debug.config")),
];

/// The text of one of Twinboot's own fragments.
pub(crate) fn own(name: &str) -> Option<&'static str> {
    OWN.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// The names of Twinboot's own fragments.
pub(crate) fn own_names() -> impl Iterator<Item = &'static str> {
    OWN.iter().map(|(name, _)| *name)
}

/// Options asked for, by name; what comes later wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(pub(crate) IndexMap<String, Request>);

/// One option asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// As in a .config: `y`, a number, or a string in quotes; `n` for "is not set".
    pub(crate) value: String,
    /// Not an error when the final configuration does not have it.
    pub(crate) optional: bool,
    /// Where it was asked for: `name:line`.
    pub(crate) place: String,
}

/// A line that is no configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{place}: expected `CONFIG_NAME=value` or `# CONFIG_NAME is not set`, found `{line}`")]
pub(crate) struct FragmentError {
    place: String,
    line: String,
}

impl Requests {
    /// Adds the options of a fragment. `name` is what errors call it.
    pub(crate) fn add_fragment(&mut self, name: &str, text: &str) -> Result<(), FragmentError> {
        for (index, line) in text.lines().enumerate() {
            let place = format!("{name}:{}", index + 1);
            let line = line.trim();
            if let Some(option) =
                line.strip_prefix("# CONFIG_").and_then(|rest| rest.strip_suffix(" is not set"))
            {
                self.set(format!("CONFIG_{option}"), "n", false, place);
            } else if line.starts_with("CONFIG_") {
                let Some((option, rest)) = line.split_once('=') else {
                    return Err(FragmentError { place, line: line.to_owned() });
                };
                let (value, remark) = split_remark(rest);
                self.set(option.to_owned(), value, remark.starts_with("optional"), place);
            } else if !line.is_empty() && !line.starts_with('#') {
                return Err(FragmentError { place, line: line.to_owned() });
            }
        }
        Ok(())
    }

    /// Adds one option; a value that is neither a tristate nor a number is put into quotes.
    pub(crate) fn add_option(&mut self, option: &str, value: &str, place: &str) {
        let plain = value.starts_with('"')
            || matches!(value, "y" | "n")
            || value.parse::<i64>().is_ok()
            || value.starts_with("0x");
        let value = if plain { value.to_owned() } else { format!("\"{value}\"") };
        self.set(option.to_owned(), &value, false, place.to_owned());
    }

    /// The text that is appended to the architecture's tiny configuration.
    pub(crate) fn text(&self) -> String {
        let line = |(option, request): (&String, &Request)| match request.value.as_str() {
            "n" => format!("# {option} is not set\n"),
            value => format!("{option}={value}\n"),
        };
        self.0.iter().map(line).collect()
    }

    fn set(&mut self, option: String, value: &str, optional: bool, place: String) {
        let request = Request { value: value.to_owned(), optional, place };
        self.0.insert(option, request);
    }
}

/// A value and the remark behind it; a `#` inside quotes begins no remark.
fn split_remark(text: &str) -> (&str, &str) {
    let end_of_value = match text.strip_prefix('"') {
        Some(inner) => inner.find('"').map_or(text.len(), |end| end + 2),
        None => text.find('#').unwrap_or(text.len()),
    };
    let (value, rest) = text.split_at(end_of_value);
    (value.trim(), rest.trim().trim_start_matches('#').trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_merge_and_the_later_wins() {
        let mut requests = Requests::default();
        requests
            .add_fragment("a", "CONFIG_A=y # why\n\n# words\nCONFIG_B=\"x # y\"  # optional: z\n")
            .unwrap();
        requests.add_fragment("b", "# CONFIG_A is not set\nCONFIG_C=12").unwrap();
        requests.add_option("CONFIG_D", "/init", "file");
        assert_eq!(
            requests.text(),
            "# CONFIG_A is not set\nCONFIG_B=\"x # y\"\nCONFIG_C=12\nCONFIG_D=\"/init\"\n"
        );
        assert!(requests.0["CONFIG_B"].optional);
        assert_eq!(requests.0["CONFIG_A"].place, "b:1");
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_place() {
        let error = Requests::default().add_fragment("x.config", "CONFIG_A=y\nset B").unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.config:2: expected `CONFIG_NAME=value` or `# CONFIG_NAME is not set`, found `set B`"
        );
    }

    #[test]
    fn every_own_fragment_is_well_formed() {
        for (name, text) in OWN {
            Requests::default().add_fragment(name, text).unwrap();
        }
    }
}
