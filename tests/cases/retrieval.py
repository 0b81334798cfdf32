"""Rows of the retrieval domain."""

import math
from collections.abc import Callable

import numpy as np
import scipy.optimize
import sklearn.metrics as scores
import torch
from torch import Generator, Tensor

from tensormetrics import retrieval, uncertainty
from tensormetrics.core.metric.base import Metric
from tensormetrics.retrieval import functional

from .case import FunctionCase, LeftOut, MetricCase, Policy


def class_embeddings(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    """Sample overlapping classes, so that every score lies strictly between its bounds."""
    labels = torch.randint(0, 4, (items,), generator=generator)
    centers = torch.randn(4, 5, generator=generator)
    return centers[labels] + torch.randn(items, 5, generator=generator), labels


def clusters_by_first_columns(x: Tensor, n_clusters: int) -> Tensor:
    """Replace k-means by a rule that the oracle can repeat."""
    return x[:, :4].argmax(1)


def clusters_by_sign(x: Tensor, n_clusters: int) -> Tensor:
    return (x[:, 0] > 0).long()


def halved_embeddings(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    """Sample embeddings of two classes, five of six of them on their own side of the first column."""
    x, labels = class_embeddings(generator, items)
    is_upper = (labels > 1) ^ (torch.rand(items, generator=generator) < 1 / 6)
    x[:, 0] = torch.where(is_upper, x[:, 0].abs(), -x[:, 0].abs())
    return x, labels // 2


def default_accuracies(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
    """Compute the default metrics in order, by self-retrieval of one query at a time (Musgrave et al. 2020)."""
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


def retrieval_score(make: Callable[[], Metric], score: Callable[[np.ndarray], float | list[float]]) -> MetricCase:
    """Make a row of a score of rankings.

    `score` gets one query: for each of its neighbors, nearest first, whether it has the query's label.
    """

    def oracle(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
        scores = []
        for i in range(len(labels)):
            distance = ((embeddings - embeddings[i]) ** 2).sum(1)
            order = [j for j in sorted(range(len(labels)), key=lambda j: (distance[j], j)) if j != i]  # noqa: B023
            match = labels[order] == labels[i]
            if match.any():
                scores.append(score(match))
        return np.atleast_1d(np.mean(scores, 0)).tolist()

    return MetricCase(make, class_embeddings, oracle, bad=EMBEDDINGS_BAD, not_finite="raises")


def average_precision_of(match: np.ndarray, k: int | None = None) -> float:
    return sum(match[: j + 1].mean() for j in match[:k].nonzero()[0]) / match.sum()


def ndcg_of(match: np.ndarray, k: int | None = None) -> float:
    discount = 1 / np.log2(2 + np.arange(len(match)))
    return (match * discount)[:k].sum() / (np.sort(match)[::-1] * discount)[:k].sum()


def nearest_mean(embeddings: np.ndarray, labels: np.ndarray) -> list[float]:
    """Compute the fraction of items whose class has the nearest mean, without the item itself."""
    is_correct = []
    for i, label in enumerate(labels):
        others = np.arange(len(labels)) != i
        means = {c: embeddings[others & (labels == c)].mean(0) for c in np.unique(labels)}
        distance = {c: ((mean - embeddings[i]) ** 2).sum() for c, mean in means.items()}
        is_correct.append(min(distance, key=distance.get) == label)
    return [np.mean(is_correct)]


def pairs_by_distance(query, query_labels, reference=None, reference_labels=None):
    """Return the fractions (n, 2) of pairs of equal and of different labels within each distance, from 0 pairs on."""
    if reference is None:
        i, j = np.triu_indices(len(query), 1)
        difference, same = query[i] - query[j], query_labels[i] == query_labels[j]
    else:
        difference = (query[:, None] - reference).reshape(-1, query.shape[1])
        same = (query_labels[:, None] == reference_labels).ravel()
    distance = (difference.astype(np.float64) ** 2).sum(1)
    steps = np.unique(distance)
    return np.array([(0.0, 0.0)] + [[(distance[kind] <= step).mean() for kind in (same, ~same)] for step in steps])


def tar_at_far(far: tuple[float, ...], *inputs: np.ndarray) -> list[float]:
    curve = pairs_by_distance(*inputs)
    return [max(curve[curve[:, 1] <= max_far, 0]) for max_far in far]


def equal_error_rate(*inputs: np.ndarray) -> list[float]:
    curve = pairs_by_distance(*inputs)
    next_index = np.flatnonzero(curve.sum(1) >= 1)[0]
    (tar, far), (next_tar, next_far) = curve[next_index - 1], curve[next_index]
    fraction = (1 - tar - far) / (next_tar + next_far - tar - far)
    return [far + fraction * (next_far - far)]


def pairwise_auroc(*inputs: np.ndarray) -> list[float]:
    tar, far = pairs_by_distance(*inputs).T
    return [float(np.trapezoid(tar, far))]


def roc_points(*inputs: np.ndarray) -> list[float]:
    curve = pairs_by_distance(*inputs)
    distances = sorted(((a - b) ** 2).sum() for i, a in enumerate(inputs[0]) for b in inputs[0][:i])
    last = np.flatnonzero(curve[:, 1] <= 0.4)[-1]
    threshold = np.unique(distances)[last] ** 0.5
    return [curve[last, 1], curve[last, 0], threshold, *pairwise_auroc(*inputs), *equal_error_rate(*inputs)]


def matched_fraction(labels: np.ndarray, clusters: np.ndarray) -> float:
    counts = np.array([[np.sum((labels == a) & (clusters == b)) for b in range(4)] for a in range(4)])
    rows, columns = scipy.optimize.linear_sum_assignment(counts, maximize=True)
    return counts[rows, columns].sum() / len(labels)


def best_matching(labels: np.ndarray, clusters: np.ndarray) -> float:
    table = scores.cluster.contingency_matrix(labels, clusters)
    return table[scipy.optimize.linear_sum_assignment(table, maximize=True)].sum() / len(labels)


def partitions(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    """Sample labels, and clusters that agree on about half of them."""
    labels, noise = torch.randint(0, 2, (2, items), generator=generator)
    return labels, torch.where(torch.rand(items, generator=generator) < 0.5, labels, noise)


def clustering(make: Callable[[], Metric], oracle: Callable[..., float], rtol: float = 1e-12) -> MetricCase:
    integers = torch.zeros(3, dtype=torch.int64)
    bad = ((integers, integers[:2]), (integers, integers[None]), (integers, torch.full((3,), torch.nan)))
    return MetricCase(make, partitions, lambda *pair: [oracle(*pair)], rtol, bad=bad)


def ranked_documents(generator: Generator, items: int) -> tuple[Tensor, ...]:
    preds = torch.rand(items, generator=generator)
    return preds, torch.randint(0, 3, (items,), generator=generator), torch.arange(items) % 6


def run_means_oracle(preds: np.ndarray, target: np.ndarray, indexes: np.ndarray) -> list[float]:
    scores = []
    for query in np.unique(indexes):
        gains = target[indexes == query][np.argsort(-preds[indexes == query], kind="stable")]
        precisions = [(gains[: i + 1] > 0).mean() for i in np.flatnonzero(gains)]
        discounts = 1 / np.log2(np.arange(2, 12))
        ideal = (np.sort(gains)[::-1][:10] * discounts[: len(gains)]).sum()
        ndcg = (gains[:10] * discounts[: len(gains)]).sum() / ideal if ideal else 0.0
        scores.append((np.mean(precisions) if precisions else 0.0, ndcg))
    return np.mean(scores, 0).tolist()


def infinite_score_policy(position: int, value: float) -> Policy:
    if math.isnan(value):
        return "raises"
    return LeftOut("an infinite score is the first or the last", run_means)


def run_means(*rows: Tensor) -> tuple[Tensor, ...]:
    means = run_means_oracle(*(column.cpu().numpy() for column in rows))
    return tuple(torch.tensor(means, dtype=torch.float64, device=rows[0].device))


METRICS = {
    "RunMetric": MetricCase(
        retrieval.RunMetric,
        ranked_documents,
        run_means_oracle,
        not_finite=infinite_score_policy,
        bad=(
            (torch.rand(3), torch.ones(3).long(), torch.zeros(3)),
            (torch.rand(3), torch.ones(2).long(), torch.zeros(3).long()),
        ),
    ),
    "AccuracyCalculator": MetricCase(
        lambda: retrieval.AccuracyCalculator(kmeans_func=clusters_by_first_columns),
        class_embeddings,
        default_accuracies,
        rtol=1e-11,
        bad=EMBEDDINGS_BAD,
        not_finite="raises",
    ),
    "PrecisionAtK": retrieval_score(lambda: retrieval.PrecisionAtK(5), lambda match: match[:5].mean()),
    "RPrecision": retrieval_score(retrieval.RPrecision, lambda match: match[: match.sum()].mean()),
    "RecallAtK": retrieval_score(lambda: retrieval.RecallAtK(5), lambda match: match[:5].sum() / match.sum()),
    "HitRate": retrieval_score(lambda: retrieval.HitRate((3, 1)), lambda match: [match[:3].any(), match[0]]),
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
        retrieval.NearestCentroidAccuracy, class_embeddings, nearest_mean, bad=EMBEDDINGS_BAD, not_finite="raises"
    ),
    "EqualErrorRate": MetricCase(
        retrieval.EqualErrorRate, class_embeddings, equal_error_rate, bad=EMBEDDINGS_BAD, not_finite="raises"
    ),
    "TARAtFAR": MetricCase(
        lambda: retrieval.TARAtFAR(0.2),
        class_embeddings,
        lambda *inputs: tar_at_far((0.2,), *inputs),
        bad=EMBEDDINGS_BAD,
        not_finite="raises",
    ),
    "PairwiseAUROC": MetricCase(
        retrieval.PairwiseAUROC, class_embeddings, pairwise_auroc, bad=EMBEDDINGS_BAD, not_finite="raises"
    ),
    "PairwiseROC": MetricCase(
        lambda: retrieval.PairwiseROC((0.4,)),
        class_embeddings,
        roc_points,
        bad=EMBEDDINGS_BAD,
        not_finite="raises",
    ),
    "ClusterAccuracy": clustering(retrieval.ClusterAccuracy, best_matching),
    "EmbeddingClusterAccuracy": MetricCase(
        lambda: retrieval.EmbeddingClusterAccuracy(kmeans_func=clusters_by_sign),
        halved_embeddings,
        lambda embeddings, labels: [matched_fraction(labels, embeddings[:, 0] > 0)],
        bad=EMBEDDINGS_BAD,
        not_finite="raises",
    ),
    "NormalizedMutualInfo": clustering(retrieval.NormalizedMutualInfo, scores.normalized_mutual_info_score),
    "AdjustedMutualInfo": clustering(retrieval.AdjustedMutualInfo, scores.adjusted_mutual_info_score, rtol=1e-10),
    "AdjustedRand": clustering(retrieval.AdjustedRand, scores.adjusted_rand_score),
    "Homogeneity": clustering(retrieval.Homogeneity, scores.homogeneity_score),
    "Completeness": clustering(retrieval.Completeness, scores.completeness_score),
    "VMeasure": clustering(retrieval.VMeasure, scores.v_measure_score),
    "FowlkesMallows": clustering(retrieval.FowlkesMallows, scores.fowlkes_mallows_score),
}


def verification(function: Callable[..., Tensor | tuple], **options: object) -> FunctionCase:
    def call(*inputs: Tensor) -> tuple[Tensor, ...]:
        result = function(*inputs, **options)
        return tuple(result) if isinstance(result, tuple | uncertainty.Estimate) else (result,)

    return FunctionCase(call, query_and_references, not_finite="raises")


def random_ranks(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    match = torch.rand(*batch_shape, 7, 10, generator=generator) < 0.4
    deeper = torch.randint(
        0, 3, (*batch_shape, 7), generator=generator
    )  # relevant references that are not in the ranking
    return torch.arange(1, 11) * match, match.sum(-1) + deeper


def pad_ranks(garbage: float, rank: Tensor, relevant: Tensor) -> tuple[Tensor, ...]:
    return torch.nn.functional.pad(rank, (3, 4)), relevant


def score_case(function: Callable[..., Tensor], **options: int) -> FunctionCase:
    def call(rank: Tensor, relevant: Tensor) -> tuple[Tensor, ...]:
        return (function(functional.PositiveRanks(rank, relevant, candidates=relevant + 8), **options),)

    return FunctionCase(call, random_ranks, pad_ranks, compiles=True)


def label_pairs(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 4, (*batch_shape, 30), generator=generator) for _ in range(2))


def partition_score(function: Callable[..., Tensor]) -> FunctionCase:
    return FunctionCase(lambda *pair: (function(*pair),), label_pairs)


def query_and_references(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    labels = [torch.randint(0, 4, (*batch_shape, items), generator=generator) for items in (7, 20)]
    rows = [torch.randn(*batch_shape, items, 3, generator=generator) for items in (7, 20)]
    return rows[0], labels[0], rows[1], labels[1]


def masked_query_and_references(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    masks = (
        torch.rand(*batch_shape, 7, generator=generator) < 0.8,
        torch.rand(*batch_shape, 20, generator=generator) < 0.8,
    )
    return *query_and_references(generator, batch_shape), *masks


def pad_queries_and_references(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    query, query_labels, reference, reference_labels, *masks = arguments
    pad = torch.nn.functional.pad
    rows = (pad(tensor, (0, 0, 0, 3), value=garbage) for tensor in (query, reference))
    labels = (pad(tensor, (0, 3), value=2) for tensor in (query_labels, reference_labels))
    return *(tensor for pair in zip(rows, labels, strict=True) for tensor in pair), *(
        pad(mask, (0, 3)) for mask in masks
    )


def first_queries(results: tuple[Tensor, ...], query: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    return tuple(result[:, : query.shape[-2]] for result in results)


def nearest_neighbors(query, query_labels, reference, reference_labels, query_mask, reference_mask):
    masks = {"query_mask": query_mask, "reference_mask": reference_mask}
    return retrieval.TorchKNN()(query, 4, reference, False, **masks)


def ranks_of_masked(query, query_labels, reference, reference_labels, query_mask, reference_mask):
    masks = {"query_mask": query_mask, "reference_mask": reference_mask}
    ranks = functional.positive_ranks(query, query_labels, reference, reference_labels, **masks)
    return functional.average_precision(ranks), ranks.rank.sum(-1), ranks.relevant, ranks.candidates


def neighbors_of_finite(query, query_labels, reference, reference_labels, query_mask, reference_mask):
    masks = [
        mask & embeddings.isfinite().all(-1) for mask, embeddings in ((query_mask, query), (reference_mask, reference))
    ]
    return nearest_neighbors(query.nan_to_num(), query_labels, reference.nan_to_num(), reference_labels, *masks)


def ranks_of_finite(query, query_labels, reference, reference_labels, query_mask, reference_mask):
    """Rank without the non-finite rows, which still count as relevant references and candidates."""
    finite = [embeddings.isfinite().all(-1) for embeddings in (query, reference)]
    inputs = query.nan_to_num(), query_labels, reference.nan_to_num(), reference_labels
    masks = {"query_mask": query_mask & finite[0], "reference_mask": reference_mask & finite[1]}
    finite_ranks = functional.positive_ranks(*inputs, **masks)
    same_label = (query_labels[..., None] == reference_labels[..., None, :]) & reference_mask[..., None, :]
    relevant = (same_label & query_mask[..., None]).sum(-1)
    candidates = reference_mask.sum(-1, keepdim=True) * query_mask
    ranks = finite_ranks._replace(relevant=relevant)
    return functional.average_precision(ranks), ranks.rank.sum(-1), relevant, candidates


def centroids_of_finite(query, query_labels, reference, reference_labels):
    return (
        torch.stack(
            [
                functional.nearest_centroid(*of_query, rows[finite], labels[finite])
                for *of_query, rows, labels, finite in zip(
                    query, query_labels, reference, reference_labels, reference.isfinite().all(-1), strict=True
                )
            ]
        ),
    )


def random_neighbors(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Sample neighbors of 7 queries in 20 references, -1 from a random position on; labels; relevant counts."""
    indices = torch.rand(*batch_shape, 7, 20, generator=generator).argsort(-1)[..., :9]
    num_neighbors = torch.randint(3, 10, (*batch_shape, 7, 1), generator=generator)
    indices = torch.where(torch.arange(9) < num_neighbors, indices, -1)
    _, query_labels, _, reference_labels = query_and_references(generator, batch_shape)
    return indices, query_labels, reference_labels, functional.count_relevant(query_labels, reference_labels)


def ranks_from_neighbors(*arguments: Tensor) -> tuple[Tensor, ...]:
    ranks = functional.ranks_of_neighbors(*arguments)
    return functional.average_precision(ranks), ranks.rank.sum(-1), ranks.relevant


def table_sums(labels: Tensor, clusters: Tensor) -> tuple[Tensor, ...]:
    """Compute sums of a contingency table that do not depend on the padding of its batch."""
    table = functional.contingency(labels, clusters)
    return table.count.square().sum(-1), table.row_size.square().sum(-1), table.col_size.square().sum(-1)


FUNCTIONS = {
    "contingency": FunctionCase(table_sums, label_pairs),
    "count_relevant": FunctionCase(
        lambda a, b: (functional.count_relevant(a, b),),
        lambda g, batch_shape: query_and_references(g, batch_shape)[1::2],
    ),
    "ranks_of_neighbors": FunctionCase(ranks_from_neighbors, random_neighbors),
    "TorchKNN": FunctionCase(
        nearest_neighbors,
        masked_query_and_references,
        pad_queries_and_references,
        first_queries,
        not_finite=LeftOut("such a row has no neighbors and is none of another row", neighbors_of_finite),
    ),
    "positive_ranks": FunctionCase(
        ranks_of_masked,
        masked_query_and_references,
        pad_queries_and_references,
        first_queries,
        not_finite=LeftOut("such a row is not ranked and has no ranking, but counts as relevant", ranks_of_finite),
    ),
    "nearest_centroid": FunctionCase(
        lambda *inputs: (functional.nearest_centroid(*inputs),),
        query_and_references,
        not_finite=lambda position, value: (
            LeftOut("a reference is left out of its mean", centroids_of_finite) if position == 2 else "nan"
        ),
    ),
    "equal_error_rate": verification(functional.equal_error_rate),
    "tar_at_far": verification(functional.tar_at_far, far=0.2),
    "pairwise_auroc": verification(functional.pairwise_auroc),
    "pairwise_roc": verification(functional.pairwise_roc, far=(0.05, 0.4)),
    "cluster_accuracy": partition_score(functional.cluster_accuracy),
    "mutual_info": partition_score(functional.mutual_info),
    "expected_mutual_info": partition_score(functional.expected_mutual_info),
    "normalized_mutual_info": partition_score(functional.normalized_mutual_info),
    "adjusted_mutual_info": partition_score(functional.adjusted_mutual_info),
    "homogeneity": partition_score(functional.homogeneity),
    "completeness": partition_score(functional.completeness),
    "v_measure": partition_score(functional.v_measure),
    "adjusted_rand": partition_score(functional.adjusted_rand),
    "fowlkes_mallows": partition_score(functional.fowlkes_mallows),
    "precision": score_case(functional.precision, k=3),
    "r_precision": score_case(functional.r_precision),
    "average_precision_at_r": score_case(functional.average_precision_at_r),
    "average_precision": score_case(functional.average_precision),
    "recall": score_case(functional.recall, k=3),
    "cmc": score_case(functional.cmc, k=3),
    "hit_rate": score_case(functional.hit_rate, k=3),
    "reciprocal_rank": score_case(functional.reciprocal_rank, k=3),
    "ndcg": score_case(functional.ndcg, k=12),
    "first_rank": score_case(functional.first_rank),
    "inverse_negative_penalty": score_case(functional.inverse_negative_penalty),
    "ranking_auroc": score_case(functional.ranking_auroc),
}
