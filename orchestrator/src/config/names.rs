// SPDX-License-Identifier: MIT OR Apache-2.0
//! How architectures, CPUs, statistics and metrics are written, and what helps with a name that is not
//! known.

use std::fmt;
use std::str::FromStr;

use super::{Arch, Disturbance, Metric, Statistic};

/// A name that stands for nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`: {expected}")]
pub(crate) struct NameError {
    kind: &'static str,
    name: String,
    /// The valid names and the nearest of them.
    pub(super) expected: String,
}

impl Arch {
    const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::Ppc64le];

    /// As the experiment file and `uname -m` have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Ppc64le => "ppc64le",
        }
    }
}

impl Disturbance {
    /// In the order in which they are sorted.
    pub(crate) const ALL: [Self; 4] = [Self::Tasks, Self::Tick, Self::Rcu, Self::Interrupts];

    /// As the experiment file has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Tick => "tick",
            Self::Rcu => "rcu",
            Self::Interrupts => "interrupts",
        }
    }
}

impl Statistic {
    /// In the order of the words that an error lists.
    const ALL: [Self; 6] = [Self::Mean, Self::Median, Self::P90, Self::P99, Self::P999, Self::Max];

    /// As the experiment file has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p999",
            Self::Max => "max",
        }
    }

    /// The quantile that it is, between 0 and 1; `None` for the mean and the maximum.
    pub(crate) fn quantile(self) -> Option<f64> {
        self.per_mille().map(|per_mille| per_mille as f64 / 1000.0)
    }

    /// How many samples of one trial it takes: 20 / (1 - q), so that some 20 lie beyond the quantile.
    pub(crate) fn samples_needed(self) -> u64 {
        self.per_mille().map_or(1, |per_mille| 20_000 / (1000 - per_mille))
    }

    /// The quantile as an integer, for exact arithmetic.
    fn per_mille(self) -> Option<u64> {
        match self {
            Self::Mean | Self::Max => None,
            Self::Median => Some(500),
            Self::P90 => Some(900),
            Self::P99 => Some(990),
            Self::P999 => Some(999),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.workload, self.statistic)
    }
}

impl FromStr for Arch {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        find("architecture", name, &Self::ALL, Self::name)
    }
}

impl FromStr for Statistic {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        find("statistic", name, &Self::ALL, Self::name)
    }
}

impl FromStr for Metric {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        match name.split_once('.') {
            Some((workload, statistic)) if is_name(workload) => {
                Ok(Self { workload: workload.to_owned(), statistic: statistic.parse()? })
            }
            _ => Err(NameError { kind: "metric", name: name.to_owned(), expected: METRIC_FORM.to_owned() }),
        }
    }
}

/// What a metric looks like.
pub(super) const METRIC_FORM: &str =
    "expected a workload's name, a dot and a statistic, such as pingpong.p99";

/// Whether a text can name an experiment, an arm or a workload.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// CPUs in words: `CPU 7`, `CPUs 0-3,8`.
pub(crate) fn cpus(cpus: &[u32]) -> String {
    let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("{word} {}", twinboot_protocol::cpu_list::format(cpus))
}

/// The names to choose from and the one that was probably meant, in words.
pub(super) fn one_of<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    let valid: Vec<&str> = valid.into_iter().collect();
    match valid.as_slice() {
        [] => "there is none to choose from".to_owned(),
        [only] => format!("expected {only}"),
        _ => {
            let hint = nearest(name, &valid).map(|near| format!("; did you mean `{near}`?"));
            format!("expected one of {}{}", valid.join(", "), hint.unwrap_or_default())
        }
    }
}

/// The valid name that is most alike, the first of equals, if one is alike at all.
fn nearest<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    const ALIKE: f64 = 0.8;
    let mut best = (ALIKE, None);
    for &other in valid {
        // Weighs the beginning most: an ending is what people vary, as in `judgement` for `judge`.
        let likeness = strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
        if best.0 < likeness {
            best = (likeness, Some(other));
        }
    }
    best.1
}

fn find<T: Copy>(
    kind: &'static str,
    name: &str,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<T, NameError> {
    let found = all.iter().find(|&&value| name_of(value) == name);
    found.copied().ok_or_else(|| NameError {
        kind,
        name: name.to_owned(),
        expected: one_of(name, all.iter().map(|&value| name_of(value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for statistic in Statistic::ALL {
            let metric = Metric { workload: "pipe-2".to_owned(), statistic };
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        assert_eq!("x86_64".parse(), Ok(Arch::X86_64));
    }

    #[test]
    fn unknown_names_come_with_the_nearest() {
        let error = |text: &str| text.parse::<Metric>().unwrap_err().to_string();
        assert_eq!(
            error("pingpong.p9"),
            "unknown statistic `p9`: expected one of mean, median, p90, p99, p999, max; did you mean `p90`?"
        );
        assert_eq!(error("p99"), format!("unknown metric `p99`: {METRIC_FORM}"));
        assert_eq!(
            "x86-64".parse::<Arch>().unwrap_err().expected,
            "expected one of x86_64, aarch64, ppc64le; did you mean `x86_64`?"
        );
    }

    #[test]
    fn a_name_that_is_like_none_gets_no_hint() {
        assert_eq!(nearest("judgement", &["name", "judge"]), Some("judge"));
        assert_eq!(nearest("per_cpus", &["cpus", "per_cpu"]), Some("per_cpu"));
        assert_eq!(nearest("KVM", &["auto", "kvm"]), Some("kvm"));
        assert_eq!(nearest("weather", &["name", "judge"]), None);
    }

    #[test]
    fn quantiles_need_samples_beyond_them() {
        let needed = Statistic::ALL.map(|statistic| (statistic.quantile(), statistic.samples_needed()));
        let expected = [
            (None, 1),
            (Some(0.5), 40),
            (Some(0.9), 200),
            (Some(0.99), 2_000),
            (Some(0.999), 20_000),
            (None, 1),
        ];
        assert_eq!(needed, expected);
    }
}
