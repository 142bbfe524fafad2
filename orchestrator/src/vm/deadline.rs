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

/// The limits for a guest of so many CPUs whose trial takes so long by the guest's clock.
pub(crate) fn limits(engine: Engine, cpus: u32, trial: Duration) -> Limits {
    // Facts measured on two cores: 128 emulated CPUs take up to 40 s to boot, and one second of the virtual
    // clock takes up to a minute under load.
    let (base, each_cpu, slowdown) = match engine {
        Engine::Kvm => (15, 0.1, 2),
        Engine::TcgMulti => (30, 1.0, 20),
        Engine::TcgVirtual => (60, 2.0, 60),
    };
    let silence =
        Duration::from_secs(base) + Duration::from_secs_f64(each_cpu * f64::from(cpus)) + trial * slowdown;
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
        let trial = Duration::from_secs(1);
        let kvm = limits(Engine::Kvm, 4, trial);
        let virtual_clock = limits(Engine::TcgVirtual, 4, trial);
        assert!(kvm.silence < virtual_clock.silence);
        assert!(virtual_clock.silence < limits(Engine::TcgVirtual, 128, trial).silence);
        assert_eq!(stretch("0.50 0.1 0.1 1/99 1234", 2), 1.0);
        assert_eq!(stretch("6.00 0.1 0.1 1/99 1234", 2), 3.0);
        assert_eq!(stretch("garbage", 0), 1.0);
    }
}
