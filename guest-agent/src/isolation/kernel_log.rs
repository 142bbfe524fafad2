// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's log says of isolation: the sets it took, and that it could not do as asked.

/// What was found; lists are CPU lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) dynticks: String,
    pub(super) rcu_offloaded: String,
    pub(super) complaints: Vec<String>,
}

const DYNTICKS: &str = "NO_HZ: Full dynticks CPUs: ";
const RCU_OFFLOADED: &str = "Offload RCU callbacks from CPUs: ";

/// Parts of lines that tell of isolation that failed, or of a clock that keeps ticks running.
const COMPLAINTS: [&str; 10] = [
    "Housekeeping: ",
    "isolcpus: ",
    "from nohz_full range",
    "NO_HZ: Can't run full dynticks",
    "rcu_nocbs= bad CPU range",
    "contains nonexistent CPUs",
    "callback offloading disabled",
    "Marking clocksource",
    "Marking TSC unstable",
    "sched_clock: Marking unstable",
];

/// How many complaints are kept: a kernel may repeat itself.
const MOST_COMPLAINTS: usize = 20;

pub(super) fn read(log: &str) -> Said {
    let mut said = Said::default();
    for line in log.lines().map(without_prefix) {
        if let Some((_, list)) = line.split_once(DYNTICKS) {
            said.dynticks = list_of(list);
        } else if let Some((_, list)) = line.split_once(RCU_OFFLOADED) {
            said.rcu_offloaded = list_of(list);
        } else if COMPLAINTS.iter().any(|part| line.contains(part)) && said.complaints.len() < MOST_COMPLAINTS
        {
            said.complaints.push(line.to_owned());
        }
    }
    said
}

fn list_of(text: &str) -> String {
    let list = text.trim_end().trim_end_matches('.');
    if list == "(none)" { String::new() } else { list.to_owned() }
}

/// A line without its level and time.
fn without_prefix(line: &str) -> &str {
    let line = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(line, |(_, rest)| rest);
    let line = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(line, |(_, rest)| rest);
    line.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, dynticks: &str, rcu_offloaded: &str, complaints: &[&str]) {
        let expected = Said {
            dynticks: dynticks.to_owned(),
            rcu_offloaded: rcu_offloaded.to_owned(),
            complaints: complaints.iter().map(|&line| line.to_owned()).collect(),
        };
        assert_eq!(read(log), expected, "{log}");
    }

    #[test]
    fn lines() {
        check(
            "<6>[    0.000000] rcu: \tOffload RCU callbacks from CPUs: 1-3,8.\n\
             <6>[    0.000000] NO_HZ: Full dynticks CPUs: 1-3.\n\
             <6>[    0.010000] smp: Bringing up secondary CPUs ...",
            "1-3",
            "1-3,8",
            &[],
        );
        check(
            "<6>[    0.000000] rcu: \tOffload RCU callbacks from CPUs: (none).\n\
             <4>[    0.000000] Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL\n\
             <4>[    0.000000] NO_HZ: Clearing 0 from nohz_full range for timekeeping",
            "",
            "",
            &[
                "Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL",
                "NO_HZ: Clearing 0 from nohz_full range for timekeeping",
            ],
        );
        let unstable = "clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable \
                        because the skew is too large:";
        check(&format!("[    9.1] {unstable}"), "", "", &[unstable]);
        check(&"isolcpus: Invalid flag x\n".repeat(99), "", "", &["isolcpus: Invalid flag x"; 20]);
    }
}
