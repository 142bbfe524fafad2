// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first half of a run: the source, the patches, the kernels.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::RunError;
use super::event::{Event, Listener};
use crate::build::BuildError;
use crate::build::compare::differing_sections;
use crate::build::kernel::{self, Base, Kernel, Recipe};
use crate::cache::Cache;
use crate::fs::{self, Lock};
use crate::plan::Plan;
use crate::process;
use crate::source::{self, Series};

/// The kernels of all arms, in the order of the arms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kernels {
    pub(crate) kernels: Vec<Kernel>,
    /// Which of the experiment's sources was used, in words.
    pub(crate) origin: String,
    /// Arms other than the base whose kernels equal the base's in code and data; not looked for in A/A.
    pub(crate) same_as_base: Vec<String>,
}

/// Makes every arm's kernel, or takes it out of the cache. Nobody prunes them while the locks live.
pub(crate) async fn make(
    plan: &Plan,
    cache: &Cache,
    listener: &dyn Listener,
) -> Result<(Kernels, Vec<Lock>), RunError> {
    let experiment = &plan.experiment;
    // What would end the run later is found out first.
    process::require("make")?;
    let toolchain = kernel::toolchain(plan.arch(), experiment.kernel.compiler).await?;
    listener.hear(&Event::SourceWanted);
    let started = Instant::now();
    let tree = source::acquire(&experiment.kernel.sources, &cache.sources()).await?;
    for reason in &tree.passed_over {
        listener.hear(&Event::Warning { text: format!("a kernel source was passed over: {reason}") });
    }
    listener.hear(&Event::SourceReady {
        origin: tree.origin.clone(),
        id: tree.id.clone(),
        seconds: started.elapsed().as_secs_f64(),
    });
    // All patches are read and tried before anything is built: one that does not fit costs no time.
    let mut series: Vec<Series> = Vec::new();
    for arm in &experiment.arms {
        let patches = source::read_patches(&arm.patches, tree.repository.as_deref()).await?;
        for note in &patches.notes {
            listener.hear(&Event::Warning { text: format!("patches of arm {}: {note}", arm.name) });
        }
        if !patches.patches.is_empty() {
            let subjects = patches.patches.iter().map(|patch| patch.subject.clone()).collect();
            listener.hear(&Event::PatchesRead { arm: arm.name.clone(), subjects });
            source::check(&patches.patches, &tree.root).await?;
        }
        series.push(patches);
    }
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut same_as_base = Vec::new();
    let mut held = vec![cache.hold(&tree.root).await?];
    for (arm, patches) in experiment.arms.iter().zip(&series) {
        let requests = plan.requests(arm)?;
        let recipe = Recipe {
            arch: plan.arch(),
            tree: &tree,
            patches: &patches.patches,
            requests: &requests,
            compiler: experiment.kernel.compiler,
            toolchain: &toolchain,
        };
        let base = kernels
            .first()
            .map(|kernel| Base { kernel, config_may_differ: arm.config != experiment.arms[0].config });
        let kernel = build(&recipe, base, &arm.name, cache, listener).await?;
        if let Some(base) = kernels.first().filter(|_| !plan.aa) {
            let same = base.key == kernel.key
                || differing_sections(&base.vmlinux, &kernel.vmlinux, plan.arch().bug_entry)
                    .map_err(BuildError::from)?
                    .is_empty();
            if same {
                listener.hear(&Event::SameKernel { arm: arm.name.clone() });
                same_as_base.push(arm.name.clone());
            }
        }
        held.push(cache.hold(&cache.kernel(&kernel.key)).await?);
        kernels.push(kernel);
    }
    Ok((Kernels { kernels, origin: tree.origin, same_as_base }, held))
}

async fn build(
    recipe: &Recipe<'_>,
    base: Option<Base<'_>>,
    arm: &str,
    cache: &Cache,
    listener: &dyn Listener,
) -> Result<Kernel, RunError> {
    let arm = arm.to_owned();
    if recipe.cached(cache).is_none() {
        listener.hear(&Event::BuildStarted { arm: arm.clone() });
    }
    // How many commands a build from nothing runs is known from the last one; what a patch touches is not.
    let fact = cache.fact(&format!("build-steps-{}", recipe.arch.uname));
    let known = fs::read_text(&fact).ok().and_then(|text| text.trim().parse().ok());
    let of = base.is_none().then(|| known.unwrap_or(recipe.arch.build_steps));
    let progress = |steps| listener.hear(&Event::BuildProgress { arm: arm.clone(), steps, of });
    let arm_error = |source| RunError::Build { arm: arm.clone(), source: Box::new(source) };
    let kernel = recipe.build(cache, base, &progress).await.map_err(arm_error)?;
    if base.is_none() && !kernel.cached {
        // Only the display's estimate depends on it.
        let _ = fs::write_atomic(&fact, kernel.steps.to_string().as_bytes());
    }
    listener.hear(&Event::Built {
        arm: arm.clone(),
        key: kernel.key.clone(),
        release: kernel.release.clone(),
        cached: kernel.cached,
        steps: kernel.steps,
        seconds: if kernel.cached { 0.0 } else { kernel.seconds },
    });
    Ok(kernel)
}
