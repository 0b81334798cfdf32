"""Golden cases, and reference implementations in NumPy float64 that process one query at a time."""

import json
from pathlib import Path

import numpy as np
import torch

from tensormetrics.retrieval import AccuracyCalculator

_GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
CASES = _GOLDEN["cases"]
TINY = np.array(_GOLDEN["data"]["tiny"]["embeddings"], dtype=np.float32)
TINY_LABELS = np.array(_GOLDEN["data"]["tiny"]["labels"])

KNN = AccuracyCalculator().requires_knn()


def data(items=60, classes=5):
    """Draw overlapping classes; no other item has the label of the last item."""
    labels = torch.arange(items) % classes
    labels[-1] = 99  # lone
    return torch.randn(classes, 6)[labels % classes] + torch.randn(items, 6), labels


def cases(kind):
    return {name: case for name, case in CASES.items() if case["kind"] == kind}


def case_rows(case):
    """Return embeddings and labels of a golden case."""
    if "generator" in case:
        g = case["generator"]
        labels = np.arange(g["n"]) % g["classes"]
        centers = np.random.RandomState(g["seed"]).standard_normal((g["classes"], g["d"]))
        noise = np.random.RandomState(g["seed"] + 1).standard_normal((g["n"], g["d"]))
        return np.float32(g["spread"] * centers[labels] + noise), labels
    dtype = case.get("cast", case.get("dtype", "float32"))
    rows = TINY if case.get("query") == "tiny" else np.array(case["embeddings"])
    return rows.astype(dtype), np.array(case.get("labels", TINY_LABELS))


def pairwise_sum(terms):
    """Sum over the last axis by repeated halving, padded with zeros to a power of two."""
    size = 1
    while size < terms.shape[-1]:
        size *= 2
    terms = np.concatenate([terms, np.zeros((*terms.shape[:-1], size - terms.shape[-1]))], -1)
    while size > 1:
        size //= 2
        terms = terms[..., :size] + terms[..., size:]
    return terms[..., 0]


def delta(query, reference, distance):
    # query: (D,)  reference: (R, D)  ->  (R,)
    """Return the canonical distances of one query to all references."""
    if distance in ("l2", "sqeuclidean"):
        return pairwise_sum((query - reference) ** 2)
    product = pairwise_sum(query * reference)
    if distance == "ip":
        return -product
    norms = np.sqrt(pairwise_sum(query**2)) * np.sqrt(pairwise_sum(reference**2))
    return np.array([1 - p / n if n else 1.0 for p, n in zip(product, norms, strict=True)])


def neighbors(query, reference, k, distance, self_index=None):
    # query: (Q, D)  reference: (R, D)  ->  (Q, k), (Q, k)
    """Return indices in the order of (distance, index) and distances; missing neighbors have index -1."""
    query, reference = np.float64(query), np.float64(reference)
    indices = np.full((len(query), k), -1)
    distances = np.full((len(query), k), -np.inf if distance == "ip" else np.inf)
    for i, row in enumerate(query):
        d = delta(row, reference, distance)
        order = [j for j in np.lexsort((np.arange(len(d)), d)) if self_index is None or j != self_index[i]][:k]
        indices[i, : len(order)] = order
        transform = {"l2": np.sqrt, "ip": np.negative}.get(distance, np.array)
        distances[i, : len(order)] = transform(d[order])
    return indices, distances


def scores(ranked_labels, label, relevant):
    """Return MAP, MAP@R, MRR, precision@1 and R-precision of one query from neighbor labels, nearest first."""
    if not relevant:
        return [np.nan] * 5
    hits, precisions = 0, {}
    for rank, other in enumerate(ranked_labels, 1):
        if other == label:
            hits += 1
            precisions[rank] = hits / rank
    precisions_within_r = [value for rank, value in precisions.items() if rank <= relevant]
    return [
        sum(precisions.values()) / relevant,
        sum(precisions_within_r) / relevant,
        1 / min(precisions, default=np.inf),
        float(ranked_labels[0] == label),
        len(precisions_within_r) / relevant,
    ]


def mean_scores(query, labels, reference, reference_labels, self_index=None, distance="l2", k=None, cameras=None):
    """Return means of `scores`, without relevant references of the query's camera, if cameras of both are given."""
    indices, _ = neighbors(query, reference, k or len(reference), distance, self_index)
    rows = []
    for i, row in enumerate(indices):
        ignored = {-1, -1 if self_index is None else self_index[i]}
        relevant = {j for j, label in enumerate(reference_labels) if label == labels[i]} - ignored
        if cameras is not None:
            ignored |= {j for j in relevant if cameras[0][i] == cameras[1][j]}
        ranked = [reference_labels[j] for j in row if j not in ignored]
        rows.append(scores(ranked, labels[i], len(relevant - ignored)))
    return dict(zip(KNN, np.nanmean(rows, 0), strict=True))


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
