// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says about its command line: the parameters that no part of it took. (Of those with a
//! dot in their name it says nothing, since a module may come that takes them.)

const BEGIN: &str = "Unknown kernel command line parameters \"";
const END: &str = "\", will be passed to user space.";

/// The parameters that the kernel did not know. Those with spaces in their values come in pieces.
pub(super) fn unknown_parameters(log: &str) -> Vec<String> {
    let line = log.lines().find_map(|line| line.split_once(BEGIN)?.1.rsplit_once(END));
    let (parameters, _) = line.unwrap_or_default();
    parameters.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, expected: &[&str]) {
        assert_eq!(unknown_parameters(log), expected, "{log}");
    }

    #[test]
    fn parameters() {
        check(
            "<5>[    0.01] Booting\n<5>[    0.02] Unknown kernel command line parameters \"a=b c\", will be \
             passed to user space.\n<6>[    0.03] more",
            &["a=b", "c"],
        );
        check(
            "<5>[ 0.0] Unknown kernel command line parameters \"x\", will be passed to user space.",
            &["x"],
        );
        check("<5>[ 0.0] Kernel command line: quiet", &[]);
        check("", &[]);
    }
}
