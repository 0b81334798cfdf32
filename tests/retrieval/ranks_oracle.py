"""Reference implementation of the ranks of relevant references in NumPy float64, and families of difficult inputs."""

import numpy as np
from retrieval_oracle import delta


def families(n, dim=6):
    """Return embeddings by name whose ties, rounding or wide range make the order of neighbors difficult."""
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


def nonzero_ranks(rank):
    return [row[row > 0].tolist() for row in rank]


def ranks(query, reference, relevant, ignored, distance="l2", ties="index", depth=None):
    # relevant: (Q, N) gains, 0 = irrelevant  ignored: (Q, N), includes the query itself
    """Return ranks and gains of the relevant references and the number of candidates of each query as lists."""
    query, reference = np.float64(query), np.float64(reference)
    result = []
    for row, gain, is_ignored in zip(query, np.float64(relevant), ignored, strict=True):
        distances = delta(row, reference, distance)
        tie_key = {"index": gain * 0, "optimistic": gain == 0, "pessimistic": gain > 0}[ties]
        order = [j for j in np.lexsort((np.arange(len(distances)), tie_key, distances)) if not is_ignored[j]]
        hits = [(rank, gain[j]) for rank, j in enumerate(order, 1) if gain[j] > 0 and rank <= (depth or rank)]
        result.append(([rank for rank, _ in hits], [hit_gain for _, hit_gain in hits], len(order)))
    return tuple(map(list, zip(*result, strict=True)))
