// SPDX-License-Identifier: MIT OR Apache-2.0
//! `twinboot boot`: one arm's guest on this terminal, with a shell.

use std::path::{Path, PathBuf};

use clap::Args;

use super::experiment::Changes;
use crate::agent::{self, Extra, binary};
use crate::cache::Cache;
use crate::config::Clock;
use crate::error::Error;
use crate::exit::Exit;
use crate::fs;
use crate::process;
use crate::run::store::Store;
use crate::run::{self, host::Host};
use crate::ui::{self, Display};
use crate::vm::arch::ArchSpec;
use crate::vm::qemu::{Console, Engine, arguments};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The experiment
    file: PathBuf,
    /// The arm to boot, by name
    arm: String,
    #[command(flatten)]
    changes: Changes,
    /// Wait for a debugger before the first instruction; how to attach is printed
    #[arg(long)]
    gdb: bool,
    /// The experiment's virtual clock also here: slower, and the same each time
    #[arg(long)]
    virtual_clock: bool,
    /// A file to put into the guest at the same path; a program brings its shared libraries
    #[arg(long, value_name = "FILE")]
    include: Vec<PathBuf>,
    /// Run this shell command in the guest instead of a shell, then end
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
}

/// Where the guest finds the command.
const SCRIPT: &str = "/twinboot/command";

pub(super) async fn boot(arguments_given: &Arguments) -> Result<Exit, Error> {
    let mut plan = arguments_given.changes.plan(&arguments_given.file)?;
    let names = plan.arm_names();
    let Some(index) = names.iter().position(|name| *name == arguments_given.arm) else {
        let (arm, names) = (&arguments_given.arm, names.join(", "));
        return Err(Error::Usage(format!("there is no arm `{arm}`; there are {names}")));
    };
    plan.experiment.guest.clock = if arguments_given.virtual_clock { Clock::Virtual } else { Clock::Wall };
    plan.experiment.guest.checkpoint = false;
    let agent = binary::read(plan.arch()).map_err(run::RunError::from)?;
    let extras = extras(arguments_given, plan.arch()).await?;

    let cache = Cache::open()?;
    let display = Display::new();
    let scratch = tempfile::tempdir().map_err(Error::Output)?;
    let store = Store::create(scratch.path(), &plan)?;
    let (kernels, _held) = run::make_kernels(&plan, &cache, &display).await?;
    let host = Host::look(plan.arch()).await?;
    let (engine, why) = run::choose_engine(&plan, &cache, &kernels, &agent, &host, &store, &display).await?;
    display.clear();
    ui::say(&format!("engine   {}", why));

    let initramfs = scratch.path().join("initramfs.cpio");
    fs::write_atomic(&initramfs, &agent::initramfs(&agent, None, &extras))?;
    let arm = &plan.experiment.arms[index];
    let kernel = kernels.kernels[index].files();
    let symbols = kernel.symbols.clone();
    let mut guest = plan.guest(arm, engine, kernel, initramfs, plan.experiment.judge.seed);
    guest.command_line.push_str(if arguments_given.command.is_some() {
        " twinboot.command=/twinboot/command"
    } else {
        " twinboot.shell"
    });
    let mut command = process::command(guest.arch.qemu);
    command.args(arguments(&guest, Console::Terminal));
    if arguments_given.gdb {
        let socket = scratch.path().join("gdb");
        command.arg("-S").args(["-gdb", &format!("unix:{},server=on,wait=off", socket.display())]);
        let target = socket.display();
        ui::say(&format!(
            "gdb      gdb {} -ex 'target remote {target}'",
            process::quote(&symbols.display().to_string())
        ));
    }
    if arguments_given.command.is_none() {
        ui::say("boot     the guest's console follows; Ctrl-A X ends it");
    }
    let status = process::run_in_foreground(command).await?;
    Ok(if status.success() || engine == Engine::Kvm { Exit::NoRegression } else { Exit::Host })
}

/// What the guest gets beside the agent: a shell where the host has a static one, the command, the files
/// asked for.
async fn extras(arguments: &Arguments, arch: &ArchSpec) -> Result<Vec<Extra>, Error> {
    let mut extras = Vec::new();
    match binary::shell(arch) {
        Some(path) => {
            let content = fs::read(&path)?;
            for name in ["sh", "busybox"] {
                extras.push(Extra { path: format!("/bin/{name}"), content: content.clone() });
            }
        }
        None => ui::say(&format!(
            "warning  there is no static busybox for {} (`twinboot doctor` knows more), so the guest has no shell",
            arch.uname
        )),
    }
    if let Some(command) = &arguments.command {
        let script = format!("export PATH=/bin:/usr/bin:/sbin:/usr/sbin\n{command}\n");
        extras.push(Extra { path: SCRIPT.to_owned(), content: script.into_bytes() });
    }
    for file in &arguments.include {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        for path in std::iter::once(file.clone()).chain(shared_libraries(&file, arch).await?) {
            let shown = path.display().to_string();
            if extras.iter().all(|extra| extra.path != shown) {
                extras.push(Extra { path: shown, content: fs::read(&path)? });
            }
        }
    }
    Ok(extras)
}

/// The libraries that a program loads, by the word of `ldd`; none for a static one, or for one of another
/// architecture, which this host's linker does not know.
async fn shared_libraries(program: &Path, arch: &ArchSpec) -> Result<Vec<PathBuf>, Error> {
    if !arch.is_hosts() {
        return Ok(Vec::new());
    }
    let said = match process::Task::new("ldd").arg(program).run().await {
        Ok(said) => said,
        Err(process::ProcessError::Failed { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let said = String::from_utf8_lossy(&said);
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(|word| PathBuf::from(word.trim_end_matches(':'))).collect())
}
