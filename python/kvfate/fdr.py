"""The false discovery rate of many tests."""
import numpy as np


def fdr(p):
    """Returns q of Benjamini and Hochberg (1995) over the p that are not NaN; NaN stays."""
    p = np.asarray(p, float)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(-p[known], kind="stable")]
    q = np.full(len(p), np.nan)
    q[order] = np.minimum.accumulate(np.minimum(1, p[order] * len(order) / np.arange(len(order), 0, -1)))
    return q
