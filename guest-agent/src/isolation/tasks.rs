// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that are where they should not be, or may come there. Each task's line of /proc is read once;
//! at a thousand tasks that is still far less than a second.

use std::fs;
use std::path::Path;

use twinboot_protocol::{Task, cpu_list};

use crate::{facts, sys};

/// What was found about isolated CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Kernel threads that may run on one of them, and elsewhere, unless the kernel has bound them itself.
    pub(super) unbound: Vec<Task>,
    /// Tasks that ran last on one of them, and may run elsewhere.
    pub(super) strays: Vec<Task>,
}

/// Looks at all tasks.
pub(super) fn find(isolated: &[u32]) -> Found {
    let mut found = Found::default();
    for task in all() {
        if !task.is_of_kernel() && !isolated.contains(&task.cpu) {
            continue;
        }
        // One that has ended meanwhile disturbs nobody.
        let Ok(allowed) = sys::allowed_cpus_of(task.pid) else { continue };
        found.add(task, &allowed, isolated);
    }
    found
}

impl Found {
    fn add(&mut self, task: Stat, allowed: &[u32], isolated: &[u32]) {
        if allowed.len() == 1 {
            return;
        }
        let (may_move, cpu) = (task.is_of_kernel() && !task.is_bound_by_kernel(), task.cpu);
        let task = Task { pid: task.pid, name: task.name, allowed: cpu_list::format(allowed), cpu };
        if isolated.contains(&cpu) {
            self.strays.push(task.clone());
        }
        if may_move && allowed.iter().any(|cpu| isolated.contains(cpu)) {
            self.unbound.push(task);
        }
    }
}

/// What is needed of a `stat` file (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: u32,
    name: String,
    flags: u32,
    cpu: u32,
}

impl Stat {
    fn is_of_kernel(&self) -> bool {
        const PF_KTHREAD: u32 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Whether the kernel has set its CPUs for good, as it does for the threads of work queues.
    fn is_bound_by_kernel(&self) -> bool {
        const PF_NO_SETAFFINITY: u32 = 0x0400_0000;
        self.flags & PF_NO_SETAFFINITY != 0
    }

    /// The name may hold spaces and parentheses; nothing after it does.
    fn parse(line: &str) -> Option<Self> {
        const FLAGS: usize = 9;
        const CPU: usize = 39;
        let (start, rest) = line.rsplit_once(')')?;
        let (pid, name) = start.split_once(" (")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first field behind the name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self { pid: pid.parse().ok()?, name: name.to_owned(), flags: field(FLAGS)?, cpu: field(CPU)? })
    }
}

/// All threads of all processes, by number. The kernel's have one thread each.
fn all() -> Vec<Stat> {
    let mut tasks = Vec::new();
    for process in numbers_in(Path::new("/proc")) {
        let directory = Path::new("/proc").join(process.to_string());
        let Some(stat) = read(&directory) else { continue };
        if stat.is_of_kernel() {
            tasks.push(stat);
            continue;
        }
        let threads = directory.join("task");
        tasks.extend(
            numbers_in(&threads).into_iter().filter_map(|thread| read(&threads.join(thread.to_string()))),
        );
    }
    tasks
}

fn read(directory: &Path) -> Option<Stat> {
    Stat::parse(&facts::optional(directory.join("stat")))
}

fn numbers_in(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u32 = 0x0020_8040;
    const BOUND: u32 = 0x0420_8060;

    fn line(name: &str, flags: u32, cpu: u32) -> String {
        let rest = "0 ".repeat(29);
        format!("7 ({name}) S 2 0 0 0 -1 {flags} {rest}{cpu} 0 0 0 0 0")
    }

    #[test]
    fn stat_lines() {
        let check = |name: &str, cpu| {
            let expected = Stat { pid: 7, name: name.to_owned(), flags: KERNEL, cpu };
            assert_eq!(Stat::parse(&line(name, KERNEL, cpu)), Some(expected));
        };
        check("kthreadd", 3);
        check("a ) (b c", 12);
        assert_eq!(Stat::parse("7 (short) S 2"), None);
        assert_eq!(Stat::parse(""), None);
    }

    fn check(flags: u32, cpu: u32, allowed: &[u32], expected: (usize, usize)) {
        let mut found = Found::default();
        found.add(Stat { pid: 7, name: "x".to_owned(), flags, cpu }, allowed, &[2, 3]);
        assert_eq!((found.unbound.len(), found.strays.len()), expected, "{flags} {cpu} {allowed:?}");
    }

    #[test]
    fn only_tasks_that_are_not_bound_count() {
        check(KERNEL, 3, &[3], (0, 0));
        check(KERNEL, 0, &[0, 1], (0, 0));
        check(KERNEL, 0, &[0, 1, 2], (1, 0));
        check(KERNEL, 2, &[0, 1, 2], (1, 1));
        check(BOUND, 0, &[0, 1, 2], (0, 0));
        check(BOUND, 2, &[0, 1, 2], (0, 1));
        check(0, 2, &[2], (0, 0));
        check(0, 2, &[0, 1, 2], (0, 1));
    }
}
