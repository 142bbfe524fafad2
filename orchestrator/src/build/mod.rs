// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels: from a pristine tree, patches and the configuration asked for to images in the cache.
//!
//! The base is built first; another arm starts from its objects and compiles only what its patches
//! touch. This stage boots nothing.

pub(crate) mod compare;
pub(crate) mod fragment;
mod kconfig;
pub(crate) mod kernel;

use std::path::PathBuf;

use crate::config::{Arm, Experiment, Fragment, KernelConfig};
use crate::fs::{self, FileError};
use crate::process::ProcessError;
use crate::source::{PatchError, SourceError};
use crate::vm::arch;
use fragment::{FragmentError, Requests};
use kconfig::Missing;

/// A kernel that could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("no fragment is named `{name}`; there are {}", fragment::own_names().collect::<Vec<_>>().join(", "))]
    NoFragment { name: String },
    #[error(transparent)]
    Fragment(#[from] FragmentError),
    #[error("the kernel does not take the configuration:{}", lines(.0))]
    Missing(Vec<Missing>),
    #[error("the configuration differs from the base's, and the experiment does not ask for that:{}", lines(.0))]
    ConfigDiffers(Vec<String>),
    #[error("the kernel does not compile:{}", lines(if errors.is_empty() { std::slice::from_ref(tail) } else { errors }))]
    Compile { errors: Vec<String>, tail: String },
    #[error("only {} MiB are free in {}, a build wants 3 GiB (`twinboot cache --prune` makes room)", free >> 20, path.display())]
    Space { path: PathBuf, free: u64 },
    #[error("word what was built")]
    Record(#[source] serde_json::Error),
    #[error(transparent)]
    Compare(#[from] compare::CompareError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The configuration that an arm asks for: Twinboot's base, the architecture's, that of isolated CPUs if
/// there are any, the experiment's, the arm's own.
pub(crate) fn requests(experiment: &Experiment, arm: &Arm) -> Result<Requests, BuildError> {
    let mut requests = Requests::default();
    let arch = arch::spec(experiment.guest.arch);
    let isolation = experiment.guest.isolate.as_ref().map(|_| "isolation");
    for name in ["base", arch.fragment].into_iter().chain(isolation) {
        add(&mut requests, &Fragment::Named(name.to_owned()))?;
    }
    for config in [&experiment.kernel.config, &arm.config] {
        let KernelConfig { fragments, options } = config;
        for fragment in fragments {
            add(&mut requests, fragment)?;
        }
        for (option, value) in options {
            requests.add_option(option, value, "the experiment");
        }
    }
    Ok(requests)
}

fn add(requests: &mut Requests, fragment: &Fragment) -> Result<(), BuildError> {
    match fragment {
        Fragment::Named(name) => {
            let text = fragment::own(name).ok_or_else(|| BuildError::NoFragment { name: name.clone() })?;
            requests.add_fragment(&format!("kernel-configs/{name}.config"), text)?;
        }
        Fragment::File(path) => {
            requests.add_fragment(&path.display().to_string(), &fs::read_text(path)?)?;
        }
    }
    Ok(())
}

fn lines<T: ToString>(items: &[T]) -> String {
    items.iter().map(|item| format!("\n  {}", item.to_string().replace('\n', "\n  "))).collect()
}
