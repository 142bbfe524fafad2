// SPDX-License-Identifier: MIT OR Apache-2.0
//! One kernel: configured, verified, compiled, and put into the cache under the hash of all that went
//! into it.
//!
//! The output directory lies inside the tree, so that the kernel's makefiles speak of the source as `..`
//! and no command line holds a path. That is what lets a patched arm start from copies of the base's
//! objects wherever its tree lies, and makes two builds of one source equal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::BuildError;
use super::compare;
use super::fragment::Requests;
use super::kconfig::{self, DotConfig};
use crate::cache::{Cache, digest};
use crate::config::Compiler;
use crate::fs::{self, FileError};
use crate::process::{Output, ProcessError, Task};
use crate::source::{self, AppliedPatch, Patch, Tree};
use crate::sys;
use crate::vm::arch::ArchSpec;
use crate::vm::qemu::KernelFiles;

/// Goes up when the same inputs give another kernel.
const RECIPE_VERSION: &str = "2";

/// What differs between two runs of the compiler that nobody wants to differ.
const FIXED: &[(&str, &str)] = &[
    ("KBUILD_BUILD_TIMESTAMP", "Wed Jan  1 00:00:00 UTC 2020"),
    ("KBUILD_BUILD_USER", "twinboot"),
    ("KBUILD_BUILD_HOST", "twinboot"),
    ("KBUILD_BUILD_VERSION", "1"),
    ("LOCALVERSION", ""),
    ("SOURCE_DATE_EPOCH", "1577836800"),
];

/// Free space that a build wants before it begins.
const SPACE: u64 = 3 << 30;

/// All that decides what a kernel will be.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    pub(crate) arch: &'static ArchSpec,
    pub(crate) tree: &'a Tree,
    pub(crate) patches: &'a [Patch],
    pub(crate) requests: &'a Requests,
    pub(crate) compiler: Compiler,
    /// How the compiler and linker name themselves.
    pub(crate) toolchain: &'a str,
}

/// A finished kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kernel {
    pub(crate) key: String,
    /// What QEMU loads. Relative to the entry while stored, absolute in memory.
    pub(crate) image: PathBuf,
    /// The linked kernel with its symbols; the same file where QEMU loads that. Relative and absolute alike.
    pub(crate) vmlinux: PathBuf,
    /// `make kernelrelease`.
    pub(crate) release: String,
    pub(crate) build_id: String,
    /// SHA-256 of the final .config.
    pub(crate) config_hash: String,
    pub(crate) patches: Vec<AppliedPatch>,
    pub(crate) toolchain: String,
    /// Commands that the build ran.
    pub(crate) steps: u32,
    /// How long configuring and compiling took, in seconds.
    pub(crate) seconds: f64,
    /// Whether it was in the cache.
    #[serde(skip)]
    pub(crate) cached: bool,
}

/// The linked kernel's name, in the build directory and in the cache.
const VMLINUX: &str = "vmlinux";

impl Kernel {
    /// What a guest takes of it.
    pub(crate) fn files(&self) -> KernelFiles {
        KernelFiles { image: self.image.clone(), symbols: self.vmlinux.clone() }
    }

    /// Makes the stored paths absolute.
    fn place_in(&mut self, entry: &Path) {
        self.image = entry.join(&self.image);
        self.vmlinux = entry.join(&self.vmlinux);
    }
}

/// The kernel with this key out of the cache, if it is there.
pub(crate) fn from_cache(cache: &Cache, key: &str) -> Option<Kernel> {
    let entry = cache.kernel(key);
    let stored = fs::read(&entry.join("build.json")).ok()?;
    let mut kernel: Kernel = serde_json::from_slice(&stored).ok()?;
    kernel.cached = true;
    kernel.place_in(&entry);
    (kernel.image.is_file() && kernel.vmlinux.is_file()).then_some(kernel)
}

/// The base whose objects and configuration another arm starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    pub(crate) kernel: &'a Kernel,
    /// Whether this arm asks for a configuration of its own.
    pub(crate) config_may_differ: bool,
}

impl Recipe<'_> {
    /// The hash of all that goes into this kernel.
    pub(crate) fn key(&self) -> String {
        let series = source::series_id(self.patches);
        let requests = self.requests.text();
        let mut parts = vec![RECIPE_VERSION, &self.tree.id, &series, &requests, self.toolchain];
        parts.extend([self.arch.make_arch, self.arch.compiler_prefix(), self.arch.image]);
        parts.extend(FIXED.iter().flat_map(|(name, value)| [*name, *value]));
        digest(parts)[..32].to_owned()
    }

    /// The kernel out of the cache, if it is there.
    pub(crate) fn cached(&self, cache: &Cache) -> Option<Kernel> {
        from_cache(cache, &self.key())
    }

    /// The kernel out of the cache, or built now. `progress` hears how many commands have run.
    pub(crate) async fn build(
        &self,
        cache: &Cache,
        base: Option<Base<'_>>,
        progress: &dyn Fn(u32),
    ) -> Result<Kernel, BuildError> {
        if let Some(kernel) = self.cached(cache) {
            return Ok(kernel);
        }
        let key = self.key();
        let _lock = cache.lock(&key).await?;
        // Another Twinboot may have built it while we waited.
        if let Some(kernel) = self.cached(cache) {
            return Ok(kernel);
        }
        let started = Instant::now();
        let scratch = cache.scratch(&key);
        // A killed Twinboot may have left one.
        fs::remove_dir(&scratch)?;
        fs::create_dir(&scratch)?;
        require_space(&scratch)?;
        let tree = scratch.join("tree");
        source::clone_tree(self.tree, &tree).await?;
        let patches = source::apply(self.patches, &tree).await?;
        let out = tree.join("out");
        self.take_objects(cache, base, &out).await?;
        let config = self.configure(&scratch, &tree).await?;
        self.verify(cache, base, &config, &tree)?;

        let log = scratch.join("build.log");
        self.compile(&tree, &log, progress).await?;
        let steps = count_steps(&fs::read(&log)?);
        let release = fs::read_text(&out.join("include/config/kernel.release"))?.trim().to_owned();
        let kernel = Kernel {
            image: PathBuf::from(self.arch.image),
            vmlinux: PathBuf::from(VMLINUX),
            release,
            build_id: compare::build_id(&out.join(VMLINUX))?,
            config_hash: digest([fs::read(&out.join(".config"))?]),
            patches,
            toolchain: self.toolchain.to_owned(),
            steps,
            seconds: started.elapsed().as_secs_f64(),
            cached: false,
            key,
        };
        let kernel = self.publish(cache, kernel, &out, &log)?;
        fs::publish_dir(&scratch, &cache.build(&kernel.key))?;
        Ok(kernel)
    }

    /// Starts from the base's objects where they are still there.
    async fn take_objects(
        &self,
        cache: &Cache,
        base: Option<Base<'_>>,
        out: &Path,
    ) -> Result<(), BuildError> {
        let Some(base) = base.filter(|base| base.kernel.key != self.key()) else {
            return Ok(fs::create_dir(out)?);
        };
        let build = cache.build(&base.kernel.key);
        let _held = cache.hold(&build).await?;
        let objects = build.join("tree/out");
        if !objects.is_dir() {
            return Ok(fs::create_dir(out)?);
        }
        Task::new("cp").args(["-a", "--reflink=auto", "--"]).arg(objects).arg(out).run().await?;
        let built_in = cache.scratch(&base.kernel.key).join("tree");
        Ok(move_commands(&out.join("tools"), &built_in, fs::parent(out))?)
    }

    /// The tiny configuration with what was asked for, as the kernel resolves it. An output directory that
    /// has the same configuration already keeps its file, and so its objects.
    async fn configure(&self, scratch: &Path, tree: &Path) -> Result<DotConfig, BuildError> {
        let file = scratch.join("config");
        let setting = format!("KCONFIG_CONFIG={}", file.display());
        self.make(tree).arg(&setting).arg("tinyconfig").run().await?;
        let mut text = fs::read_text(&file)?;
        text.push_str(&self.requests.text());
        fs::write_atomic(&file, text.as_bytes())?;
        self.make(tree).arg(&setting).arg("olddefconfig").run().await?;
        let text = fs::read_text(&file)?;
        let kept = tree.join("out/.config");
        if fs::read_text(&kept).ok().as_deref() != Some(&text) {
            fs::write_atomic(&kept, text.as_bytes())?;
        }
        Ok(DotConfig::parse(&text))
    }

    fn verify(
        &self,
        cache: &Cache,
        base: Option<Base<'_>>,
        config: &DotConfig,
        tree: &Path,
    ) -> Result<(), BuildError> {
        let missing = kconfig::missing(self.requests, config, tree, self.arch.source_dir)?;
        if !missing.is_empty() {
            return Err(BuildError::Missing(missing));
        }
        let patches_kconfig = self.patches.iter().any(is_kconfig_change);
        let Some(base) = base.filter(|base| !base.config_may_differ && !patches_kconfig) else {
            return Ok(());
        };
        let theirs = fs::read_text(&cache.kernel(&base.kernel.key).join("config"))?;
        let theirs = DotConfig::parse(&theirs);
        let differences = config.differences(&theirs);
        if differences.is_empty() {
            return Ok(());
        }
        Err(BuildError::ConfigDiffers(differences.iter().map(ToString::to_string).collect()))
    }

    async fn compile(&self, tree: &Path, log: &Path, progress: &dyn Fn(u32)) -> Result<(), BuildError> {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let make = self.make(tree).arg(format!("-j{jobs}")).arg(self.arch.image);
        let make = make.deadline(Duration::from_secs(4 * 3600)).log_to(log).run();
        let watch = async {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                progress(std::fs::read(log).map_or(0, |log| count_steps(&log)));
            }
        };
        let made = tokio::select! {
            made = make => made,
            () = watch => return Ok(()),
        };
        match made {
            Err(ProcessError::Failed { tail, .. }) => {
                let errors = compiler_errors(&String::from_utf8_lossy(&fs::read(log)?));
                Err(BuildError::Compile { errors, tail })
            }
            made => made.map(|_: Output| ()).map_err(BuildError::from),
        }
    }

    fn publish(
        &self,
        cache: &Cache,
        mut kernel: Kernel,
        out: &Path,
        log: &Path,
    ) -> Result<Kernel, BuildError> {
        let entry = cache.kernel(&kernel.key);
        let staging = entry.with_extension("partial");
        fs::remove_dir(&staging)?;
        fs::create_dir(&staging)?;
        fs::copy(&out.join(VMLINUX), &staging.join(&kernel.vmlinux))?;
        if kernel.image != kernel.vmlinux {
            fs::copy(&out.join(self.arch.image_path), &staging.join(&kernel.image))?;
        }
        fs::copy(&out.join(".config"), &staging.join("config"))?;
        fs::copy(log, &staging.join("build.log"))?;
        let stored = serde_json::to_vec_pretty(&kernel).map_err(BuildError::Record)?;
        fs::write_atomic(&staging.join("build.json"), &stored)?;
        // An entry without a readable build.json is a leftover of a disk that was full.
        fs::remove_dir(&entry)?;
        fs::publish_dir(&staging, &entry)?;
        kernel.place_in(&entry);
        Ok(kernel)
    }

    fn make(&self, tree: &Path) -> Task {
        let fixed = FIXED.iter().map(|(name, value)| format!("{name}={value}"));
        Task::new("make")
            .bare_environment()
            .args(["-C".as_ref(), tree.as_os_str()])
            .args(["O=out", &format!("ARCH={}", self.arch.make_arch)])
            .arg(match self.compiler {
                Compiler::Gcc => format!("CROSS_COMPILE={}", self.arch.compiler_prefix()),
                Compiler::Clang => "LLVM=1".to_owned(),
            })
            .args(fixed)
    }
}

/// The compiler and linker, as they name themselves.
pub(crate) async fn toolchain(arch: &ArchSpec, compiler: Compiler) -> Result<String, BuildError> {
    let prefix = arch.compiler_prefix();
    let programs = match compiler {
        Compiler::Gcc => [format!("{prefix}gcc"), format!("{prefix}ld")],
        Compiler::Clang => ["clang".to_owned(), "ld.lld".to_owned()],
    };
    let mut names = Vec::new();
    for program in programs {
        let said = Task::new(&program).arg("--version").run().await?;
        let first = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
        names.push(first);
    }
    Ok(names.join("; "))
}

/// The kernel's own tools are the exception to the rule that no command holds a path: what kbuild remembers
/// of their commands names the tree in which they were built. Moved along with the objects, it keeps
/// make from building objtool anew, on which every object depends.
fn move_commands(directory: &Path, from: &Path, to: &Path) -> Result<(), FileError> {
    if !directory.is_dir() {
        return Ok(());
    }
    for path in fs::list(directory)? {
        if path.is_dir() && !path.is_symlink() {
            move_commands(&path, from, to)?;
        } else if path.extension().is_some_and(|end| end == "cmd" || end == "d") {
            let text = fs::read_text(&path)?;
            let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
            fs::write_atomic(&path, text.replace(&*from, &to).as_bytes())?;
        }
    }
    Ok(())
}

/// Whether a patch may bring options of its own.
fn is_kconfig_change(patch: &Patch) -> bool {
    patch.files.iter().any(|file| file.rsplit('/').next().is_some_and(|name| name.starts_with("Kconfig")))
}

fn require_space(path: &Path) -> Result<(), BuildError> {
    match sys::free_bytes(path) {
        Ok(free) if free < SPACE => Err(BuildError::Space { path: path.to_owned(), free }),
        _ => Ok(()),
    }
}

/// The commands in a build log: kbuild indents each by two spaces and names it in capitals.
fn count_steps(log: &[u8]) -> u32 {
    let is_step = |line: &&[u8]| line.starts_with(b"  ") && line.get(2).is_some_and(u8::is_ascii_uppercase);
    log.split(|&byte| byte == b'\n').filter(is_step).count().try_into().unwrap_or(u32::MAX)
}

/// The compiler's and linker's complaints in a build log, at most ten.
fn compiler_errors(log: &str) -> Vec<String> {
    let is_error = |line: &&str| {
        [": error: ", ": fatal error: ", "undefined reference to", "ld: "]
            .iter()
            .any(|what| line.contains(what))
    };
    log.lines().filter(is_error).take(10).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_steps_and_errors() {
        let log = "make[1]: Entering directory 'x'\n  CC      kernel/x.o\n../kernel/x.c:3:1: error: unknown type\n  LD      y.o\nnoise\n";
        assert_eq!(count_steps(log.as_bytes()), 2);
        assert_eq!(compiler_errors(log), ["../kernel/x.c:3:1: error: unknown type"]);
    }
}
