"""Golden values, and the draws of one sample at a time in plain Python."""

import json
import math
from pathlib import Path

import numpy as np
import torch

from tensormetrics.core.numbers.philox import philox4x32, philox_key

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def as_float64(values):
    """Convert nested lists, in which nan and inf are strings, to a float64 tensor."""
    return torch.from_numpy(np.array(values, dtype=object).astype(np.float64))


def log_gamma(alpha, key, cell, sample):
    """Sample one cell of one sample by the method of Marsaglia & Tsang (2000)."""
    if alpha == 0:
        return -math.inf
    pair, lane = divmod(cell, 2)

    def uniforms(attempt):
        return [(w + 0.5) / 2**32 for w in philox4x32((sample & (2**32 - 1), pair, attempt, sample >> 32), key)]

    d = (alpha if alpha >= 1 else alpha + 1) - 1 / 3
    attempt = 0
    while True:
        u = uniforms(attempt)
        x = math.sqrt(-2 * math.log(u[0])) * (math.sin if lane else math.cos)(2 * math.pi * u[1])
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(u[2 + lane]) < x * x / 2 + d - d * v + d * math.log(v):
            break
        attempt += 1
    boost = math.log(uniforms(2**31)[lane]) / alpha if alpha < 1 else 0
    return math.log(d * v) + boost


def normalized(log_gammas):
    peak = max(log_gammas)
    weights = [math.exp(g - peak) if peak > -math.inf else 0.0 for g in log_gammas]
    return [w / sum(weights) if sum(weights) else 0.0 for w in weights]


def confusion_matrix(prevalence, cells, sample, name, method="posterior", seed=0):
    """Sample a matrix (C, C) from concentrations (C,) and (C, C): prevalence, right or wrong, wrong class."""
    C = len(prevalence)
    key = {stream: philox_key(seed, name, method, stream) for stream in ("prevalence", "split", "spread")}
    phi = normalized([log_gamma(prevalence[i], key["prevalence"], i, sample) for i in range(C)])
    matrix = np.zeros((C, C))
    for i in range(C):
        others = [j for j in range(C) if j != i]
        alphas = cells[i][i], sum(cells[i][j] for j in others)
        right, wrong = normalized([log_gamma(a, key["split"], 2 * i + k, sample) for k, a in enumerate(alphas)])
        log_gammas = [log_gamma(cells[i][j], key["spread"], i * (C + C % 2) + j, sample) for j in others]
        matrix[i, i] = phi[i] * right
        matrix[i, others] = [phi[i] * wrong * fraction for fraction in normalized(log_gammas)]
    return matrix


def sums_of(matrix):
    """Sum tp, fp, fn, tn of a matrix that sums to 1, cell by cell."""
    C = len(matrix)
    sums = np.zeros((4, C))
    for c in range(C):
        for i in range(C):
            for j in range(C):
                sums[{(True, True): 0, (False, True): 1, (True, False): 2}.get((i == c, j == c), 3), c] += matrix[i, j]
    return sums
