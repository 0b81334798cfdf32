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
import sklearn.metrics as scores
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


def first_columns(x: Tensor, n_clusters: int) -> Tensor:
    """In place of k-means: the oracle then needs none."""
    return x[:, :4].argmax(1)


def default_accuracies(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
    """The default metrics in order, self-retrieval one query at a time (Musgrave et al. 2020)."""
    clusters = embeddings[:, :4].argmax(1)
    rows = []
    for i in range(len(labels)):
        distance = ((embeddings - embeddings[i]) ** 2).sum(1)
        order = [j for j in sorted(range(len(labels)), key=lambda j: (distance[j], j)) if j != i]  # noqa: B023
        match = labels[order] == labels[i]
        if r := match.sum():
            at_r = average_precision_of(match, r)
            rows.append((average_precision_of(match), at_r, 1 / (1 + match.argmax()), match[0], match[:r].mean()))
    shared = [
        scores.adjusted_mutual_info_score(labels, clusters),
        scores.normalized_mutual_info_score(labels, clusters),
    ]
    return shared + np.mean(rows, 0).tolist()


EMBEDDINGS_BAD = (
    (torch.zeros(3, 5), torch.zeros(4, dtype=torch.int64)),
    (torch.zeros(3), torch.zeros(3, dtype=torch.int64)),
    (torch.full((3, 5), torch.nan), torch.zeros(3, dtype=torch.int64)),
    (torch.zeros(3, 5, dtype=torch.complex64), torch.zeros(3, dtype=torch.int64)),
)


def retrieval_score(make: Callable[[], Metric], score: Callable[[np.ndarray], float], average=np.mean) -> MetricCase:
    """`score` sees one query: for each of its neighbours, nearest first, whether it has the query's label."""

    def oracle(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
        scores = []
        for i in range(len(labels)):
            distance = ((embeddings - embeddings[i]) ** 2).sum(1)
            order = [j for j in sorted(range(len(labels)), key=lambda j: (distance[j], j)) if j != i]  # noqa: B023
            match = labels[order] == labels[i]
            if match.any():
                scores.append(score(match))
        return [average(scores)]

    return MetricCase(make, class_embeddings, oracle, bad=EMBEDDINGS_BAD)


def average_precision_of(match: np.ndarray, k: int | None = None) -> float:
    return sum(match[: j + 1].mean() for j in match[:k].nonzero()[0]) / match.sum()


def ndcg_of(match: np.ndarray, k: int | None = None) -> float:
    discount = 1 / np.log2(2 + np.arange(len(match)))
    return (match * discount)[:k].sum() / (np.sort(match)[::-1] * discount)[:k].sum()


def nearest_mean(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
    """Share of items whose own class has the nearest mean, the item itself taken out of it."""
    right = []
    for i, label in enumerate(labels):
        others = np.arange(len(labels)) != i
        means = {c: embeddings[others & (labels == c)].mean(0) for c in np.unique(labels)}
        distance = {c: ((mean - embeddings[i]) ** 2).sum() for c, mean in means.items()}
        right.append(min(distance, key=distance.get) == label)
    return [np.mean(right)]


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


def partitions(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    """Labels, and clusters that agree on about half of them."""
    labels, noise = torch.randint(0, 5, (2, items), generator=generator)
    return labels, torch.where(torch.rand(items, generator=generator) < 0.5, labels, noise)


def clustering(make: Callable[[], Metric], oracle: Callable[..., float], rtol: float = 1e-12) -> MetricCase:
    integers = torch.zeros(3, dtype=torch.int64)
    bad = ((integers, integers[:2]), (integers, integers[None]), (integers, torch.full((3,), torch.nan)))
    return MetricCase(make, partitions, lambda *pair: [oracle(*pair)], rtol, bad=bad)


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
        lambda: retrieval.AccuracyCalculator(kmeans_func=first_columns),
        class_embeddings,
        default_accuracies,
        rtol=1e-11,
        bad=EMBEDDINGS_BAD,
    ),
    "PrecisionAtK": retrieval_score(lambda: retrieval.PrecisionAtK(5), lambda match: match[:5].mean()),
    "RPrecision": retrieval_score(retrieval.RPrecision, lambda match: match[: match.sum()].mean()),
    "RecallAtK": retrieval_score(lambda: retrieval.RecallAtK(5), lambda match: match[:5].sum() / match.sum()),
    "HitRate": retrieval_score(lambda: retrieval.HitRate(2), lambda match: match[:2].any()),
    "AveragePrecision": retrieval_score(retrieval.AveragePrecision, average_precision_of),
    "AveragePrecisionAtR": retrieval_score(
        retrieval.AveragePrecisionAtR, lambda match: average_precision_of(match, match.sum())
    ),
    "ReciprocalRank": retrieval_score(retrieval.ReciprocalRank, lambda match: 1 / (1 + match.argmax())),
    "NDCG": retrieval_score(lambda: retrieval.NDCG(10), lambda match: ndcg_of(match, 10)),
    "FirstRank": retrieval_score(lambda: retrieval.FirstRank("mean"), lambda match: 1 + match.argmax()),
    "InverseNegativePenalty": retrieval_score(
        retrieval.InverseNegativePenalty, lambda match: match.sum() / (len(match) - match[::-1].argmax())
    ),
    "RankingAUROC": retrieval_score(
        retrieval.RankingAUROC, lambda match: np.less.outer(match.nonzero()[0], (~match).nonzero()[0]).mean()
    ),
    "NearestCentroidAccuracy": MetricCase(
        retrieval.NearestCentroidAccuracy, class_embeddings, nearest_mean, bad=EMBEDDINGS_BAD
    ),
    "ClusterAccuracy": MetricCase(
        lambda: retrieval.ClusterAccuracy(kmeans_func=first_columns),
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
    "NormalizedMutualInfo": clustering(retrieval.NormalizedMutualInfo, scores.normalized_mutual_info_score),
    "AdjustedMutualInfo": clustering(retrieval.AdjustedMutualInfo, scores.adjusted_mutual_info_score, rtol=1e-10),
    "AdjustedRand": clustering(retrieval.AdjustedRand, scores.adjusted_rand_score),
    "Homogeneity": clustering(retrieval.Homogeneity, scores.homogeneity_score),
    "Completeness": clustering(retrieval.Completeness, scores.completeness_score),
    "VMeasure": clustering(retrieval.VMeasure, scores.v_measure_score),
    "FowlkesMallows": clustering(retrieval.FowlkesMallows, scores.fowlkes_mallows_score),
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
        return (function(retrieval.PositiveRanks(rank, relevant, candidates=relevant + 8), **options),)

    return FunctionCase(call, found_ranks, pad_ranks, compiles=True)


def label_pairs(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 4, (*lead, 30), generator=generator) for _ in range(2))


def partition_score(function: Callable[..., Tensor]) -> FunctionCase:
    return FunctionCase(lambda *pair: (function(*pair),), label_pairs)


FUNCTIONS = {
    "linear_sum_assignment": FunctionCase(solve, ragged_costs, pad_costs, unpad_solution, compiles=True),
    "cluster_accuracy": partition_score(retrieval.cluster_accuracy),
    "mutual_info": partition_score(retrieval.mutual_info),
    "expected_mutual_info": partition_score(retrieval.expected_mutual_info),
    "normalized_mutual_info": partition_score(retrieval.normalized_mutual_info),
    "adjusted_mutual_info": partition_score(retrieval.adjusted_mutual_info),
    "homogeneity": partition_score(retrieval.homogeneity),
    "completeness": partition_score(retrieval.completeness),
    "v_measure": partition_score(retrieval.v_measure),
    "adjusted_rand": partition_score(retrieval.adjusted_rand),
    "fowlkes_mallows": partition_score(retrieval.fowlkes_mallows),
    "precision": score(retrieval.precision, k=3),
    "r_precision": score(retrieval.r_precision),
    "average_precision_at_r": score(retrieval.average_precision_at_r),
    "average_precision": score(retrieval.average_precision),
    "recall": score(retrieval.recall, k=3),
    "hit_rate": score(retrieval.hit_rate, k=3),
    "reciprocal_rank": score(retrieval.reciprocal_rank, k=3),
    "ndcg": score(retrieval.ndcg, k=12),
    "first_rank": score(retrieval.first_rank),
    "inverse_negative_penalty": score(retrieval.inverse_negative_penalty),
    "ranking_auroc": score(retrieval.ranking_auroc),
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
