// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a guest may be silent. Deadlines follow progress: every byte on the console or the port
//! starts them anew; they scale with what executes the guest and with how busy the host is.

use std::time::Duration;

use super::qemu::Engine;

/// How long a guest may be silent, and live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Without a byte from console or port.
    pub(crate) silence: Duration,
    /// From start to end, whatever it says.
    pub(crate) life: Duration,
}

/// How much longer than expected a boot may be silent.
const PATIENCE: u32 = 4;

/// The limits for a guest that probably boots in `boot` and whose trial takes `trial` by the guest's clock.
pub(crate) fn limits(engine: Engine, boot: Duration, trial: Duration) -> Limits {
    // Measured on two cores: one second of the virtual clock takes up to a minute under load.
    let (base, slowdown) = match engine {
        Engine::Kvm => (15, 2),
        Engine::Tcg => (30, 20),
        Engine::TcgVirtual => (60, 60),
    };
    let silence = Duration::from_secs(base) + boot * PATIENCE + trial * slowdown;
    Limits { silence, life: silence * 10 }
}

/// The factor by which a busy host stretches a deadline: runnable threads for each of its CPUs.
pub(crate) fn stretch(load_average: &str, cpus: usize) -> f64 {
    let load: f64 = load_average.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    (load / cpus.max(1) as f64).clamp(1.0, 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_and_load_give_more_time() {
        let (boot, trial) = (Duration::from_secs(5), Duration::from_secs(1));
        let kvm = limits(Engine::Kvm, boot, trial);
        let virtual_clock = limits(Engine::TcgVirtual, boot, trial);
        assert!(kvm.silence < virtual_clock.silence);
        assert!(virtual_clock.silence < limits(Engine::TcgVirtual, boot * 20, trial).silence);
        assert_eq!(stretch("0.50 0.1 0.1 1/99 1234", 2), 1.0);
        assert_eq!(stretch("6.00 0.1 0.1 1/99 1234", 2), 3.0);
        assert_eq!(stretch("garbage", 0), 1.0);
    }
}
