// SPDX-License-Identifier: MIT OR Apache-2.0
//! What init does when the trial is done: keep still for the host to end the guest, serve a shell on the
//! console (`twinboot.shell` on the kernel's command line), or run one script and power off
//! (`twinboot.command=PATH`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::{console, sys};

/// The shell, from busybox for instance.
pub(super) const SHELL: &str = "/bin/sh";

/// Keeps a shell that ends at once from filling the console.
const RESPAWN_PAUSE: Duration = Duration::from_secs(1);

/// What is left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing, without using the CPU.
    Pause,
    /// A shell on the console, again and again.
    Shell,
    /// This script, then power off.
    Command(String),
}

impl Ending {
    /// What the kernel's command line asks for; a command comes before a shell.
    pub(super) fn asked_for(command_line: &str) -> Self {
        let mut ending = Self::Pause;
        for word in command_line.split_whitespace() {
            match (word, word.strip_prefix("twinboot.command=")) {
                (_, Some(path)) => return Self::Command(path.to_owned()),
                ("twinboot.shell", _) => ending = Self::Shell,
                _ => {}
            }
        }
        ending
    }

    /// The same for a guest without orders, which would otherwise do nothing at all: nothing if there is
    /// no shell either.
    pub(super) fn without_orders(self, has_shell: bool) -> Option<Self> {
        if !has_shell {
            return None;
        }
        Some(if self == Self::Pause { Self::Shell } else { self })
    }

    pub(super) fn run(self) -> ! {
        match self {
            Self::Pause => sys::pause_forever(),
            Self::Shell => loop {
                match run_to_end(Command::new(SHELL)) {
                    Ok(status) => console::say(&format!("shell ended with status {status}")),
                    Err(error) => console::say(&format!("start {SHELL}: {error}")),
                }
                thread::sleep(RESPAWN_PAUSE);
            },
            Self::Command(path) => {
                let mut command = Command::new(SHELL);
                command.arg(&path);
                match run_to_end(command) {
                    Ok(status) => console::say(&format!("command ended with status {status}")),
                    Err(error) => console::say(&format!("start {SHELL} {path}: {error}")),
                }
                let error = sys::power_off();
                console::say(&format!("power off: {error}"));
                sys::pause_forever()
            }
        }
    }
}

/// Runs a command on the console and gives its exit status. Reaps whatever else ends meanwhile, as init
/// must.
fn run_to_end(mut command: Command) -> io::Result<i32> {
    let terminal = terminal();
    command
        .stdin(open(&terminal)?)
        .stdout(open(&terminal)?)
        .stderr(open(&terminal)?)
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .current_dir("/");
    sys::lead_session(&mut command);
    let child = sys::Child::from(&command.spawn()?);
    loop {
        let ended = sys::wait_for_any()?;
        if ended.child == child {
            return Ok(ended.status);
        }
    }
}

/// The terminal behind /dev/console, which itself cannot be a controlling terminal.
fn terminal() -> PathBuf {
    let active = fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    Path::new("/dev").join(active.split_whitespace().last().unwrap_or("console"))
}

fn open(terminal: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command_line: &str, expected: &Ending) {
        assert_eq!(&Ending::asked_for(command_line), expected, "{command_line}");
    }

    #[test]
    fn command_line_decides() {
        let command = Ending::Command("/a".to_owned());
        check("console=ttyS0 quiet\n", &Ending::Pause);
        check("quiet twinboot.shell\n", &Ending::Shell);
        check("twinboot.shells mytwinboot.shell", &Ending::Pause);
        check("twinboot.command=/a twinboot.shell", &command);
        check("twinboot.shell twinboot.command=/a", &command);
    }

    #[test]
    fn without_orders_a_shell_is_the_least() {
        let command = Ending::Command("/a".to_owned());
        for (ending, expected) in
            [(Ending::Pause, Ending::Shell), (Ending::Shell, Ending::Shell), (command.clone(), command)]
        {
            assert_eq!(ending.clone().without_orders(false), None);
            assert_eq!(ending.without_orders(true), Some(expected));
        }
    }
}
