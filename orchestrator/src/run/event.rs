// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens in a run, as it happens. The engine emits these and nothing else; the event log, the
//! progress display and whatever comes later only listen.

use serde::{Deserialize, Serialize};
use twinboot_protocol::Phase;

use crate::vm::qemu::Engine;

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    Started {
        experiment: String,
        trials: u32,
        done: u32,
    },
    SourceWanted,
    SourceReady {
        origin: String,
        id: String,
        seconds: f64,
    },
    PatchesRead {
        arm: String,
        subjects: Vec<String>,
    },
    BuildStarted {
        arm: String,
    },
    /// Not logged.
    BuildProgress {
        arm: String,
        steps: u32,
        of: Option<u32>,
    },
    Built {
        arm: String,
        key: String,
        release: String,
        cached: bool,
        steps: u32,
        seconds: f64,
    },
    SameKernel {
        arm: String,
    },
    ProbeStarted,
    EngineChosen {
        engine: Engine,
        why: String,
    },
    GuestsAtOnce {
        guests: u32,
    },
    CheckpointWanted {
        arm: String,
    },
    CheckpointSaved {
        arm: String,
        bytes: u64,
        seconds: f64,
    },
    TrialStarted {
        number: u32,
        block: u32,
        arm: String,
    },
    /// Not logged.
    TrialPhase {
        number: u32,
        phase: Phase,
    },
    TrialEnded {
        number: u32,
        block: u32,
        arm: String,
        digest: String,
        seconds: f64,
        trouble: Option<String>,
    },
    TrialRepeated {
        number: u32,
        why: String,
    },
    /// Trials run once more, to be compared with the first time.
    VerificationStarted {
        trials: u32,
    },
    TrialVerified {
        number: u32,
        block: u32,
        arm: String,
        digest: String,
        seconds: f64,
        /// The first difference; absent when the guest measured the same.
        difference: Option<String>,
    },
    Warning {
        text: String,
    },
    Ended {
        verdict: String,
        exit_code: u8,
    },
}

impl Event {
    /// Whether it belongs into the event log.
    pub(crate) fn is_logged(&self) -> bool {
        !matches!(self, Self::BuildProgress { .. } | Self::TrialPhase { .. })
    }
}

/// Who listens to a run. Called from one thread, in order.
pub(crate) trait Listener {
    fn hear(&self, event: &Event);
}
