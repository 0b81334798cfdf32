"""Quantities of embeddings with labels."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import retrieval, structured, uncertainty

from .quantity import EntryPoint, Quantity, computed, estimated, mean, updated

Rows = tuple[Tensor, Tensor]


def rows(items: int = 24, dtype: torch.dtype = torch.float32, classes: int = 5) -> Callable[[Generator], Rows]:
    def sample(generator: Generator) -> Rows:
        x = 4 * torch.randn(items, 3, generator=generator)
        return x.to(dtype), torch.randint(classes, (items,), generator=generator)

    return sample


def tied(generator: Generator) -> Rows:
    return torch.randint(3, (24, 2), generator=generator).float(), torch.randint(4, (24,), generator=generator)


def half_lone(generator: Generator) -> Rows:
    x, labels = rows()(generator)
    return x, torch.where(torch.arange(24) % 2 == 0, labels, torch.arange(24) + 10)


def all_lone(generator: Generator) -> Rows:
    return torch.randn(6, 3, generator=generator), torch.arange(6)


def another_length(generator: Generator) -> Rows:
    x, labels = rows()(generator)
    return x, labels[:-1]


def infinite(generator: Generator) -> Rows:
    x, labels = rows()(generator)
    return x.index_fill(0, torch.tensor([3]), torch.inf), labels


EMBEDDINGS = {
    "ordinary": rows(),
    "ties": tied,
    "one class": rows(classes=1),
    "lone queries": half_lone,
    "only lone queries": all_lone,
    "integers": rows(dtype=torch.int64),
    "half": rows(dtype=torch.float16),
    "bytes": rows(dtype=torch.int8),
    "two rows": rows(2, classes=1),
    "one row": rows(1),
    "no rows": rows(0),
    "labels of another length": another_length,
    "infinite": infinite,
}
USUAL_DATA = (
    "ordinary",
    "ties",
    "lone queries",
    "only lone queries",
    "one row",
    "half",
    "labels of another length",
    "infinite",
)
COMPARED_ON_ALL_DATA = "PrecisionAtK", "AveragePrecision", "RankingAUROC"  # metrics
NO_QUERY = {
    **dict.fromkeys(
        ("only lone queries", "one row", "no rows"), "no query is judged, which is an error of `evaluate_run`"
    ),
    **dict.fromkeys(("labels of another length", "infinite"), "takes lists of documents, not embeddings"),
}
WITHOUT_RANKS = {"infinite": "such a row has no ranks, as the functions of ranks document"}
NOT_CHECKED = WITHOUT_RANKS | {"labels of another length": "takes neighbors, not embeddings"}


def ranked_lists(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # x: (N, D)  labels: (N,)  ->  (N, N - 1) other rows, nearest first; (N, N - 1) bool, relevant; (N,) counts
    order = retrieval.TorchKNN()(x, max(len(x) - 1, 1), x, True)[1]
    relevant = (labels[order] == labels[:, None]) & (order >= 0)
    return order, relevant, relevant.sum(1)


def run_entry_point(measure: str) -> EntryPoint:
    """Make an entry point that evaluates the lists in order of distance as a run."""

    def measure_of_run(x: Tensor, labels: Tensor) -> float:
        order, relevant, num_relevant = ranked_lists(x, labels)
        run = {
            f"q{i}": {f"d{j}": -float(position) for position, j in enumerate(order[i].tolist())} for i in range(len(x))
        }
        qrels = {
            f"q{i}": {
                f"d{j}": int(is_relevant)
                for j, is_relevant in zip(order[i].tolist(), relevant[i].tolist(), strict=True)
            }
            for i in num_relevant.nonzero()[:, 0].tolist()
        }
        return retrieval.evaluate_run(run, qrels, [measure]).summary()[measure]

    return measure_of_run


def run_metric_entry_point(measure: str) -> EntryPoint:
    """Make an entry point that updates a metric with the pairs of query and document."""

    def measure_of_metric(x: Tensor, labels: Tensor) -> Tensor:
        order, relevant, _ = ranked_lists(x, labels)
        if not len(order) or not order.shape[1]:
            raise ValueError("no query is judged")
        scores = -torch.arange(order.shape[1]).float().expand(order.shape)
        metric = retrieval.RunMetric(measure, empty_target_action="skip")
        queries = torch.arange(len(x))[:, None].expand(order.shape)
        metric.update(scores.flatten(), relevant.long().flatten(), queries.flatten())
        return metric.compute()[measure]

    return measure_of_metric


def ranking_entry_point(score: str) -> EntryPoint:
    """Make an entry point that compares each query's ranking with its relevant rows."""

    def score_of_rankings(x: Tensor, labels: Tensor) -> Tensor:
        order, relevant, num_relevant = ranked_lists(x, labels)
        name, _, k = score.partition("@")
        metric = structured.RankingScores([int(k or 1)], [name], zero_division=torch.nan)
        relevant_first = order.gather(1, (~relevant).int().argsort(dim=1, stable=True))
        is_judged = num_relevant > 0
        metric.update(order[is_judged], relevant_first[is_judged], n_ref=num_relevant[is_judged])
        return metric.compute()[score]

    return score_of_rankings


def calculator_entry_points(name: str) -> dict[str, EntryPoint]:
    def calculator() -> retrieval.AccuracyCalculator:
        return retrieval.AccuracyCalculator([name])

    return {
        f"retrieval.AccuracyCalculator, get_accuracy of {name}": lambda *data: calculator().get_accuracy(*data)[name],
        f"retrieval.AccuracyCalculator, a sample of all queries, {name}": lambda *data: calculator().get_accuracy(
            *data, sample_queries=1_000
        )[name],
        f"retrieval.AccuracyCalculator, compute of {name}": lambda *data: updated(calculator(), *data).compute()[name],
        f"retrieval.AccuracyCalculator, levels of {name}": lambda x, labels: retrieval.AccuracyCalculator(
            [name], label_levels=True
        ).get_accuracy(x, labels[:, None])[f"{name}_level0"],
    }


def calculator_interval(name: str) -> EntryPoint:
    return estimated(lambda: retrieval.AccuracyCalculator([name]), name, replicates=50)


def metric_entry_points(make: Callable[..., Any], name: str) -> dict[str, EntryPoint]:
    def in_two(x: Tensor, labels: Tensor) -> Any:
        return updated(updated(make(), x[:1], labels[:1]), x[1:], labels[1:]).compute()

    return {
        f"retrieval.{name}": lambda *data: updated(make(), *data).compute(),
        f"retrieval.{name}, in two updates": in_two,
    }


def function_entry_points(
    name: str, statistic: Callable[[Tensor], Tensor] = mean, **options: Any
) -> dict[str, EntryPoint]:
    function = getattr(retrieval.functional, name)

    def score_of_neighbors(x: Tensor, labels: Tensor) -> Tensor:
        order, _, num_relevant = ranked_lists(x, labels)
        ranks = retrieval.functional.ranks_of_neighbors(order, labels, labels, num_relevant)
        return statistic(function(ranks._replace(candidates=torch.full_like(num_relevant, len(x) - 1)), **options))

    return {
        f"retrieval.{name}": lambda *data: statistic(function(retrieval.functional.positive_ranks(*data), **options)),
        f"retrieval.ranks_of_neighbors, {name}": score_of_neighbors,
    }


def rank_quantity(
    metric: str,
    arguments: tuple[Any, ...],
    function: str,
    calculator: str,
    trec: str = "",
    ranking: str = "",
    statistic: Callable[[Tensor], Tensor] = mean,
    more: dict[str, EntryPoint] | None = None,
    has_interval: bool = True,
    **options: Any,
) -> Quantity:
    def make(**options_of_metric: Any) -> Any:
        return getattr(retrieval, metric)(*arguments, **options_of_metric)

    functions = function_entry_points(function, statistic, **options)
    lists = (
        {
            f"retrieval.evaluate_run, {trec}": run_entry_point(trec),
            f"retrieval.RunMetric, {trec}": run_metric_entry_point(trec),
        }
        if trec
        else {}
    )
    lists |= {f"structured.RankingScores, {ranking}": ranking_entry_point(ranking)} if ranking else {}
    entry_points = metric_entry_points(make, metric) | functions | calculator_entry_points(calculator) | (more or {})
    entry_points[f"retrieval.{metric}, of each query"] = lambda *data: statistic(
        updated(make(average="none"), *data).compute()
    )
    intervals = {
        f"retrieval.{metric}": estimated(make, replicates=50),
        "uncertainty.interval": lambda *data: uncertainty.interval(updated(make(), *data), replicates=50),
        "retrieval.AccuracyCalculator": calculator_interval(calculator),
    }
    return Quantity(
        EMBEDDINGS if metric in COMPARED_ON_ALL_DATA else {name: EMBEDDINGS[name] for name in USUAL_DATA},
        entry_points | lists,
        intervals if has_interval else {},
        {
            **dict.fromkeys(lists, NO_QUERY),
            **dict.fromkeys(functions, WITHOUT_RANKS),
            f"retrieval.ranks_of_neighbors, {function}": NOT_CHECKED,
            **dict.fromkeys(more or (), NO_QUERY),
        },
    )


def mean_over_queries(score: Callable[[Tensor, Tensor], Tensor]) -> EntryPoint:
    """Make an entry point that averages a score of one list over the queries with relevant references.

    The items of a list get their negative positions as scores, which have no ties.
    """

    def mean_score(x: Tensor, labels: Tensor) -> Tensor:
        _, relevant, num_relevant = ranked_lists(x, labels)
        scores = -torch.arange(relevant.shape[1]).double().expand(relevant.shape)
        return mean(score(scores, relevant.long())[num_relevant > 0])

    return mean_score


def median(scores: Tensor) -> Tensor:
    return torch.nanquantile(scores, 0.5) if scores.numel() else scores.sum() / 0


HIT_AT_1 = {
    **metric_entry_points(lambda: retrieval.HitRate(1), "HitRate"),
    "retrieval.HitRate, of several k": computed(lambda: retrieval.HitRate((3, 1)), "hit_rate_at_1"),
    **function_entry_points("hit_rate", k=1),
    "retrieval.cmc": lambda *data: mean(
        retrieval.functional.cmc(retrieval.functional.positive_ranks(*data), 3)[..., 0]
    ),
    **calculator_entry_points("hit_rate_at_1"),
    **calculator_entry_points("ndcg_at_1"),
    "retrieval.evaluate_run, success_1": run_entry_point("success_1"),
    "structured.RankingScores, hit@1": ranking_entry_point("hit@1"),
}
RANKS = {
    "precision@1": rank_quantity("PrecisionAtK", (1,), "precision", "precision_at_1", "P_1", "precision@1", k=1),
    "precision@5": rank_quantity("PrecisionAtK", (5,), "precision", "precision_at_5", "P_5", "precision@5", k=5),
    "recall@5": rank_quantity("RecallAtK", (5,), "recall", "recall_at_5", "recall_5", "recall@5", k=5),
    "hit rate@5": rank_quantity("HitRate", (5,), "hit_rate", "hit_rate_at_5", "success_5", "hit@5", k=5),
    "R-precision": rank_quantity("RPrecision", (), "r_precision", "r_precision", "Rprec", "r_precision"),
    "MAP": rank_quantity(
        "AveragePrecision",
        (),
        "average_precision",
        "mean_average_precision",
        "map",
        "ap",
        more={
            "uncertainty.binary_average_precision, of queries": mean_over_queries(
                uncertainty.functional.binary_average_precision
            )
        },
    ),
    "MAP@5": rank_quantity(
        "AveragePrecision", (5,), "average_precision", "mean_average_precision_at_5", "map_cut_5", "ap@5", k=5
    ),
    "MAP@R": rank_quantity("AveragePrecisionAtR", (), "average_precision_at_r", "mean_average_precision_at_r"),
    "MRR": rank_quantity("ReciprocalRank", (), "reciprocal_rank", "mean_reciprocal_rank", "recip_rank", "rr"),
    "nDCG": rank_quantity("NDCG", (), "ndcg", "ndcg", "ndcg", "ndcg"),
    "nDCG@5": rank_quantity("NDCG", (5,), "ndcg", "ndcg_at_5", "ndcg_cut_5", "ndcg@5", k=5),
    "mean rank": rank_quantity("FirstRank", ("mean",), "first_rank", "mean_rank"),
    "median rank": rank_quantity("FirstRank", (), "first_rank", "median_rank", statistic=median, has_interval=False),
    "mINP": rank_quantity("InverseNegativePenalty", (), "inverse_negative_penalty", "mean_inp"),
    "AUROC of rankings": rank_quantity(
        "RankingAUROC",
        (),
        "ranking_auroc",
        "mean_auroc",
        more={"uncertainty.binary_auroc, of queries": mean_over_queries(uncertainty.functional.binary_auroc)},
    ),
    "precision@1 as hit rate": Quantity(
        EMBEDDINGS,
        {"retrieval.PrecisionAtK": lambda *data: updated(retrieval.PrecisionAtK(1), *data).compute(), **HIT_AT_1},
        {
            f"retrieval.{name}": estimated(functools.partial(getattr(retrieval, name), 1), replicates=50)
            for name in ("PrecisionAtK", "HitRate")
        },
        {
            **dict.fromkeys(("retrieval.evaluate_run, success_1", "structured.RankingScores, hit@1"), NO_QUERY),
            **dict.fromkeys(("retrieval.cmc", *function_entry_points("hit_rate", k=1)), WITHOUT_RANKS),
            "retrieval.ranks_of_neighbors, hit_rate": NOT_CHECKED,
        },
    ),
    "nearest centroid": Quantity(
        EMBEDDINGS,
        {
            **metric_entry_points(retrieval.NearestCentroidAccuracy, "NearestCentroidAccuracy"),
            **calculator_entry_points("nearest_centroid_accuracy"),
            "retrieval.nearest_centroid": lambda *data: mean(retrieval.functional.nearest_centroid(*data)),
        },
        {
            "retrieval.NearestCentroidAccuracy": estimated(retrieval.NearestCentroidAccuracy, replicates=50),
            "retrieval.AccuracyCalculator": calculator_interval("nearest_centroid_accuracy"),
        },
        {"retrieval.nearest_centroid": WITHOUT_RANKS},
    ),
}
QUANTITIES = RANKS
