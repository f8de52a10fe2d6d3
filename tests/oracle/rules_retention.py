"""TRIM-KV and DBTrimKV: a gate gives each token and KV head a retention beta in (0, 1], which
decays with age.

Sources: TRIM-KV (v2) Algorithm 1, DBTrimKV Eq. 9. The published code's ages differ from both and
have separate names.
"""
import numpy as np

# Age of an entry at position p after n tokens (the newest has p = n - 1).
AGES = {"algorithm": -1, "equation": 0, "code": 1, "code-ahead": 2}


def silu(x):
    return x / (1 + np.exp(-x))


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def gate(x, layers, readout, bias):
    """Returns log beta [H, n]. x [n, d]: the input of the attention layer after its norm; layers:
    pairs of weight [I, d] and bias [I], each followed by SiLU; readout [H, I]."""
    x = np.asarray(x, float)
    for weight, shift in layers:
        x = silu(x @ np.asarray(weight, float).T + shift)
    return log_sigmoid(x @ np.asarray(readout, float).T + bias).T


def ages(seen, positions, convention="equation"):
    return seen + AGES[convention] - np.asarray(positions, float)


def score(log_beta, age, steps=1):
    """Returns the log of sum_{k < steps} beta^(age + k); for beta = 1 the logarithm of `steps`."""
    log_beta = np.asarray(log_beta, float)
    one = log_beta == 0
    safe = np.where(one, -1, log_beta)
    ahead = np.log(-np.expm1(steps * safe)) - np.log(-np.expm1(safe)) if steps > 1 else 0
    return np.where(one, np.log(steps), safe * age + ahead)


def score_with_norm(log_beta, age, norms):
    """The second strategy of the first release."""
    return np.asarray(log_beta, float) * age + np.log(norms)
