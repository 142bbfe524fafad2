// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules, each by a set of pairs that only it decides, and what must hold for all pairs.

use super::super::random::SplitMix64;
use super::*;

const RULE: Rule = Rule { minimum_effect: 0.05, seed: 1 };

/// Nanoseconds around 7 us with the scatter given; the other arm `effect` times as long.
fn series(blocks: usize, effect: f64, scatter: f64) -> Series {
    let mut random = SplitMix64(3);
    let mut value = || 7_000.0 * (scatter * random.normal()).exp();
    Series {
        metric: "pingpong.mean".to_owned(),
        arm: "patched".to_owned(),
        role: Role::Primary,
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        resolution: 0.0,
        pairs: (0..blocks).map(|_| (value(), effect * value())).collect(),
    }
}

fn judged(series: Series) -> Judgement {
    judge(&[series], &RULE).remove(0)
}

fn check(series: Series, verdict: Verdict, explanation: &str) -> Judgement {
    let judgement = judged(series);
    assert_eq!((judgement.verdict, judgement.explanation.as_str()), (verdict, explanation));
    judgement
}

#[test]
fn decided() {
    check(
        series(8, 1.15, 0.01),
        Verdict::Regressed,
        "pingpong.mean is 15.1 % higher in patched than in the base, by 1.06 us (95 % interval +13.4 % to +16.8 %, p \
         = 0.0078, 8 blocks).",
    );
    check(
        series(8, 0.85, 0.01),
        Verdict::Improved,
        "pingpong.mean is 14.9 % lower in patched than in the base, by 1.05 us (95 % interval -16.2 % to -13.7 %, p = \
         0.0078, 8 blocks).",
    );
    check(
        Series { better: Better::Higher, ..series(8, 0.85, 0.01) },
        Verdict::Regressed,
        "pingpong.mean is 14.9 % lower in patched than in the base, by 1.05 us (95 % interval -16.2 % to -13.7 %, p = \
         0.0078, 8 blocks).",
    );
    check(
        series(8, 1.0, 0.01),
        Verdict::NoDifference,
        "pingpong.mean shows no difference larger than 5 %: patched differs from the base by +0.09 % (95 \
         % interval -1.4 % to +1.6 %, 8 blocks).",
    );
}

#[test]
fn undecided() {
    let wide = check(
        series(8, 1.0, 0.1),
        Verdict::Inconclusive,
        "pingpong.mean is undecided: patched differs from the base by +0.86 %, but the 95 % interval \
         -13.0 % to +17.1 % includes both zero and more than 5 %; about 144 blocks would probably decide.",
    );
    assert!(wide.blocks_needed > Some(8) && wide.smallest_detectable_effect > Some(5.0), "{wide:?}");
    check(
        series(8, 1.045, 0.02),
        Verdict::Inconclusive,
        "pingpong.mean is undecided: patched differs from the base by +4.7 %, but the 95 % interval +1.6 \
         % to +7.8 % includes both less and more than 5 %; about 978 blocks would probably decide.",
    );
    check(
        Series { resolution: 0.1, ..series(8, 1.15, 0.01) },
        Verdict::Inconclusive,
        "pingpong.mean is undecided: patched differs from the base by +15.1 %, but the 95 % interval -7.2 \
         % to +42.8 %, no finer than the instrument, includes zero; more blocks would hardly decide.",
    );
}

#[test]
fn too_few_blocks() {
    check(
        series(5, 1.15, 0.01),
        Verdict::Inconclusive,
        "pingpong.mean is undecided: 5 blocks cannot reach 5 % (p = 0.0625 at best); at least 6 are needed.",
    );
    let one = check(
        series(1, 1.15, 0.01),
        Verdict::Inconclusive,
        "pingpong.mean is undecided: 1 block cannot reach 5 % (p = 1.00 at best); at least 6 are needed.",
    );
    assert_eq!((one.p, one.blocks_needed), (Some(1.0), Some(6)));
    let none = check(
        series(0, 1.0, 0.0),
        Verdict::Inconclusive,
        "pingpong.mean is undecided: no block is complete.",
    );
    assert_eq!((none.p, none.effect, none.blocks_needed), (None, None, Some(6)));
}

#[test]
fn zero_scatter() {
    let found = check(
        series(6, 1.25, 0.0),
        Verdict::Regressed,
        "pingpong.mean is 25 % higher in patched than in the base, by 1.75 us (95 % interval +25.0 % to +25.0 \
         %, p = 0.0312, \
         6 blocks).",
    );
    let interval = found.effect.unwrap().interval.unwrap();
    assert!((interval.high - interval.low).abs() < 1e-9, "{interval:?}");
    assert_eq!(found.absolute_effect.unwrap().interval, Some(Interval { low: 1750.0, high: 1750.0 }));
    assert!(found.smallest_detectable_effect.unwrap() < 1e-9, "{found:?}");
    assert_eq!(judged(series(6, 1.0, 0.0)).verdict, Verdict::NoDifference);
}

#[test]
fn resolution_bounds_the_interval() {
    let found = judged(Series { resolution: 0.01, ..series(6, 1.0, 0.0) });
    let interval = found.effect.unwrap().interval.unwrap();
    assert!((interval.high - (1.01 / 0.99 - 1.0) * 100.0).abs() < 1e-9, "{interval:?}");
    assert_eq!(found.absolute_effect.unwrap().interval, Some(Interval { low: -140.0, high: 140.0 }));
}

#[test]
fn values_without_a_ratio() {
    let mut zero = series(8, 1.0, 0.01);
    zero.pairs[3].1 = 0.0;
    check(zero.clone(), Verdict::Invalid, "pingpong.mean has a value that no ratio can be formed of.");
    let counts = Series { unit: Unit::Count, pairs: vec![(0.0, 0.0); 8], ..zero.clone() };
    assert_eq!(judged(counts).verdict, Verdict::NoDifference);
    zero.pairs[3].1 = f64::NAN;
    assert_eq!(judged(zero).verdict, Verdict::Invalid);
}

#[test]
fn metrics_beside_the_primary_are_corrected_together() {
    let also = |metric: &str, blocks| Series {
        metric: metric.to_owned(),
        role: Role::Also,
        ..series(blocks, 1.15, 0.01)
    };
    let p = |blocks: usize| 2.0 / f64::from(1 << blocks);
    let judged = judge(&[series(6, 1.15, 0.01), also("first", 6), also("second", 7)], &RULE);
    let adjusted: Vec<Option<f64>> = judged.iter().map(|judgement| judgement.p_adjusted).collect();
    assert_eq!(adjusted, [Some(p(6)), Some(p(6)), Some(2.0 * p(7))]);
    assert!(judged.iter().all(|judgement| judgement.verdict == Verdict::Regressed));

    let judged = judge(&[also("first", 6), also("second", 6)], &RULE);
    assert_eq!(judged[0].verdict, Verdict::Inconclusive);
    let explanation = "first is undecided: patched differs from the base by +15.2 %, but corrected \
     for 2 metrics this \
         could be chance (p = 0.0625); at least 7 blocks are needed.";
    assert_eq!(judged[0].explanation, explanation);
}

#[test]
fn neither_scale_nor_order_of_arms_matters() {
    for seed in 1..20 {
        let mut random = SplitMix64(seed);
        let mut value = || (0.1 * random.normal()).exp() * 1e4;
        let pairs: Vec<(f64, f64)> = (0..9).map(|_| (value(), 1.1 * value())).collect();
        let with = |pairs: Vec<(f64, f64)>| judged(Series { pairs, ..series(0, 1.0, 0.0) });
        let found = with(pairs.clone());
        let scaled = with(pairs.iter().map(|(base, other)| (base * 1e3, other * 1e3)).collect());
        let swapped = with(pairs.iter().map(|&(base, other)| (other, base)).collect());

        let near = |first: f64, second: f64| (first - second).abs() < 1e-9 * first.abs().max(1.0);
        let (effect, scaled_effect) = (found.effect.unwrap(), scaled.effect.unwrap());
        assert!(near(effect.value, scaled_effect.value) && found.p == scaled.p, "{found:?} {scaled:?}");
        assert_eq!(found.verdict, scaled.verdict);
        let back = |percent: f64| (1.0 / (1.0 + percent / 100.0) - 1.0) * 100.0;
        let (interval, mirror) = (effect.interval.unwrap(), swapped.effect.unwrap().interval.unwrap());
        assert!(near(back(interval.low), mirror.high) && near(back(interval.high), mirror.low));
        assert_eq!(found.p, swapped.p);
        let expected = match found.verdict {
            Verdict::Regressed => Verdict::Improved,
            Verdict::Improved => Verdict::Regressed,
            same => same,
        };
        assert_eq!(swapped.verdict, expected);
    }
}

/// What `blocks_needed` promises: four experiments in five with so many blocks decide.
#[test]
fn blocks_needed_decide_four_times_in_five() {
    let scatter = 0.1 / 2.0_f64.sqrt();
    let comparison = Comparison {
        effect: Estimate { value: 1.12_f64.ln(), interval: None },
        absolute: Estimate { value: 0.0, interval: None },
        p: 1.0,
        scatter: Some(0.1),
        blur: 0.0,
        base: 1.0,
        other: 1.12,
    };
    let blocks = blocks_needed(&comparison, 8, LEVEL, RULE.minimum_effect.ln_1p()).unwrap();
    let mut random = SplitMix64(5);
    let mut decided = 0;
    for _ in 0..400 {
        let mut value = || 1e4 * (scatter * random.normal()).exp();
        let pairs = (0..blocks).map(|_| (value(), 1.12 * value())).collect();
        decided += i32::from(judged(Series { pairs, ..series(0, 1.0, 0.0) }).verdict == Verdict::Regressed);
    }
    // Three standard errors of 400 repetitions are 6 %.
    assert!((296..=344).contains(&decided), "{decided} of 400 with {blocks} blocks");
}
