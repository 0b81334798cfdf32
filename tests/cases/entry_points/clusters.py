"""Numbers of clusterings against labels, and of all pairs of embeddings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import retrieval, structured, uncertainty

from .quantity import Number, Way, fed
from .retrieval import EMBEDDINGS, of_metric

Labels = tuple[Tensor, Tensor]


def partitions(items: int, classes: int, clusters: int) -> Callable[[Generator], Labels]:
    def made(generator: Generator) -> Labels:
        labels = torch.randint(classes, (items,), generator=generator)
        return labels, torch.randint(clusters, (items,), generator=generator)

    return made


def agreeing(generator: Generator) -> Labels:
    labels = torch.randint(4, (30,), generator=generator)
    return labels, 7 - 2 * labels


CLUSTERINGS = {
    "ordinary": partitions(50, 5, 4),
    "equal but for names": agreeing,
    "one class": partitions(20, 1, 3),
    "one cluster": partitions(20, 3, 1),
    "one of both": partitions(20, 1, 1),
    "single items": lambda _: (torch.arange(9), torch.arange(9)),
    "one item": partitions(1, 1, 1),
    "no items": partitions(0, 1, 1),
    "bytes": lambda generator: tuple(side.to(torch.int8) for side in partitions(50, 5, 4)(generator)),
    "other lengths": lambda generator: (torch.zeros(4).long(), torch.zeros(5).long()),
}

NO_QUERY = {"no items": "every metric of no query is NaN; the others answer as scikit-learn does"}


def given_clusters(clusters: Tensor) -> Callable[..., Tensor]:
    return lambda x, n_clusters: clusters


def of_calculator(name: str) -> Way:
    def value(labels: Tensor, clusters: Tensor) -> Any:
        calculator = retrieval.AccuracyCalculator([name], kmeans_func=given_clusters(clusters))
        return calculator.get_accuracy(torch.zeros(len(clusters), 1), labels)[name]

    return value


def of_clusters(metric: str, function: str, calculator: str, more: dict[str, Way] | None = None) -> Number:
    score, kind = getattr(retrieval, function), getattr(retrieval, metric)
    ways = {
        f"retrieval.{metric}": lambda *data: fed(kind(), *data).compute(),
        f"retrieval.{metric}, forward": lambda *data: kind()(*data),
        f"retrieval.{function}": score,
        f"retrieval.contingency, {function}": lambda *data: score(retrieval.contingency(*data)),
        f"retrieval.{function}, batch": lambda labels, clusters: score(labels[None], clusters[None]),
        f"retrieval.AccuracyCalculator, {calculator}": of_calculator(calculator),
    }
    ways |= more or {}
    calculators = [way for way in ways if way.startswith("retrieval.AccuracyCalculator")]
    return Number(CLUSTERINGS, ways, without=dict.fromkeys(calculators, NO_QUERY))


def of_documents(labels: Tensor, clusters: Tensor) -> Tensor:
    metric = structured.ClusterAccuracy()
    metric.update(clusters[None], labels[None])
    return metric.compute()["accuracy"]


def of_embeddings(labels: Tensor, clusters: Tensor) -> Tensor:
    metric = retrieval.EmbeddingClusterAccuracy(kmeans_func=given_clusters(clusters))
    return fed(metric, torch.zeros(len(clusters), 1), labels).compute()


CLUSTERED = {
    "AMI": of_clusters("AdjustedMutualInfo", "adjusted_mutual_info", "AMI"),
    "NMI": of_clusters(
        "NormalizedMutualInfo",
        "normalized_mutual_info",
        "NMI",
        {
            "retrieval.VMeasure": lambda *data: fed(retrieval.VMeasure(), *data).compute(),
            "retrieval.v_measure": retrieval.v_measure,
            "retrieval.AccuracyCalculator, v_measure": of_calculator("v_measure"),
        },
    ),
    "ARI": of_clusters("AdjustedRand", "adjusted_rand", "ARI"),
    "FMI": of_clusters("FowlkesMallows", "fowlkes_mallows", "FMI"),
    "homogeneity": of_clusters(
        "Homogeneity",
        "homogeneity",
        "homogeneity",
        {"retrieval.completeness, of sides turned": lambda a, b: retrieval.completeness(b, a)},
    ),
    "completeness": of_clusters("Completeness", "completeness", "completeness"),
    "cluster accuracy": of_clusters(
        "ClusterAccuracy",
        "cluster_accuracy",
        "cluster_accuracy",
        {
            "retrieval.EmbeddingClusterAccuracy": of_embeddings,
            "structured.ClusterAccuracy": of_documents,
        },
    ),
}


def of_pairs(x: Tensor, labels: Tensor) -> Tensor:
    """The area under the curve of distances, pair by pair."""
    if len(x) != len(labels) or not x.isfinite().all():
        raise ValueError("x: got other rows than labels, or not finite ones")
    i, j = torch.triu_indices(len(x), len(x), 1)
    distance = (x[i].double() - x[j].double()).square().sum(1)
    return uncertainty.auroc(-distance, (labels[i] == labels[j]).long())


def of_verification(make: Callable[[], Any], name: str, function: str, **options: Any) -> dict[str, Way]:
    return {
        **of_metric(make, name),
        f"retrieval.{function}": lambda *data: getattr(retrieval, function)(*data, **options),
        f"retrieval.{function}, batch": lambda x, labels: getattr(retrieval, function)(
            x[None], labels[None], **options
        ),
    }


NO_ROWS = dict.fromkeys(("one row", "no rows", "labels of another length"), "an update of no rows")
PAIRS = {
    "equal error rate": Number(
        EMBEDDINGS,
        of_verification(retrieval.EqualErrorRate, "EqualErrorRate", "equal_error_rate"),
        without={"retrieval.EqualErrorRate, in two updates": NO_ROWS},
    ),
    "TAR at FAR 0.2": Number(
        EMBEDDINGS,
        {
            **of_verification(lambda: retrieval.TARAtFAR(0.2), "TARAtFAR", "tar_at_far", far=0.2),
            "retrieval.PairwiseROC": lambda *data: fed(retrieval.PairwiseROC((0.4, 0.2)), *data).compute().tar[1],
            "retrieval.pairwise_roc": lambda *data: retrieval.pairwise_roc(*data, far=(0.4, 0.2)).tar[1],
        },
        without={"retrieval.TARAtFAR, in two updates": NO_ROWS},
    ),
    "AUROC of pairs": Number(
        EMBEDDINGS,
        {
            **of_verification(retrieval.PairwiseAUROC, "PairwiseAUROC", "pairwise_auroc"),
            "uncertainty.auroc, of pairs": of_pairs,
        },
        without={"retrieval.PairwiseAUROC, in two updates": NO_ROWS},
    ),
}
NUMBERS = CLUSTERED | PAIRS
