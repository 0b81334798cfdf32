"""Quantities of clusterings against labels, and of all pairs of embeddings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import retrieval, structured, uncertainty

from .quantity import EntryPoint, Quantity, updated
from .retrieval import EMBEDDINGS, metric_entry_points

Labels = tuple[Tensor, Tensor]


def partitions(items: int, classes: int, clusters: int) -> Callable[[Generator], Labels]:
    def sample(generator: Generator) -> Labels:
        labels = torch.randint(classes, (items,), generator=generator)
        return labels, torch.randint(clusters, (items,), generator=generator)

    return sample


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
    "bytes": lambda generator: tuple(tensor.to(torch.int8) for tensor in partitions(50, 5, 4)(generator)),
    "other lengths": lambda generator: (torch.zeros(4).long(), torch.zeros(5).long()),
}

NO_QUERY = {"no items": "every metric of no query is NaN; the others return the values of scikit-learn"}


def fixed_clusters(clusters: Tensor) -> Callable[..., Tensor]:
    return lambda x, n_clusters: clusters


def calculator_entry_point(name: str) -> EntryPoint:
    def accuracy(labels: Tensor, clusters: Tensor) -> Any:
        calculator = retrieval.AccuracyCalculator([name], kmeans_func=fixed_clusters(clusters))
        return calculator.get_accuracy(torch.zeros(len(clusters), 1), labels)[name]

    return accuracy


def clustering_quantity(
    metric: str, function: str, calculator: str, more: dict[str, EntryPoint] | None = None
) -> Quantity:
    score, metric_class = getattr(retrieval.functional, function), getattr(retrieval, metric)
    entry_points = {
        f"retrieval.{metric}": lambda *data: updated(metric_class(), *data).compute(),
        f"retrieval.{function}": score,
        f"retrieval.contingency, {function}": lambda *data: score(retrieval.functional.contingency(*data)),
        f"retrieval.AccuracyCalculator, {calculator}": calculator_entry_point(calculator),
    }
    entry_points |= more or {}
    calculators = [name for name in entry_points if name.startswith("retrieval.AccuracyCalculator")]
    return Quantity(CLUSTERINGS, entry_points, skip_reasons=dict.fromkeys(calculators, NO_QUERY))


def cluster_accuracy_of_documents(labels: Tensor, clusters: Tensor) -> Tensor:
    metric = structured.ClusterMatchScores()
    metric.update(clusters[None], labels[None])
    return metric.compute()["accuracy"]


def cluster_accuracy_of_embeddings(labels: Tensor, clusters: Tensor) -> Tensor:
    metric = retrieval.EmbeddingClusterAccuracy(kmeans_func=fixed_clusters(clusters))
    return updated(metric, torch.zeros(len(clusters), 1), labels).compute()


CLUSTERED = {
    "AMI": clustering_quantity("AdjustedMutualInfo", "adjusted_mutual_info", "AMI"),
    "NMI": clustering_quantity(
        "NormalizedMutualInfo",
        "normalized_mutual_info",
        "NMI",
        {
            "retrieval.VMeasure": lambda *data: updated(retrieval.VMeasure(), *data).compute(),
            "retrieval.v_measure": retrieval.functional.v_measure,
            "retrieval.AccuracyCalculator, v_measure": calculator_entry_point("v_measure"),
        },
    ),
    "ARI": clustering_quantity("AdjustedRand", "adjusted_rand", "ARI"),
    "FMI": clustering_quantity("FowlkesMallows", "fowlkes_mallows", "FMI"),
    "homogeneity": clustering_quantity(
        "Homogeneity",
        "homogeneity",
        "homogeneity",
        {"retrieval.completeness, exchanged inputs": lambda a, b: retrieval.functional.completeness(b, a)},
    ),
    "completeness": clustering_quantity("Completeness", "completeness", "completeness"),
    "cluster accuracy": clustering_quantity(
        "ClusterAccuracy",
        "cluster_accuracy",
        "cluster_accuracy",
        {
            "retrieval.EmbeddingClusterAccuracy": cluster_accuracy_of_embeddings,
            "structured.ClusterMatchScores": cluster_accuracy_of_documents,
        },
    ),
}


def auroc_by_pairs(x: Tensor, labels: Tensor) -> Tensor:
    """Compute the area under the ROC curve of the distances of all pairs."""
    if len(x) != len(labels) or not x.isfinite().all():
        raise ValueError("x: got other rows than labels, or not finite ones")
    i, j = torch.triu_indices(len(x), len(x), 1)
    distance = (x[i].double() - x[j].double()).square().sum(1)
    return uncertainty.functional.binary_auroc(-distance, (labels[i] == labels[j]).long())


def verification_entry_points(
    make: Callable[[], Any], name: str, function: str, **options: Any
) -> dict[str, EntryPoint]:
    return {
        **metric_entry_points(make, name),
        f"retrieval.{function}": lambda *data: getattr(retrieval.functional, function)(*data, **options),
    }


PAIRS = {
    "equal error rate": Quantity(
        EMBEDDINGS,
        verification_entry_points(retrieval.EqualErrorRate, "EqualErrorRate", "equal_error_rate"),
    ),
    "TAR at FAR 0.2": Quantity(
        EMBEDDINGS,
        {
            **verification_entry_points(lambda: retrieval.TARAtFAR(0.2), "TARAtFAR", "tar_at_far", far=0.2),
            "retrieval.PairwiseROC": lambda *data: updated(retrieval.PairwiseROC((0.4, 0.2)), *data).compute().tar[1],
            "retrieval.pairwise_roc": lambda *data: retrieval.functional.pairwise_roc(*data, far=(0.4, 0.2)).tar[1],
        },
    ),
    "AUROC of pairs": Quantity(
        EMBEDDINGS,
        {
            **verification_entry_points(retrieval.PairwiseAUROC, "PairwiseAUROC", "pairwise_auroc"),
            "uncertainty.binary_auroc, of pairs": auroc_by_pairs,
        },
    ),
}
QUANTITIES = CLUSTERED | PAIRS
