"""Numbers of embeddings with labels, and of clusterings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torchmetrics import MetricCollection

from tensormetrics import retrieval, structured, uncertainty

from .quantity import Number, Way, fed, mean

Rows = tuple[Tensor, Tensor]


def rows(items: int = 24, dtype: torch.dtype = torch.float32, classes: int = 5) -> Callable[[Generator], Rows]:
    def made(generator: Generator) -> Rows:
        x = 4 * torch.randn(items, 3, generator=generator)
        return x.to(dtype), torch.randint(classes, (items,), generator=generator)

    return made


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
OFTEN = (
    "ordinary",
    "ties",
    "lone queries",
    "only lone queries",
    "one row",
    "half",
    "labels of another length",
    "infinite",
)
EVERYWHERE = "PrecisionAtK", "AveragePrecision", "RankingAUROC"  # metrics that are compared on all of them
NO_QUERY = {
    **dict.fromkeys(("only lone queries", "one row", "no rows"), "no query is judged, which `evaluate_run` refuses"),
    **dict.fromkeys(("labels of another length", "infinite"), "takes lists of documents, not embeddings"),
}
NOT_FOUND = {"infinite": "such a row has no ranks, as the functions of ranks say"}
NOT_CHECKED = NOT_FOUND | {"labels of another length": "takes neighbours that were found, not embeddings"}


def order_of(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (Q, N - 1) the others, nearest first; (Q, N - 1) bool, relevant; (Q,) numbers of relevant ones
    order = retrieval.TorchKNN()(x, max(len(x) - 1, 1), x, True)[1]
    relevant = (labels[order] == labels[:, None]) & (order >= 0)
    return order, relevant, relevant.sum(1)


def of_run(measure: str) -> Way:
    """A measure of trec_eval, of lists in the order of distance."""

    def value(x: Tensor, labels: Tensor) -> float:
        order, relevant, number = order_of(x, labels)
        run = {f"q{i}": {f"d{j}": -float(place) for place, j in enumerate(order[i].tolist())} for i in range(len(x))}
        qrels = {
            f"q{i}": {f"d{j}": int(good) for j, good in zip(order[i].tolist(), relevant[i].tolist(), strict=True)}
            for i in number.nonzero()[:, 0].tolist()
        }
        return retrieval.evaluate_run(run, qrels, [measure]).summary()[measure]

    return value


def of_pairs(measure: str) -> Way:
    """The same measure of pairs of query and document, in a metric."""

    def value(x: Tensor, labels: Tensor) -> Tensor:
        order, relevant, _ = order_of(x, labels)
        if not len(order) or not order.shape[1]:
            raise ValueError("no query is judged")
        places = -torch.arange(order.shape[1]).float().expand(order.shape)
        metric = retrieval.RunMetric(measure, empty_target_action="skip")
        queries = torch.arange(len(x))[:, None].expand(order.shape)
        metric.update(places.flatten(), relevant.long().flatten(), queries.flatten())
        return metric.compute()[measure]

    return value


def of_ranking(score: str) -> Way:
    """A score of rankings as objects: the others in order, against those that are relevant."""

    def value(x: Tensor, labels: Tensor) -> Tensor:
        order, relevant, number = order_of(x, labels)
        name, _, k = score.partition("@")
        metric = structured.RankingScores([int(k or 1)], [name], zero_division=torch.nan)
        relevant_first = order.gather(1, (~relevant).int().argsort(dim=1, stable=True))
        has_some = number > 0
        metric.update(order[has_some], relevant_first[has_some], n_ref=number[has_some])
        return metric.compute()[score]

    return value


def of_calculator(name: str) -> dict[str, Way]:
    def calculator() -> retrieval.AccuracyCalculator:
        return retrieval.AccuracyCalculator([name])

    return {
        f"retrieval.AccuracyCalculator, get_accuracy of {name}": lambda *data: calculator().get_accuracy(*data)[name],
        f"retrieval.AccuracyCalculator, a sample of all queries, {name}": lambda *data: calculator().get_accuracy(
            *data, sample_queries=1_000
        )[name],
        f"retrieval.AccuracyCalculator, compute of {name}": lambda *data: fed(calculator(), *data).compute()[name],
        f"retrieval.AccuracyCalculator, levels of {name}": lambda x, labels: retrieval.AccuracyCalculator(
            [name], label_levels=True
        ).get_accuracy(x, labels[:, None])[f"{name}_level0"],
    }


def of_metric(make: Callable[..., Any], name: str) -> dict[str, Way]:
    def collected(*data: Any) -> Any:
        metrics = MetricCollection({"one": make(), "other": make()})
        metrics.update(*data)
        return metrics.compute()["other"]

    def in_two(x: Tensor, labels: Tensor) -> Any:
        return fed(fed(make(), x[:1], labels[:1]), x[1:], labels[1:]).compute()

    return {
        f"retrieval.{name}": lambda *data: fed(make(), *data).compute(),
        f"retrieval.{name}, forward": lambda *data: make()(*data),
        f"retrieval.{name}, in a collection": collected,
        f"retrieval.{name}, in two updates": in_two,
    }


def of_function(name: str, statistic: Callable[[Tensor], Tensor] = mean, **options: Any) -> dict[str, Way]:
    function = getattr(retrieval, name)

    def of_neighbours(x: Tensor, labels: Tensor) -> Tensor:
        order, _, number = order_of(x, labels)
        ranks = retrieval.ranks_of_neighbours(order, labels, labels, number)
        return statistic(function(ranks._replace(candidates=torch.full_like(number, len(x) - 1)), **options))

    return {
        f"retrieval.{name}": lambda *data: statistic(function(retrieval.positive_ranks(*data), **options)),
        f"retrieval.ranks_of_neighbours, {name}": of_neighbours,
        f"retrieval.positive_ranks, batch and {name}": lambda x, labels: statistic(
            function(retrieval.positive_ranks(x[None], labels[None]), **options)
        ),
    }


def of_ranks(
    metric: str,
    arguments: tuple[Any, ...],
    function: str,
    calculator: str,
    trec: str = "",
    ranking: str = "",
    statistic: Callable[[Tensor], Tensor] = mean,
    more: dict[str, Way] | None = None,
    has_interval: bool = True,
    **options: Any,
) -> Number:
    def make(**given: Any) -> Any:
        return getattr(retrieval, metric)(*arguments, **given)

    functions = of_function(function, statistic, **options)
    lists = (
        {f"retrieval.evaluate_run, {trec}": of_run(trec), f"retrieval.RunMetric, {trec}": of_pairs(trec)}
        if trec
        else {}
    )
    lists |= {f"structured.RankingScores, {ranking}": of_ranking(ranking)} if ranking else {}
    ways = of_metric(make, metric) | functions | of_calculator(calculator) | (more or {})
    ways[f"retrieval.{metric}, of each query"] = lambda *data: statistic(fed(make(average="none"), *data).compute())
    in_two = {"one row": "an update of no rows", "no rows": "an update of no rows", "labels of another length": "none"}
    intervals = {
        f"retrieval.{metric}": lambda *data: fed(make(), *data).interval(replicates=50),
        "uncertainty.interval": lambda *data: uncertainty.interval(fed(make(), *data), replicates=50),
        "retrieval.AccuracyCalculator": lambda *data: fed(retrieval.AccuracyCalculator([calculator]), *data).interval(
            replicates=50
        )[calculator],
    }
    return Number(
        EMBEDDINGS if metric in EVERYWHERE else {name: EMBEDDINGS[name] for name in OFTEN},
        ways | lists,
        intervals if has_interval else {},
        {
            f"retrieval.{metric}, in two updates": in_two,
            **dict.fromkeys(lists, NO_QUERY),
            **dict.fromkeys(functions, NOT_FOUND),
            f"retrieval.ranks_of_neighbours, {function}": NOT_CHECKED,
            **dict.fromkeys(more or (), NO_QUERY),
        },
    )


def of_each_query(score: Callable[[Tensor, Tensor], Tensor]) -> Way:
    """The mean of a score of one list, over lists with relevant references; places are scores without ties."""

    def value(x: Tensor, labels: Tensor) -> Tensor:
        _, relevant, number = order_of(x, labels)
        places = -torch.arange(relevant.shape[1]).double().expand(relevant.shape)
        return mean(score(places, relevant.long())[number > 0])

    return value


def median(scores: Tensor) -> Tensor:
    return torch.nanquantile(scores, 0.5) if scores.numel() else scores.sum() / 0


HIT_AT_1 = {
    **of_metric(lambda: retrieval.HitRate(1), "HitRate"),
    **of_metric(lambda: retrieval.MetricLearningRecall(1), "MetricLearningRecall"),
    "retrieval.HitRate, of several k": lambda *data: fed(retrieval.HitRate((3, 1)), *data).compute()["hit_rate_at_1"],
    **of_function("hit_rate", k=1),
    "retrieval.cmc": lambda *data: mean(retrieval.cmc(retrieval.positive_ranks(*data), 3)[..., 0]),
    **of_calculator("hit_rate_at_1"),
    **of_calculator("ndcg_at_1"),
    "retrieval.evaluate_run, success_1": of_run("success_1"),
    "structured.RankingScores, hit@1": of_ranking("hit@1"),
}
RANKS = {
    "precision@1": of_ranks("PrecisionAtK", (1,), "precision", "precision_at_1", "P_1", "precision@1", k=1),
    "precision@5": of_ranks("PrecisionAtK", (5,), "precision", "precision_at_5", "P_5", "precision@5", k=5),
    "recall@5": of_ranks("RecallAtK", (5,), "recall", "recall_at_5", "recall_5", "recall@5", k=5),
    "hit rate@5": of_ranks("HitRate", (5,), "hit_rate", "hit_rate_at_5", "success_5", "hit@5", k=5),
    "R-precision": of_ranks("RPrecision", (), "r_precision", "r_precision", "Rprec", "r_precision"),
    "MAP": of_ranks(
        "AveragePrecision",
        (),
        "average_precision",
        "mean_average_precision",
        "map",
        "ap",
        more={"uncertainty.average_precision, of queries": of_each_query(uncertainty.average_precision)},
    ),
    "MAP@5": of_ranks(
        "AveragePrecision", (5,), "average_precision", "mean_average_precision_at_5", "map_cut_5", "ap@5", k=5
    ),
    "MAP@R": of_ranks("AveragePrecisionAtR", (), "average_precision_at_r", "mean_average_precision_at_r"),
    "MRR": of_ranks("ReciprocalRank", (), "reciprocal_rank", "mean_reciprocal_rank", "recip_rank", "rr"),
    "nDCG": of_ranks("NDCG", (), "ndcg", "ndcg", "ndcg", "ndcg"),
    "nDCG@5": of_ranks("NDCG", (5,), "ndcg", "ndcg_at_5", "ndcg_cut_5", "ndcg@5", k=5),
    "mean rank": of_ranks("FirstRank", ("mean",), "first_rank", "mean_rank"),
    "median rank": of_ranks("FirstRank", (), "first_rank", "median_rank", statistic=median, has_interval=False),
    "mINP": of_ranks("InverseNegativePenalty", (), "inverse_negative_penalty", "mean_inp"),
    "AUROC of rankings": of_ranks(
        "RankingAUROC",
        (),
        "ranking_auroc",
        "mean_auroc",
        more={"uncertainty.auroc, of queries": of_each_query(uncertainty.auroc)},
    ),
    "precision@1 as hit rate": Number(
        EMBEDDINGS,
        {"retrieval.PrecisionAtK": lambda *data: fed(retrieval.PrecisionAtK(1), *data).compute(), **HIT_AT_1},
        {
            f"retrieval.{name}": lambda *data, name=name: fed(getattr(retrieval, name)(1), *data).interval(
                replicates=50
            )
            for name in ("PrecisionAtK", "HitRate", "MetricLearningRecall")
        },
        {
            **dict.fromkeys(
                (way for way in HIT_AT_1 if "two updates" in way),
                dict.fromkeys(("one row", "no rows", "labels of another length"), "an update of no rows"),
            ),
            **dict.fromkeys(("retrieval.evaluate_run, success_1", "structured.RankingScores, hit@1"), NO_QUERY),
            **dict.fromkeys(("retrieval.cmc", *of_function("hit_rate", k=1)), NOT_FOUND),
            "retrieval.ranks_of_neighbours, hit_rate": NOT_CHECKED,
        },
    ),
    "nearest centroid": Number(
        EMBEDDINGS,
        {
            **of_metric(retrieval.NearestCentroidAccuracy, "NearestCentroidAccuracy"),
            **of_calculator("nearest_centroid_accuracy"),
            "retrieval.nearest_centroid": lambda *data: mean(retrieval.nearest_centroid(*data)),
        },
        {
            "retrieval.NearestCentroidAccuracy": lambda *data: fed(retrieval.NearestCentroidAccuracy(), *data).interval(
                replicates=50
            ),
            "retrieval.AccuracyCalculator": lambda *data: fed(
                retrieval.AccuracyCalculator(["nearest_centroid_accuracy"]), *data
            ).interval(replicates=50)["nearest_centroid_accuracy"],
        },
        {
            "retrieval.NearestCentroidAccuracy, in two updates": dict.fromkeys(
                ("one row", "no rows", "labels of another length"), "an update of no rows"
            ),
            "retrieval.nearest_centroid": NOT_FOUND,
        },
    ),
}
NUMBERS = RANKS
