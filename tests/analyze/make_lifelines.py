#!/usr/bin/env python3
"""Write lifelines.json: results of the survival library lifelines (0.30.3) for the lives of laws.py, to the digits of a
double.

It is run by hand, with lifelines in its own environment, and its result is stored:

    python3 -m venv V && V/bin/pip install lifelines==0.30.3 && V/bin/python tests/analyze/make_lifelines.py

A life is D = a + 1 steps long, or censored after c; kvfate's survival at n is P(D > n). The discrete Weibull law of
steps is the continuous law observed once per step: an event between m and m + 1.
"""
import json
import os
import sys

import numpy as np
from lifelines import KaplanMeierFitter, WeibullFitter, __version__
from lifelines.utils import restricted_mean_survival_time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import laws  # noqa: E402

AGES, GRACE, AT_LEAST, MEAN_TO, T = [0, 1, 2, 5, 13, 40, 100, 250, 400], 64, 20, 120, 600


def main():
    found = {"lifelines": __version__, "ages": AGES, "grace": GRACE, "at_least": AT_LEAST, "mean_to": MEAN_TO, "T": T, "laws": {}}
    for k, law in enumerate(laws.LAWS):
        last = laws.draw(np.random.default_rng(100 + k), law, (1, T))
        a, c, _ = laws.lives(last[0], GRACE, AT_LEAST)
        dies = a < c
        km = KaplanMeierFitter().fit(np.where(dies, a + 1, c), dies)
        steps = np.minimum(a, c)
        fit = WeibullFitter()
        keep = c > 0
        fit._scipy_fit_options = {"ftol": 1e-15, "gtol": 1e-12}
        fit.fit_interval_censoring(steps[keep], np.where(dies, steps + 1, np.inf)[keep])
        found["laws"][law] = {
            "survival": [float(km.predict(n)) for n in AGES],
            "greenwood": [float(km._cumulative_sq_.squeeze().asof(n)) for n in AGES],
            "half_life": float(km.median_survival_time_),
            "rmst": float(restricted_mean_survival_time(km, t=MEAN_TO)),
            "weibull": {"shape": float(fit.rho_), "scale": float(fit.lambda_**-fit.rho_), "log_likelihood": float(fit.log_likelihood_),
                        "shape_error": float(fit.summary.loc["rho_", "se(coef)"] / fit.rho_)},
        }
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lifelines.json"), "w", encoding="ascii") as f:
        json.dump(found, f, indent=1)
        f.write("\n")


main()
