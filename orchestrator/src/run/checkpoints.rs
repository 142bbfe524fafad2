// SPDX-License-Identifier: MIT OR Apache-2.0
//! The saved guests of a run: out of the cache, or booted and saved once, whoever comes first.

use std::time::Instant;

use super::RunError;
use super::event::{Event, Listener};
use crate::cache::Cache;
use crate::fs::{self, Lock};
use crate::vm::checkpoint::{self, BOOT_SEED, Checkpoint};
use crate::vm::deadline::Limits;
use crate::vm::guest::{self, GuestRun, Saved};
use crate::vm::qemu::{GuestSpec, Start};

/// A guest that a trial can begin with.
pub(crate) struct Ready {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) saved: Saved,
    /// Keeps it in the cache.
    _held: Lock,
}

/// What a saved guest is made from.
pub(crate) struct Recipe<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) arm: &'a str,
    /// As it boots; its initramfs has yet to be written.
    pub(crate) guest: GuestSpec,
    pub(crate) kernel_key: &'a str,
    pub(crate) initramfs: Vec<u8>,
    pub(crate) qemu_version: &'a str,
    pub(crate) limits: Limits,
}

/// Gives the saved guest; or the run of one that never became ready.
pub(crate) async fn get(
    recipe: Recipe<'_>,
    listener: &dyn Listener,
) -> Result<Result<Ready, Box<GuestRun>>, RunError> {
    let key = checkpoint::key(&recipe.guest, recipe.kernel_key, &recipe.initramfs, recipe.qemu_version);
    let checkpoint = Checkpoint::at(recipe.cache.checkpoint(&key));
    if !checkpoint.directory().is_dir() {
        let _lock = recipe.cache.lock(&key).await?;
        if !checkpoint.directory().is_dir() {
            if let Err(failed) = make(&recipe, &checkpoint, listener).await? {
                return Ok(Err(Box::new(failed)));
            }
            super::prune(recipe.cache, listener);
        }
    }
    let held = recipe.cache.hold(checkpoint.directory()).await?;
    let saved = checkpoint.read()?;
    Ok(Ok(Ready { checkpoint, saved, _held: held }))
}

async fn make(
    recipe: &Recipe<'_>,
    checkpoint: &Checkpoint,
    listener: &dyn Listener,
) -> Result<Result<(), GuestRun>, RunError> {
    listener.hear(&Event::CheckpointWanted { arm: recipe.arm.to_owned() });
    let started = Instant::now();
    // Whoever holds the lock owns the unfinished directory; a killed Twinboot may have left one.
    let scratch = Checkpoint::at(checkpoint.directory().with_extension("partial"));
    fs::remove_dir(scratch.directory())?;
    fs::create_dir(scratch.directory())?;
    fs::write_atomic(&scratch.initramfs(), &recipe.initramfs)?;
    let guest = GuestSpec {
        start: Start::Save,
        initramfs: scratch.initramfs(),
        seed: BOOT_SEED,
        ..recipe.guest.clone()
    };
    let saved = match guest::save(&guest, &scratch.state(), recipe.limits).await {
        Ok(Ok(saved)) => saved,
        // Half a state is of no use, least of all on a disk that is full.
        failed => {
            fs::remove_dir(scratch.directory())?;
            return Ok(failed?.map(drop));
        }
    };
    scratch.write(&saved)?;
    let bytes = std::fs::metadata(scratch.state()).map_or(0, |data| data.len());
    fs::rename(scratch.directory(), checkpoint.directory())?;
    listener.hear(&Event::CheckpointSaved {
        arm: recipe.arm.to_owned(),
        bytes,
        seconds: started.elapsed().as_secs_f64(),
    });
    Ok(Ok(()))
}
