// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as init: mounts what a trial needs, carries out the orders that lie in the initramfs, and
//! then does what the kernel's command line asks for (see [`ending`]). It never ends, and after a failure
//! it keeps still too, so that the host finds the guest as it was.

mod ending;
mod mounts;

use std::path::Path;
use std::sync::Arc;
use std::{fs, io, panic, process};

use twinboot_protocol::ORDERS_PATH;

use crate::error::{AgentError, Context};
use crate::link::Link;
use crate::{console, port, sys, trial};
use ending::Ending;

/// Everything that init does.
pub(crate) fn run() -> ! {
    on_panic(None);
    let ending = match prepare() {
        Ok(ending) => ending,
        Err(error) => fail(&error),
    };
    ending.run()
}

/// All that comes before the ending.
fn prepare() -> Result<Ending, AgentError> {
    mounts::mount_all()?;
    let command_line = fs::read_to_string("/proc/cmdline").context("read /proc/cmdline")?;
    let ending = Ending::asked_for(&command_line);
    match fs::read(ORDERS_PATH) {
        Ok(orders) => {
            carry_out(&orders)?;
            Ok(ending)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            console::say(&format!("there are no orders at {ORDERS_PATH}"));
            ending
                .without_orders(Path::new(ending::SHELL).exists())
                .ok_or_else(|| AgentError::new(format!("there are neither orders nor {}", ending::SHELL)))
        }
        Err(error) => Err(error).context(format_args!("read {ORDERS_PATH}")),
    }
}

/// Runs the trial; its failure ends here, as the host hears of it in sequence.
fn carry_out(orders: &[u8]) -> Result<(), AgentError> {
    let link = Arc::new(Link::frames(port::open()?));
    on_panic(Some(Arc::clone(&link)));
    if let Err(error) = trial::run(orders, &link) {
        let reason = error.chain();
        console::say(&reason);
        link.fail_forever(reason);
    }
    Ok(())
}

/// A failure before there was a trial. The host hears of it if the port can be found.
fn fail(error: &AgentError) -> ! {
    let reason = error.chain();
    console::say(&reason);
    match port::open() {
        Ok(port) => Link::frames(port).fail_forever(reason),
        Err(error) => {
            console::say(&error.chain());
            sys::pause_forever()
        }
    }
}

/// Says what has panicked, and keeps still: the end of init would be a panic of the kernel, which would
/// tell the host something else. A partner process ends instead; init notices.
fn on_panic(link: Option<Arc<Link>>) {
    let init = process::id();
    panic::set_hook(Box::new(move |panic| {
        let reason = panic.to_string().replace('\n', " ");
        console::say(&reason);
        if process::id() != init {
            process::abort();
        }
        match &link {
            // A panic inside of sending must not wait for itself.
            Some(link) if link.is_idle() => link.fail_forever(reason),
            _ => sys::pause_forever(),
        }
    }));
}
