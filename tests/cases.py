"""The table behind test_conformance.py and test_distributed.py: one row for every public metric and tensor function.

A row says how to make the metric, how to make its input and what it must answer, in numpy float64, item by item.
What every metric must have in common is tested from these rows alone.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from torch import Generator, Tensor

from tensormetrics import association, posterior, retrieval
from tensormetrics._metric import Metric
from tensormetrics.assignment import linear_sum_assignment


@dataclass(frozen=True)
class MetricCase:
    make: Callable[[], Metric]
    inputs: Callable[[Generator, int], tuple[Tensor, ...]]  # (generator, items) -> the arguments of update
    oracle: Callable[..., Any]  # the same arguments as numpy arrays -> the numbers that compute gives, flattened
    rtol: float = 1e-12
    forward_is_compute: bool = True  # False: forward answers with something else than compute on the batch
    bad: tuple[tuple[Any, ...], ...] = ()  # arguments of update that raise a ValueError


@dataclass(frozen=True)
class FunctionCase:
    call: Callable[..., tuple[Tensor, ...]]
    inputs: Callable[[Generator, tuple[int, ...]], tuple[Tensor, ...]]  # (generator, leading shape) -> arguments
    pad: Callable[..., tuple[Tensor, ...]] | None = None  # (garbage, *arguments) -> the same with padding
    unpad: Callable[..., tuple[Tensor, ...]] = lambda results, *arguments: results  # results of padded -> of unpadded
    compiles: bool = False
    rtol: float = 0.0  # 0: equal bit for bit; products of matrices are not, from one shape to another


def class_embeddings(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    """Overlapping classes: every score lies strictly between its bounds."""
    labels = torch.randint(0, 4, (items,), generator=generator)
    centres = torch.randn(4, 5, generator=generator)
    return centres[labels] + torch.randn(items, 5, generator=generator), labels


def neighbour_scores(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
    """precision@1, R-precision and MAP@R of self-retrieval, one query at a time (Musgrave et al. 2020)."""
    scores = []
    for i in range(len(labels)):
        distance = ((embeddings - embeddings[i]) ** 2).sum(1)
        order = [j for j in sorted(range(len(labels)), key=lambda j: (distance[j], j)) if j != i]  # noqa: B023
        match = labels[order] == labels[i]
        r = match.sum()
        if r:
            precision_at = np.cumsum(match[:r]) / np.arange(1, r + 1)
            scores.append((match[0], match[:r].mean(), (precision_at * match[:r]).sum() / r))
    ap, p1, rp = (np.mean([s[n] for s in scores]) for n in (2, 0, 1)) if scores else (np.nan,) * 3
    return [ap, p1, rp]


def matched_share(labels: np.ndarray, clusters: np.ndarray) -> float:
    counts = np.array([[np.sum((labels == a) & (clusters == b)) for b in range(4)] for a in range(4)])
    rows, columns = scipy.optimize.linear_sum_assignment(counts, maximize=True)
    return counts[rows, columns].sum() / len(labels)


def confusion_inputs(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    target = torch.randint(0, 3, (items,), generator=generator)
    logits = torch.randn(items, 3, generator=generator) + 2 * torch.nn.functional.one_hot(target, 3)
    return logits, target


def posterior_of_counts(logits: np.ndarray, target: np.ndarray) -> list[float]:
    """Median and narrowest 95 % interval of the sampled accuracy, from a matrix counted one item at a time."""
    counts = np.zeros((3, 3))
    for row, label in zip(logits, target, strict=True):
        counts[int(label), int(np.argmax(row))] += 1
    sums = posterior.sample_sums(
        torch.from_numpy(counts),
        500,
        prevalence_prior="perks",
        confusion_prior="perks",
        names=["posterior"],
        need="diag",
    )
    accuracy = np.sort((sums.tp.double().sum(-1) / (sums.tp + sums.fn).double().sum(-1)).numpy()[:, 0])
    inside = int(0.95 * len(accuracy))
    start = int(np.argmin(accuracy[inside:] - accuracy[:-inside]))
    return [np.median(accuracy), accuracy[start], accuracy[start + inside]]


EMBEDDINGS_BAD = (
    (torch.zeros(3, 5), torch.zeros(4, dtype=torch.int64)),
    (torch.zeros(3), torch.zeros(3, dtype=torch.int64)),
    (torch.full((3, 5), torch.nan), torch.zeros(3, dtype=torch.int64)),
    (torch.zeros(3, 5, dtype=torch.complex64), torch.zeros(3, dtype=torch.int64)),
)


def rows_at_length_1(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return u @ v / np.linalg.norm(u) / np.linalg.norm(v)


def gaps(w: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[float]:
    """Each word's mean cosine with a less that with b (Caliskan et al. 2017)."""
    return [np.mean([cosine(v, u) for u in a]) - np.mean([cosine(v, u) for u in b]) for v in w]


def centred(groups: np.ndarray) -> np.ndarray:
    return groups - groups.mean(0)


def mean_gaps(groups: np.ndarray) -> np.ndarray:
    means = rows_at_length_1(groups).mean(1)
    return means[0] - means[1:]


def negative_sentiment(t: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The divergence from uniform of the shares of negative sentiment (Sweeney & Najafian 2019), by another solver."""
    x = np.pad(np.concatenate([a, -b]), ((0, 0), (0, 1)), constant_values=1)
    x[len(a) :, -1] = -1

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = x @ v
        return v @ v / 2 + np.logaddexp(0, -margin).sum(), v - x.T @ scipy.special.expit(-margin)

    v = scipy.optimize.minimize(loss, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    p = scipy.special.expit(-(t @ v[:5] + v[5]))
    q = p / p.sum()
    return np.sum(q * np.log(q * len(q)))


def of_queries(
    metric: Callable[[], Metric], names: str, score: Callable[..., float], rtol: float = 1e-12
) -> MetricCase:
    """Items are queries of four words per set, of three sets for groups g, h; the oracle scores them one by one."""

    def inputs(generator: Generator, items: int) -> tuple[Tensor, ...]:
        shapes = [(items, 3, 4, 5) if name in "gh" else (items, 4, 5) for name in names]
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    def oracle(*sets: np.ndarray) -> list[float]:
        return [np.mean([score(*query) for query in zip(*sets, strict=True)])]

    narrow, *others = inputs(Generator(), 2)
    bad = ((narrow[..., :4], *others), (narrow[0, 0], *others))
    return MetricCase(metric, inputs, oracle, rtol, False, bad)  # forward answers with the score of each item


METRICS = {
    "AccuracyCalculator": MetricCase(
        retrieval.AccuracyCalculator, class_embeddings, neighbour_scores, bad=EMBEDDINGS_BAD
    ),
    "ClusterAccuracy": MetricCase(
        # Clusters are the nearest of four fixed directions: the oracle then needs no k-means of its own.
        lambda: retrieval.ClusterAccuracy(n_clusters=4, kmeans_func=lambda x, n: x[:, :n].argmax(1)),
        class_embeddings,
        lambda embeddings, labels: [matched_share(labels, embeddings[:, :4].argmax(1))],
        bad=EMBEDDINGS_BAD,
    ),
    "ConfusionPosterior": MetricCase(
        lambda: posterior.ConfusionPosterior(3, ["acc"], num_samples=500),
        confusion_inputs,
        posterior_of_counts,
        rtol=1e-6,  # the samples are float32
        forward_is_compute=False,
        bad=(
            (torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64)),
            (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)),
            (torch.zeros(4, dtype=torch.int64), torch.full((4,), 3)),
            (torch.full((4,), -1), torch.zeros(4, dtype=torch.int64)),
            (torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)),
            (torch.zeros(4, 3), torch.zeros(4)),
        ),
    ),
    "WEAT": of_queries(association.WEAT, "xyab", lambda x, y, a, b: sum(gaps(x, a, b)) - sum(gaps(y, a, b))),
    "RIPA": of_queries(association.RIPA, "xya", lambda x, y, a: np.mean(a @ rows_at_length_1(x - y).T)),
    "RND": of_queries(
        association.RND,
        "xya",
        lambda x, y, a: np.mean([np.linalg.norm(w - x.mean(0)) - np.linalg.norm(w - y.mean(0)) for w in a]),
    ),
    "ECT": of_queries(
        association.ECT,
        "xya",
        lambda x, y, a: scipy.stats.spearmanr(*(rows_at_length_1(a) @ s.mean(0) for s in (x, y))).statistic,
    ),
    "MAC": of_queries(
        association.MAC, "tg", lambda t, a: 1 - np.mean([rows_at_length_1(t) @ rows_at_length_1(s).T for s in a])
    ),
    "ExampleMetric": of_queries(
        association.ExampleMetric, "xya", lambda x, y, a: cosine(y.mean(0), a.mean(0)) - cosine(x.mean(0), a.mean(0))
    ),
    "SCWEAT": of_queries(
        association.SCWEAT,
        "wab",
        lambda w, a, b: np.mean(
            np.array(gaps(w, a, b)) / np.std(rows_at_length_1(w) @ rows_at_length_1(np.concatenate([a, b])).T, 1)
        ),
    ),
    "GWEAT": of_queries(
        association.GWEAT,
        "gh",
        lambda x, a: np.sum(centred(rows_at_length_1(x).mean(1)) * centred(rows_at_length_1(a).mean(1))),
    ),
    "SAME": of_queries(
        lambda: association.SAME(weighting="unit"),
        "tg",
        lambda t, groups: np.mean(
            np.abs(rows_at_length_1(t) @ np.linalg.qr(mean_gaps(groups).T)[0]).sum(1)  # Gram-Schmidt up to signs
        ),
    ),
    "DirectBias": of_queries(
        association.DirectBias,
        "tg",
        lambda t, groups: np.mean(
            np.abs(rows_at_length_1(t) @ np.linalg.svd(centred(rows_at_length_1(groups)).reshape(-1, 5))[2][0])
        ),
    ),
    "RNSB": of_queries(association.RNSB, "tab", negative_sentiment, rtol=1e-7),
}


def ragged_costs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    cost = torch.randn(*lead, 5, 6, generator=generator)
    return cost, *(torch.randint(0, n + 1, lead, generator=generator) for n in (5, 6))


def solve(cost: Tensor, row_lengths: Tensor, col_lengths: Tensor) -> tuple[Tensor, ...]:
    return tuple(linear_sum_assignment(cost, row_lengths=row_lengths, col_lengths=col_lengths, check=False))


def pad_costs(garbage: float, cost: Tensor, row_lengths: Tensor, col_lengths: Tensor) -> tuple[Tensor, ...]:
    padded = cost.new_full((*cost.shape[:-2], 8, 11), garbage)
    padded[..., :5, :6] = cost
    for index, matrix in zip(np.ndindex(*cost.shape[:-2]), padded.flatten(0, -3), strict=True):
        matrix[row_lengths[index] :] = garbage
        matrix[:, col_lengths[index] :] = garbage
    return padded, row_lengths, col_lengths


def unpad_solution(results: tuple[Tensor, ...], *_: Tensor) -> tuple[Tensor, ...]:
    col_of_row, row_of_col, cost, row_dual, col_dual, status = results
    return col_of_row[..., :5], row_of_col[..., :6], cost, row_dual[..., :5], col_dual[..., :6], status


def found_ranks(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    match = torch.rand(*lead, 7, 10, generator=generator) < 0.4
    deeper = torch.randint(0, 3, (*lead, 7), generator=generator)  # positives that the search did not reach
    return torch.arange(1, 11) * match, match.sum(-1) + deeper


def pad_ranks(garbage: float, rank: Tensor, relevant: Tensor) -> tuple[Tensor, ...]:
    return torch.nn.functional.pad(rank, (3, 4)), relevant


def score(function: Callable[..., Tensor], **options: int) -> FunctionCase:
    def call(rank: Tensor, relevant: Tensor) -> tuple[Tensor, ...]:
        return (function(retrieval.PositiveRanks(rank, relevant), **options),)

    return FunctionCase(call, found_ranks, pad_ranks, compiles=True)


def label_pairs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 4, (*lead, 30), generator=generator) for _ in range(2))


FUNCTIONS = {
    "linear_sum_assignment": FunctionCase(solve, ragged_costs, pad_costs, unpad_solution, compiles=True),
    "cluster_accuracy": FunctionCase(lambda *pair: (retrieval.cluster_accuracy(*pair),), label_pairs),
    "precision": score(retrieval.precision, k=3),
    "r_precision": score(retrieval.r_precision),
    "average_precision_at_r": score(retrieval.average_precision_at_r),
}


def word_sets(sets: str, function: Callable[..., Any], compiles: bool = True, **options: Any) -> FunctionCase:
    """A row for a score of word sets: p p are pairs, P groups of tuples, other capitals groups of sets."""
    names = {"p": "pair", "P": "tuple", "G": "groups"}
    masked = [names.get(s, s.lower()) for s in dict.fromkeys(sets)]
    shapes = [(3, 6, 5) if s.isupper() else (6, 5) for s in sets]

    def inputs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
        shape_of = dict(zip(sets, shapes, strict=True))
        masks = [shape[-2:-1] if s == "P" else shape[:-1] for s, shape in shape_of.items()]
        return (
            *(torch.randn(*lead, *shape, generator=generator) for shape in shapes),
            *(torch.rand(*lead, *shape, generator=generator) < 0.7 for shape in masks),
        )

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        masks = dict(zip((f"{name}_mask" for name in masked), arguments[len(sets) :], strict=True))
        results = function(*arguments[: len(sets)], **masks, **options)
        return tuple(results) if isinstance(results, tuple) else (results,)

    def pad(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
        wide = (torch.nn.functional.pad(words, (0, 0, 2, 3), value=garbage) for words in arguments[: len(sets)])
        return (*wide, *(torch.nn.functional.pad(mask, (2, 3)) for mask in arguments[len(sets) :]))

    def unpad(results: tuple[Tensor, ...], *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(r[..., 2:-3] for r in results) if function is association.sc_weat else results

    return FunctionCase(call, inputs, pad, unpad, compiles, rtol=1e-9)


def scalar_scores(*masks: str, function: Callable[..., Tensor], **options: Any) -> FunctionCase:
    """A row for a p-value of scalar scores, with a mask for each side."""

    def inputs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (
            *(torch.randn(*lead, 6, generator=generator) for _ in masks),
            *(torch.rand(*lead, 6, generator=generator) < 0.7 for _ in masks),
        )

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(masks, arguments[len(masks) :], strict=True))
        return (function(*arguments[: len(masks)], **given, **options),)

    def pad(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
        pad = torch.nn.functional.pad
        wide = (pad(scores, (2, 3), value=garbage) for scores in arguments[: len(masks)])
        return (*wide, *(pad(mask, (2, 3)) for mask in arguments[len(masks) :]))

    return FunctionCase(call, inputs, pad)


def pools(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(*lead, 4, contexts, 5, generator=generator) for contexts in (3, 2, 4, 1))


def effects(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    return torch.randn(*lead, 7, generator=generator), torch.rand(*lead, 7, generator=generator) + 0.1


FUNCTIONS |= {
    "weat": word_sets("xyab", association.weat),
    "weat_effect_size": word_sets("xyab", association.weat_effect_size),
    "sc_weat": word_sets("wab", association.sc_weat),
    "mean_sc_weat": word_sets("wab", association.mean_sc_weat),
    "rnd": word_sets("xya", association.rnd),
    "rnd_cos": word_sets("xya", association.rnd, distance="cos"),
    "ripa": word_sets("ppa", association.ripa),
    "ect": word_sets("xya", association.ect),
    "mac": word_sets("tA", association.mac),
    "example_metric": word_sets("xya", association.example_metric),
    "rnsb": word_sets("tab", association.rnsb, compiles=False),
    "gweat": word_sets("XA", association.gweat),
    "same": word_sets("tG", association.same),
    "direct_bias": word_sets("tP", association.direct_bias, n_components=2),
    "ceat": FunctionCase(lambda *p: association.ceat(*p, samples=20), pools, compiles=True, rtol=1e-9),
    "random_effects": FunctionCase(
        lambda *e: tuple(association.random_effects(*e)), effects, compiles=True, rtol=1e-12
    ),
    "permutation_p_value": scalar_scores("u_mask", "v_mask", function=association.permutation_p_value),
    "permutation_p_value_drawn": scalar_scores(
        "u_mask", "v_mask", function=association.permutation_p_value, method="approximate", iterations=99
    ),
    "sign_flip_p_value": scalar_scores("mask", function=association.sign_flip_p_value),
    "sign_flip_p_value_drawn": scalar_scores(
        "mask", function=association.sign_flip_p_value, method="approximate", iterations=99
    ),
    "bootstrap_interval": word_sets(
        "xyab", functools.partial(association.bootstrap_interval, association.weat), compiles=False, iterations=20
    ),
}
