// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run directory: written while the run goes on, each file whole or not at all, so that a run killed
//! at any moment resumes where it stopped. `plan.json` comes first and never changes; a trial's record is
//! the proof that it ran; `events.jsonl` only grows.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Setting;
use super::event::{Event, Listener};
use crate::collect::result::RunResult;
use crate::collect::trial::TrialRecord;
use crate::fs::{self, FileError, Lock, PathContext};
use crate::plan::{Plan, VERSION};

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{path}: there is a run already; `--resume {path}` goes on with it", path = .0.display())]
    Occupied(PathBuf),
    #[error("{}: there is no run (no plan.json)", .0.display())]
    NoRun(PathBuf),
    #[error("{}: the run has not built its kernels yet", .0.display())]
    NoKernels(PathBuf),
    #[error("{}: another Twinboot is running it", .0.display())]
    Busy(PathBuf),
    #[error("{}: written by another version of Twinboot (format {found}, this one reads {VERSION})", path.display())]
    Version { path: PathBuf, found: u64 },
    #[error("{}: it is damaged", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where records and consoles of trials lie that ran again.
const AGAIN: &str = "verified";

/// An open run directory, locked.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    _lock: Lock,
}

impl Store {
    /// Makes a new run directory, or takes an empty one.
    pub(crate) fn create(root: &Path, plan: &Plan) -> Result<Self, StoreError> {
        fs::create_dir(root)?;
        let store = Self::lock(root)?;
        if store.plan_path().exists() {
            return Err(StoreError::Occupied(root.to_owned()));
        }
        for part in ["trials", "consoles"] {
            fs::create_dir(&root.join(part))?;
        }
        store.write_json(&store.plan_path(), plan)?;
        Ok(store)
    }

    /// Opens the directory of a run that stopped, with its plan.
    pub(crate) fn resume(root: &Path) -> Result<(Self, Plan), StoreError> {
        let plan = read_plan(root)?;
        let store = Self::lock(root)?;
        for part in ["trials", "consoles"] {
            fs::create_dir(&root.join(part))?;
        }
        Ok((store, plan))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn save_trial(&self, record: &TrialRecord, console: &[u8]) -> Result<(), StoreError> {
        // The record last: it says that the trial is complete.
        fs::write_atomic(&self.root.join(format!("consoles/{:04}.log", record.number)), console)?;
        self.write_json(&self.root.join(format!("trials/{:04}.json", record.number)), record)
    }

    /// Saves what came of a trial that ran again, beside what came of it first.
    pub(crate) fn save_again(&self, record: &TrialRecord, console: &[u8]) -> Result<(), StoreError> {
        let directory = self.root.join(AGAIN);
        fs::create_dir(&directory)?;
        fs::write_atomic(&directory.join(format!("{:04}.log", record.number)), console)?;
        self.write_json(&directory.join(format!("{:04}.json", record.number)), record)
    }

    pub(crate) fn save_setting(&self, setting: &Setting) -> Result<(), StoreError> {
        self.write_json(&self.setting_path(), setting)
    }

    pub(crate) fn has_setting(&self) -> bool {
        self.setting_path().is_file()
    }

    pub(crate) fn save_result(&self, result: &RunResult) -> Result<(), StoreError> {
        self.write_json(&self.root.join("result.json"), result)
    }

    pub(crate) fn save_text(&self, name: &str, text: &str) -> Result<PathBuf, StoreError> {
        let path = self.root.join(name);
        fs::write_atomic(&path, text.as_bytes())?;
        Ok(path)
    }

    /// The event log, open for more.
    pub(crate) fn log(&self) -> Result<Log, StoreError> {
        let path = self.root.join("events.jsonl");
        let mut file = File::options().create(true).append(true).read(true).open(&path).at("open", &path)?;
        // A line that a killed run did not finish stays, and is ended.
        if fs::read(&path)?.last().is_some_and(|&byte| byte != b'\n') {
            file.write_all(b"\n").at("write", &path)?;
        }
        Ok(Log { file })
    }

    fn lock(root: &Path) -> Result<Self, StoreError> {
        let lock = fs::try_lock(&root.join(".lock"))?.ok_or_else(|| StoreError::Busy(root.to_owned()))?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    fn plan_path(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    fn setting_path(&self) -> PathBuf {
        self.root.join("setting.json")
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
        let damaged = |source| StoreError::Damaged { path: path.to_owned(), source };
        let mut text = serde_json::to_vec_pretty(value).map_err(damaged)?;
        text.push(b'\n');
        Ok(fs::write_atomic(path, &text)?)
    }
}

/// The plan of a run directory.
pub(crate) fn read_plan(root: &Path) -> Result<Plan, StoreError> {
    let path = root.join("plan.json");
    if !path.is_file() {
        return Err(StoreError::NoRun(root.to_owned()));
    }
    let version: serde_json::Value = read_json(&path)?;
    match version["version"].as_u64() {
        Some(found) if found == u64::from(VERSION) => read_json(&path),
        found => Err(StoreError::Version { path, found: found.unwrap_or(0) }),
    }
}

/// What all trials of a run have in common.
pub(crate) fn read_setting(root: &Path) -> Result<Setting, StoreError> {
    let path = root.join("setting.json");
    if !path.is_file() {
        return Err(StoreError::NoKernels(root.to_owned()));
    }
    read_json(&path)
}

/// The records of all trials that are complete, by number.
pub(crate) fn read_trials(root: &Path) -> Result<Vec<TrialRecord>, StoreError> {
    read_records(&root.join("trials"))
}

/// The records of all trials that ran again, by number.
pub(crate) fn read_again(root: &Path) -> Result<Vec<TrialRecord>, StoreError> {
    let directory = root.join(AGAIN);
    if directory.is_dir() { read_records(&directory) } else { Ok(Vec::new()) }
}

fn read_records(directory: &Path) -> Result<Vec<TrialRecord>, StoreError> {
    let files = fs::list(directory)?.into_iter();
    files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| read_json(&path))
        .collect()
}

/// What the log says happened, in order. Lines that a killed run left unfinished are passed over.
pub(crate) fn read_events(root: &Path) -> Result<Vec<Event>, StoreError> {
    let path = root.join("events.jsonl");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    #[derive(serde::Deserialize)]
    struct Line {
        event: Event,
    }
    let text = fs::read(&path)?;
    let lines = text.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()).map(|line| line.event).collect())
}

/// The result of a run that has one.
pub(crate) fn read_result(root: &Path) -> Result<Option<RunResult>, StoreError> {
    let path = root.join("result.json");
    if path.is_file() { read_json(&path).map(Some) } else { Ok(None) }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let text = fs::read(path)?;
    serde_json::from_slice(&text).map_err(|source| StoreError::Damaged { path: path.to_owned(), source })
}

/// `events.jsonl`: one event a line, with the time.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
}

impl Listener for Log {
    fn hear(&self, event: &Event) {
        if !event.is_logged() {
            return;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = serde_json::json!({ "unix_ms": now.as_millis() as u64, "event": event });
        // The log tells the story; a full disk shows where results are written.
        let _ = (&self.file).write_all(format!("{line}\n").as_bytes());
    }
}
