// SPDX-License-Identifier: MIT OR Apache-2.0
//! Twinboot's agent in the guest. As init it prepares the system, carries out the one trial that its
//! orders describe, tells the host over a virtio-serial port, and then keeps still. It can also run as an
//! ordinary process. It never judges what it measured.

mod console;
mod error;
mod facts;
mod init;
mod isolation;
mod link;
mod ordinary;
mod port;
mod saving;
mod sys;
mod trial;
mod workload;

use std::env;
use std::process::{self, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> =
        env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    // The kernel hands the parameters that it does not know to init as arguments.
    if process::id() == 1 && !ordinary::is_meant(&arguments) {
        init::run();
    }
    ordinary::run(&arguments)
}
