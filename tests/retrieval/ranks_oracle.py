"""Ranks of the relevant references by their definition, one query at a time, in numpy float64; families of inputs."""

import numpy as np
from retrieval_oracle import delta


def families(n, dim=6):
    """Embeddings in which ties, rounding or a wide range make the order of neighbours hard to get right."""
    random = np.random.RandomState(5)
    gaussian = random.standard_normal((n, dim))
    outliers = gaussian.copy()
    outliers[::9] *= 1000
    return {
        "gaussian": gaussian,
        "every point five times": np.repeat(gaussian[: -(-n // 5)], 5, 0)[random.permutation(n)],
        "three distinct points": gaussian[random.randint(0, 3, n)],
        "all zeros": np.zeros((n, dim)),
        "integer lattice": random.randint(-2, 3, (n, dim)).astype(float),
        "large common mean": gaussian + 1e4,
        "outliers": outliers,
        "log-normal norms": gaussian * np.exp(3 * random.standard_normal((n, 1))),
        "some zero rows": gaussian * (np.arange(n) % 4 > 0)[:, None],
        "collapsed": 1 + 1e-5 * gaussian,
        "closer than the bound": np.concatenate([1e-6 * gaussian[1:], np.full((1, dim), 1e4)]),
        "tiny values": gaussian * 1e-18,
        "one dimension": gaussian[:, :1],
    }


def ranks(query, reference, relevant, ignored, distance="l2", ties="index", depth=None):
    """relevant: gains (Q, N), 0 = not; ignored: (Q, N) with the query itself. Ranks, gains and candidates, as lists."""
    query, reference = np.float64(query), np.float64(reference)
    result = []
    for row, gain, hidden in zip(query, np.float64(relevant), ignored, strict=True):
        d = delta(row, reference, distance)
        first = {"index": gain * 0, "optimistic": gain == 0, "pessimistic": gain > 0}[ties]
        order = [j for j in np.lexsort((np.arange(len(d)), first, d)) if not hidden[j]]
        found = [(rank, gain[j]) for rank, j in enumerate(order, 1) if gain[j] > 0 and rank <= (depth or rank)]
        result.append(([rank for rank, _ in found], [g for _, g in found], len(order)))
    return tuple(map(list, zip(*result, strict=True)))
