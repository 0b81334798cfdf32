"""Numbers of scores and probabilities, of confusion matrices, and of costs."""

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchmetrics.classification as classification
from torch import Generator, Tensor

from tensormetrics import assignment, association, posterior, retrieval, structured, uncertainty

from .quantity import Number, Way, fed


def two_classes(items: int, rate: float = 0.5, dtype: torch.dtype = torch.float64) -> Callable[..., Any]:
    def made(generator: Generator) -> tuple[Tensor, Tensor]:
        target = (torch.rand(items, generator=generator) < rate).long()
        return torch.rand(items, generator=generator).mul(0.6).add(0.3 * target).to(dtype), target

    return made


def tied(generator: Generator) -> tuple[Tensor, Tensor]:
    preds, target = two_classes(30)(generator)
    return preds.mul(8).round() / 8, target


BINARY = {
    "ordinary": two_classes(30),
    "ties": tied,
    "all equal": lambda generator: (torch.full((12,), 0.5), two_classes(12)(generator)[1]),
    "one class": two_classes(12, 0.0),
    "the other class": two_classes(12, 1.0),
    "half": two_classes(30, dtype=torch.float16),
    "one item": two_classes(1),
    "other lengths": lambda generator: (torch.rand(4), torch.ones(5).long()),
    "targets of a third class": lambda generator: (torch.rand(4), torch.tensor([0, 1, 2, 1])),
    "not a number": lambda generator: (torch.tensor([0.2, torch.nan, 0.7, 0.1]), torch.tensor([0, 1, 1, 0])),
}
ONE_QUERY = {
    **dict.fromkeys(("ties", "all equal", "half"), "places have no ties"),
    **dict.fromkeys(("other lengths", "targets of a third class", "not a number"), "takes ranks, not scores"),
}


def of_one_query(score: Callable[..., Tensor]) -> Way:
    def value(preds: Tensor, target: Tensor) -> Tensor:
        relevant = target[preds.argsort(descending=True)] == 1
        rank = relevant * torch.arange(1, len(target) + 1)
        number = relevant.sum(0, keepdim=True)
        return score(retrieval.PositiveRanks(rank[None], number, candidates=torch.tensor([len(target)])))

    return value


def of_metric(make: Callable[[], Any], name: str) -> dict[str, Way]:
    return {
        f"uncertainty.{name}": lambda *data: fed(make(), *data).compute(),
        f"uncertainty.{name}, forward": lambda *data: make()(*data),
        f"uncertainty.{name}, item by item": lambda preds, target: fed(
            fed(make(), preds[:1], target[:1]), preds[1:], target[1:]
        ).compute(),
    }


def of_torchmetrics(make: Callable[[], Any]) -> Way:
    return lambda *data: fed(uncertainty.Uncertain(make(), replicates=0), *data).compute()


def both_sides(*data: Tensor) -> Tensor:
    return uncertainty.auroc(*(side[None] for side in data))


PROBABLE = {
    "AUROC": Number(
        BINARY,
        {
            **of_metric(uncertainty.BinaryAUROC, "BinaryAUROC"),
            "uncertainty.auroc": uncertainty.auroc,
            "uncertainty.auroc, batch": both_sides,
            "uncertainty.delong": lambda preds, target: uncertainty.delong(preds[None], target).auroc[0],
            "retrieval.ranking_auroc, one query": of_one_query(retrieval.ranking_auroc),
        },
        without={
            "uncertainty.BinaryAUROC, item by item": {"one item": "an update of no items", "other lengths": "cuts"},
            "retrieval.ranking_auroc, one query": ONE_QUERY,
        },
        rtol=1e-6,
    ),
    "average precision": Number(
        BINARY,
        {
            **of_metric(uncertainty.BinaryAveragePrecision, "BinaryAveragePrecision"),
            "uncertainty.average_precision": uncertainty.average_precision,
            "retrieval.average_precision, one query": of_one_query(retrieval.average_precision),
        },
        without={
            "uncertainty.BinaryAveragePrecision, item by item": {"one item": "no items", "other lengths": "cuts"},
            "retrieval.average_precision, one query": ONE_QUERY,
        },
        rtol=1e-6,
    ),
    "Brier score": Number(
        BINARY,
        {
            **of_metric(uncertainty.BrierScore, "BrierScore"),
            "uncertainty.brier_score": uncertainty.brier_score,
            "uncertainty.brier_score, batch": lambda *data: uncertainty.brier_score(*(side[None] for side in data)),
        },
        without={"uncertainty.BrierScore, item by item": {"one item": "no items", "other lengths": "cuts"}},
        rtol=1e-6,  # the metric keeps multiples of 2^-30
    ),
    "debiased calibration error": Number(
        BINARY,
        {
            **of_metric(lambda: uncertainty.CalibrationError(7, norm="rms"), "CalibrationError"),
            "uncertainty.calibration_error": lambda *data: uncertainty.calibration_error(*data, 7, "rms"),
        },
        without={
            "uncertainty.CalibrationError, item by item": {"one item": "no items", "other lengths": "cuts"},
        },
        rtol=1e-6,
    ),
    "calibration error": Number(
        BINARY,
        {
            **of_metric(lambda: uncertainty.CalibrationError(7), "CalibrationError"),
            "uncertainty.calibration_error": lambda *data: uncertainty.calibration_error(*data, 7),
        },
        without={
            "uncertainty.CalibrationError, item by item": {"one item": "no items", "other lengths": "cuts"},
        },
        rtol=1e-6,
    ),
}


def answers(items: int, classes: int = 3, seen: int = 3) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    def made(generator: Generator) -> tuple[Tensor, Tensor]:
        target = torch.cat([torch.arange(seen), torch.randint(seen, (items,), generator=generator)])
        wrong = torch.rand(len(target), generator=generator) < 0.3
        return torch.where(wrong, torch.randint(seen, target.shape, generator=generator), target), target

    return made


ANSWERS = {
    "ordinary": answers(60),
    "a class that never occurs": answers(30, seen=2),
    "all right": lambda generator: (torch.arange(9) % 3, torch.arange(9) % 3),
    "one class": lambda generator: (torch.ones(5).long(), torch.ones(5).long()),
    "bytes": lambda generator: tuple(side.to(torch.uint8) for side in answers(60)(generator)),
    "a class too many": lambda generator: (torch.tensor([0, 3]), torch.tensor([0, 1])),
    "other lengths": lambda generator: (torch.tensor([0, 1]), torch.tensor([0])),
}


def of_matrix(name: str, torchmetric: Callable[[], Any]) -> Number:
    metric = posterior.get_metric(name)

    def counted(preds: Tensor, target: Tensor) -> Tensor:
        return posterior.compute_confusion_matrix(target, preds, num_classes=3)

    def studied(*data: Tensor) -> posterior.Study:
        study = posterior.Study(seed=0, metrics={name: {}})
        study.add_experiment("one/one", counted(*data))
        return study

    def experiment(*data: Tensor) -> Tensor:
        found = studied(*data)["one/one"].sample_metrics(name, "input", 1)
        return next(iter(found.values())).values[0]

    def classifier() -> Any:
        return posterior.ConfusionPosterior(3, [name], replicates=50)

    return Number(
        ANSWERS,
        {
            "posterior.ConfusionPosterior": lambda *data: fed(classifier(), *data).compute()[name],
            "posterior.ConfusionPosterior, forward": lambda *data: classifier()(*data)[name],
            "posterior.ConfusionPosterior, interval": lambda *data: fed(classifier(), *data).interval()[name].value,
            "posterior.get_metric": lambda *data: metric(counted(*data)),
            "posterior.get_metric, batch": lambda *data: metric(counted(*data)[None]),
            "posterior.sample_metrics": lambda *data: posterior.sample_metrics(
                counted(*data), [name], 1, method="input"
            )[0],
            "posterior.Study": lambda *data: studied(*data).get_metric_samples(name, "one/one", "input").values[0],
            "posterior.Experiment": experiment,
            "uncertainty.Uncertain, torchmetrics": of_torchmetrics(torchmetric),
        },
        without={
            "uncertainty.Uncertain, torchmetrics": {
                **dict.fromkeys(("a class that never occurs", "one class"), "leaves classes out that do not occur"),
                **dict.fromkeys(("a class too many", "other lengths"), "has checks of its own"),
            }
        },
        rtol=1e-6,
    )


MATRICES = {
    "accuracy": of_matrix("acc", lambda: classification.MulticlassAccuracy(3, average="micro")),
    "macro F1": of_matrix("f1@macro", lambda: classification.MulticlassF1Score(3, average="macro")),
    "MCC": of_matrix("mcc", lambda: classification.MulticlassMatthewsCorrCoef(3)),
    "kappa": of_matrix("kappa", lambda: classification.MulticlassCohenKappa(3)),
}


def costs(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> Callable[[Generator], tuple[Tensor]]:
    return lambda generator: (torch.randint(-9, 9, (rows, columns), generator=generator).to(dtype),)


COSTS = {
    "square": costs(5, 5),
    "wide": costs(4, 7),
    "tall": costs(7, 4),
    "ties": lambda generator: (torch.ones(5, 5),),
    "integers": costs(5, 5, torch.int64),
    "half": costs(5, 6, torch.float16),
    "one row": costs(1, 3),
    "no rows": costs(0, 3),
    "empty": costs(0, 0),
    "not a number": lambda generator: (torch.tensor([[1.0, torch.nan], [2.0, 3.0]]),),
    "no matrix": lambda generator: (torch.ones(3),),
}


def of_sum(cost: Tensor) -> Tensor:
    rows, columns = assignment.pairs(assignment.linear_sum_assignment(cost))
    return cost[rows, columns].double().sum()


def of_similarity(cost: Tensor) -> Tensor:
    """By similarities above 0, so that every row or column is matched."""
    return 20.0 * min(cost.shape) - structured.set_overlap(20.0 - cost.double())


ASSIGNED = {
    "assignment cost": Number(
        COSTS,
        {
            "assignment.linear_sum_assignment": lambda cost: assignment.linear_sum_assignment(cost).cost,
            "assignment.linear_sum_assignment, largest of negatives": lambda cost: (
                -assignment.linear_sum_assignment(-cost, maximize=True).cost
            ),
            "assignment.linear_sum_assignment, turned": lambda cost: (
                assignment.linear_sum_assignment(cost.transpose(0, -1)).cost
            ),
            "assignment.LinearAssignment": lambda cost: assignment.LinearAssignment()(cost).cost,
            "assignment.pairs": of_sum,
            "structured.set_overlap": of_similarity,
        },
        without={"structured.set_overlap": {"not a number": "is NaN, as all scores of structures are"}},
    )
}


def some_samples(generator: Generator) -> tuple[Tensor]:
    return (torch.rand(200, generator=generator).double() ** 2,)


def with_nan(generator: Generator) -> tuple[Tensor]:
    return (some_samples(generator)[0].index_fill(0, torch.tensor([3]), torch.nan),)


SAMPLES = {
    "narrowest interval": Number(
        {"ordinary": some_samples, "not a number": with_nan, "all equal": lambda _: (torch.ones(50).double(),)},
        {
            "uncertainty.hdi": lambda x: torch.stack([torch.as_tensor(end) for end in uncertainty.hdi(x)]),
            "posterior.summarize": lambda x: torch.stack([torch.as_tensor(end) for end in posterior.summarize(x).hdi]),
        },
    ),
    "variance between experiments": Number(
        {
            "ordinary": lambda generator: tuple(torch.rand(2, 6, generator=generator).double() + 0.01),
            "equal": lambda _: (torch.ones(4).double(), torch.ones(4).double()),
            "one": lambda _: (torch.ones(1).double(), torch.ones(1).double()),
        },
        {
            "posterior.heterogeneity_dl": posterior.heterogeneity_dl,
            "association.random_effects": lambda *data: association.random_effects(*data).details["tau2"],
        },
    ),
}


def right_of_two(items: int, rate: float = 0.7) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    return lambda generator: tuple((torch.rand(2, items, generator=generator) < rate).long())


def stated(comparison: Any) -> Tensor:
    return torch.stack([*comparison, comparison.p_value, comparison.p_better])


def named(scores: Tensor) -> list[str]:
    return [f"q{i}" for i in range(len(scores))]


def of_squares(*scores: Tensor, of_names: bool) -> Tensor:
    """By a metric of which 0 and 1 are the scores of single items, and less is better."""
    metrics = []
    for one in scores:
        metrics.append(uncertainty.BrierScore(replicates=1000))
        ids = named(one) if of_names else torch.arange(len(one))
        metrics[-1].update(one.double(), torch.zeros_like(one), ids=ids)
    comparison = uncertainty.compare(*metrics)
    return stated(dataclasses.replace(comparison, p_better=1 - comparison.p_better))


def of_runs(*scores: Tensor) -> Tensor:
    runs = []
    for one in scores:
        run = {name: {"a": 1.0, "b": 2.0 - 2 * hit} for name, hit in zip(named(one), one.tolist(), strict=True)}
        runs.append(retrieval.evaluate_run(run, {name: {"a": 1} for name in named(one)}, ["P_1"]))
    return stated(uncertainty.compare(*runs)["P_1"])


def of_files(*scores: Tensor, of_names: bool) -> Tensor:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in "ab"]
        for path, one in zip(paths, scores, strict=True):
            ids = named(one) if of_names else range(len(one))
            rows = ({"id": name, "score": score} for name, score in zip(ids, one.tolist(), strict=True))
            path.write_text("\n".join(map(json.dumps, rows)))
        return stated(uncertainty.compare(*map(uncertainty.read_scores, paths)))


def of_study(*scores: Tensor) -> Tensor:
    study = posterior.Study(seed=0, metrics={"acc": {}})
    for name, one in zip("ab", scores, strict=True):
        target = torch.arange(len(one)) % 2
        study.add_experiment(f"one/{name}", y_true=target, y_pred=torch.where(one == 1, target, 1 - target), items="x")
    return stated(study.compare("acc").cells[0][0])


RIGHT = {
    "ordinary": right_of_two(60),
    "few differ": lambda generator: (torch.arange(40) % 4 > 0, (torch.arange(40) % 4 > 0) & (torch.arange(40) != 5)),
    "all equal": lambda generator: (torch.ones(20).long(), torch.ones(20).long()),
    "six items": right_of_two(6),
    "other lengths": lambda generator: (torch.ones(4).long(), torch.ones(5).long()),
}
DIFFERENCES = {
    "difference of right answers, items by name": Number(
        RIGHT,
        {
            "uncertainty.compare": lambda a, b: stated(
                uncertainty.compare(uncertainty.Scores(a, named(a)), uncertainty.Scores(b, named(b)))
            ),
            "uncertainty.compare, metrics": functools.partial(of_squares, of_names=True),
            "retrieval.evaluate_run, compare": of_runs,
            "uncertainty.read_scores, compare": functools.partial(of_files, of_names=True),
        },
    ),
    "difference of right answers, items in order": Number(
        RIGHT,
        {
            "uncertainty.compare": lambda *scores: stated(uncertainty.compare(*scores)),
            "uncertainty.compare, lists": lambda *scores: stated(uncertainty.compare(*(x.tolist() for x in scores))),
            "uncertainty.compare, metrics": functools.partial(of_squares, of_names=False),
            "uncertainty.read_scores, compare": functools.partial(of_files, of_names=False),
            "posterior.Study, compare": of_study,
        },
    ),
}


def right_of_samples(problems: int, samples: int) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    return lambda generator: (
        torch.full((problems,), samples),
        torch.randint(samples + 1, (problems,), generator=generator),
    )


def each_sample(n: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each sample is right, and its problem; the samples of a problem stand far apart."""
    index = torch.cat([torch.stack([torch.full((many,), p), torch.arange(many)], 1) for p, many in enumerate(n)])
    index = index[index[:, 1].argsort(stable=True)]
    return index[:, 1] < c[index[:, 0]], index[:, 0]


def pass_at_3(n: Tensor, c: Tensor) -> uncertainty.PassAtK:
    metric = uncertainty.PassAtK(3)
    metric.update(c, n, ids=torch.arange(len(n)))
    return metric


def repeated_scores(generator: Generator) -> tuple[Tensor, Tensor]:
    items = torch.randint(12, (60,), generator=generator)
    return torch.rand(60, generator=generator).double(), items


PASSES = {
    "mean of items with repeats": Number(
        {
            "ordinary": repeated_scores,
            "one repeat each": lambda generator: (torch.rand(9, generator=generator).double(), torch.arange(9)),
        },
        {
            "uncertainty.interval": lambda scores, items: uncertainty.interval(scores, ids=items).value,
            "uncertainty.variance_components": lambda scores, items: (
                uncertainty.variance_components(scores, items).value
            ),
        },
    ),
    "pass@3": Number(
        {
            "ordinary": right_of_samples(20, 8),
            "one problem": right_of_samples(1, 5),
            "as many as k": right_of_samples(12, 3),
            "too few samples": right_of_samples(6, 2),
            "more right than samples": lambda generator: (torch.full((6,), 4), torch.full((6,), 5)),
        },
        {
            "uncertainty.pass_at_k": lambda n, c: uncertainty.pass_at_k(n, c, 3).mean(),
            "uncertainty.pass_at_k, several": lambda n, c: uncertainty.pass_at_k(n, c, (3, 1))[..., 0].mean(),
            "uncertainty.PassAtK": lambda n, c: pass_at_3(n, c).compute(),
            "uncertainty.PassAtK, samples": lambda n, c: fed(uncertainty.PassAtK(3), *each_sample(n, c)).compute(),
        },
        {
            "uncertainty.interval": lambda n, c: uncertainty.interval(
                uncertainty.pass_at_k(n, c, 3), bounds=(0.0, 1.0)
            ),
            "uncertainty.PassAtK": lambda n, c: pass_at_3(n, c).interval(),
            "uncertainty.PassAtK, samples": lambda n, c: fed(uncertainty.PassAtK(3), *each_sample(n, c)).interval(),
        },
        without={"uncertainty.PassAtK, samples": {"more right than samples": "each sample is one"}},
    ),
}


def battles(models: int, count: int, outcomes: int = 3) -> Callable[[Generator], tuple[Tensor, ...]]:
    def made(generator: Generator) -> tuple[Tensor, ...]:
        first = torch.randint(models, (count,), generator=generator)
        second = (first + torch.randint(1, models, (count,), generator=generator)) % models
        return first, second, torch.randint(outcomes, (count,), generator=generator).double() * (1 / (outcomes - 1))

    return made


def of_counts(first: Tensor, second: Tensor, outcome: Tensor) -> Tensor:
    wins, ties = (torch.zeros(4, 4).double() for _ in range(2))
    for i, j, score in zip(first.tolist(), second.tolist(), outcome.tolist(), strict=True):
        for table, sides in ((wins, [(i, j)] * (score == 1) + [(j, i)] * (score == 0)), (ties, [(i, j), (j, i)])):
            for winner, loser in sides if (table is wins) != (score == 0.5) else ():
                table[winner, loser] += 1
    return uncertainty.bradley_terry(wins, ties)[0]


def of_names(first: Tensor, second: Tensor, outcome: Tensor) -> Tensor:
    metric = uncertainty.Ratings([*"abcd"], scale="logit")
    metric.update(*(["abcd"[i] for i in side.tolist()] for side in (first, second)), outcome.tolist())
    return torch.stack([*metric.compute().values()])


def rated(**options: Any) -> uncertainty.Ratings:
    return uncertainty.Ratings(4, scale="logit", **options)


def at_any_time(scores: Tensor) -> uncertainty.Estimate:
    return uncertainty.interval(scores, anytime=True)


def of_one_file(scores: Tensor) -> uncertainty.Estimate:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        path.write_text("\n".join(["id,score", *(f"q{i},{score}" for i, score in enumerate(scores.tolist()))]))
        return uncertainty.interval(path, anytime=True)


SEQUENCES = {
    "mean of right answers at any time": Number(
        {
            "ordinary": lambda generator: right_of_two(60)(generator)[:1],
            "all right": lambda _: (torch.ones(30).long(),),
            "one item": lambda _: (torch.ones(1).long(),),
            "other scores": lambda generator: (torch.rand(20, generator=generator).double(),),  # without bounds
            "no items": lambda _: (torch.ones(0),),
        },
        {
            "uncertainty.interval": at_any_time,
            "uncertainty.interval, batch": lambda scores: at_any_time(scores.double()[None])[0],
            "uncertainty.interval, list": lambda scores: at_any_time(scores.tolist()),
            "uncertainty.interval, by name": lambda scores: at_any_time(
                dict(zip(named(scores), scores.tolist(), strict=True))
            ),
            "uncertainty.interval, last look": lambda scores: uncertainty.interval(
                scores, anytime=True, looks=[1, len(scores)]
            )[-1],
            "uncertainty.compare, the first of both": lambda scores: (
                uncertainty.compare(scores, scores, anytime=True).a
            ),
            "uncertainty.read_scores": of_one_file,
        },
        without={"uncertainty.read_scores": {"no items": "a file without a row is not one of scores"}},
        rtol=1e-9,
    ),
}
BATTLES = {
    "strengths of models": Number(
        {
            "ordinary": battles(4, 90),
            "no ties": battles(4, 60, 2),
            "few": lambda _: (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), torch.tensor([1.0, 0.5, 0.0])),
            "never lost": lambda _: (torch.zeros(6).long(), torch.arange(6) % 3 + 1, torch.ones(6).double()),
            "apart": lambda _: (torch.tensor([0, 2]), torch.tensor([1, 3]), torch.ones(2).double()),
        },
        {
            "uncertainty.bradley_terry": of_counts,
            "uncertainty.Ratings": lambda *data: torch.stack([*fed(rated(), *data).compute().values()]),
            "uncertainty.Ratings, forward": lambda *data: torch.stack([*rated()(*data).values()]),
            "uncertainty.Ratings, interval": lambda *data: fed(rated(), *data).interval().value,
            "uncertainty.Ratings, names": of_names,
        },
        without={"uncertainty.Ratings, forward": {"apart": "a batch need not connect the models, and is NaN"}},
    ),
}
NUMBERS = PASSES | BATTLES | SEQUENCES | PROBABLE | MATRICES | ASSIGNED | SAMPLES | DIFFERENCES
