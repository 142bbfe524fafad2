#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes orchestrator/src/analyse/reference.json: what numpy, scipy and statsmodels say about the
statistics that Twinboot computes itself. Needs `pip install numpy scipy statsmodels`; run it only to add
cases. The intervals are found by bisection on scipy's p-value, another way than Twinboot's."""

import json
import math
import pathlib

import numpy
import scipy
import statsmodels
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.05


def p_value(differences):
    """Exact two-sided sign-flip test on the sum."""
    result = stats.permutation_test(
        (numpy.asarray(differences),),
        numpy.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=math.inf,
        batch=100_000,
    )
    return float(result.pvalue)


def interval(differences):
    """All shifts that the test does not reject."""
    differences = numpy.asarray(differences)
    if LEVEL < 2 / 2 ** len(differences):
        return None
    centre = float(numpy.mean(differences))
    width = float(numpy.ptp(differences)) + 1e-3

    def end(outside):
        inside = centre
        while 1e-12 * width < abs(outside - inside):
            middle = (outside + inside) / 2
            if p_value(differences - middle) <= LEVEL:
                outside = middle
            else:
                inside = middle
        return inside

    return [end(centre - width), end(centre + width)]


def hodges_lehmann(differences):
    differences = numpy.asarray(differences)
    first, second = numpy.triu_indices(len(differences))
    return float(numpy.median((differences[first] + differences[second]) / 2))


def sign_flip(name, differences, with_interval=True):
    differences = [float(difference) for difference in differences]
    return {
        "name": name,
        "differences": differences,
        "p": p_value(differences),
        "interval": interval(differences) if with_interval else None,
        "hodges_lehmann": hodges_lehmann(differences),
    }


def holm(p):
    return {"p": p, "adjusted": [float(value) for value in multipletests(p, method="holm")[1]]}


def clopper_pearson(hits, tries, level=LEVEL):
    low = 0.0 if hits == 0 else float(stats.beta.ppf(level / 2, hits, tries - hits + 1))
    high = 1.0 if hits == tries else float(stats.beta.ppf(1 - level / 2, hits + 1, tries - hits))
    return {"hits": hits, "tries": tries, "level": level, "interval": [low, high]}


random = numpy.random.default_rng(20240607)
reference = {
    "made_with": {
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "statsmodels": statsmodels.__version__,
    },
    "sign_flip": [
        sign_flip("three blocks", [0.1, 0.25, -0.05]),
        sign_flip("five blocks, all up", [0.11, 0.13, 0.12, 0.14, 0.10]),
        sign_flip("six blocks, all up", [0.11, 0.13, 0.12, 0.14, 0.10, 0.16]),
        sign_flip("seven blocks, all down", [-0.21, -0.13, -0.02, -0.14, -0.10, -0.16, -0.08]),
        sign_flip("eight blocks of noise", random.normal(0, 0.1, 8)),
        sign_flip("eight blocks with an effect", random.normal(0.16, 0.14, 8)),
        sign_flip("eight blocks with an outlier", [*random.normal(0.05, 0.02, 7), 2.5]),
        sign_flip("eight whole numbers with ties", [3, -1, 2, 2, 5, -2, 3, 1]),
        sign_flip("nine blocks, skewed", random.exponential(0.2, 9) - 0.05),
        sign_flip("twelve blocks, heavy tails", random.standard_t(2, 12) * 0.1 + 0.08),
        sign_flip("twelve large numbers", random.normal(1.0e3, 4.0e2, 12)),
    ],
    "sign_flip_p_only": [
        sign_flip("twenty blocks", random.normal(0.05, 0.1, 20), with_interval=False),
    ],
    "holm": [
        holm([0.01]),
        holm([0.04, 0.01]),
        holm([0.01, 0.04, 0.03, 0.005]),
        holm([0.0078125, 0.0078125, 0.5, 0.02, 1.0]),
    ],
    "clopper_pearson": [
        clopper_pearson(0, 200),
        clopper_pearson(10, 200),
        clopper_pearson(200, 200),
        clopper_pearson(7, 8),
        clopper_pearson(187, 4000),
        clopper_pearson(187, 4000, 0.01),
    ],
    "normal_quantile": [
        {"share": share, "point": float(stats.norm.ppf(share))}
        for share in [0.0001, 0.025, 0.5, 0.8, 0.95, 0.975, 0.99999]
    ],
}

target = pathlib.Path(__file__).parents[1] / "orchestrator/src/analyse/reference.json"
target.write_text(json.dumps(reference, indent=2) + "\n")
print(f"wrote {target} with {reference['made_with']}")
