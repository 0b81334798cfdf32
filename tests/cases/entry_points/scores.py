"""Quantities of scores and probabilities, of confusion matrices, and of costs."""

from collections.abc import Callable
from typing import Any

import torch
import torchmetrics.classification as classification
from torch import Generator, Tensor

from tensormetrics import assignment, posterior, retrieval, structured, uncertainty

from .quantity import EntryPoint, Quantity, computed, estimated, updated


def random_probabilities(items: int, rate: float = 0.5, dtype: torch.dtype = torch.float64) -> Callable[..., Any]:
    def sample(generator: Generator) -> tuple[Tensor, Tensor]:
        target = (torch.rand(items, generator=generator) < rate).long()
        return torch.rand(items, generator=generator).mul(0.6).add(0.3 * target).to(dtype), target

    return sample


def tied(generator: Generator) -> tuple[Tensor, Tensor]:
    preds, target = random_probabilities(30)(generator)
    return preds.mul(8).round() / 8, target


BINARY = {
    "ordinary": random_probabilities(30),
    "ties": tied,
    "all equal": lambda generator: (torch.full((12,), 0.5), random_probabilities(12)(generator)[1]),
    "one class": random_probabilities(12, 0.0),
    "the other class": random_probabilities(12, 1.0),
    "half": random_probabilities(30, dtype=torch.float16),
    "one item": random_probabilities(1),
    "other lengths": lambda generator: (torch.rand(4), torch.ones(5).long()),
    "targets of a third class": lambda generator: (torch.rand(4), torch.tensor([0, 1, 2, 1])),
    "not a number": lambda generator: (torch.tensor([0.2, torch.nan, 0.7, 0.1]), torch.tensor([0, 1, 1, 0])),
}
ONE_QUERY = {
    **dict.fromkeys(("ties", "all equal", "half"), "ranks have no ties"),
    **dict.fromkeys(("other lengths", "targets of a third class", "not a number"), "takes ranks, not scores"),
}


def query_entry_point(score: Callable[..., Tensor]) -> EntryPoint:
    def score_of_query(preds: Tensor, target: Tensor) -> Tensor:
        relevant = target[preds.argsort(descending=True)] == 1
        rank = relevant * torch.arange(1, len(target) + 1)
        num_relevant = relevant.sum(0, keepdim=True)
        return score(
            retrieval.functional.PositiveRanks(rank[None], num_relevant, candidates=torch.tensor([len(target)]))
        )

    return score_of_query


def metric_entry_points(make: Callable[[], Any], name: str) -> dict[str, EntryPoint]:
    return {
        f"uncertainty.{name}": lambda *data: updated(make(), *data).compute(),
        f"uncertainty.{name}, item by item": lambda preds, target: updated(
            updated(make(), preds[:1], target[:1]), preds[1:], target[1:]
        ).compute(),
    }


def torchmetrics_entry_point(make: Callable[[], Any]) -> EntryPoint:
    return computed(lambda: uncertainty.Uncertain(make(), replicates=0))


PROBABLE = {
    "AUROC": Quantity(
        BINARY,
        {
            **metric_entry_points(uncertainty.BinaryAUROC, "BinaryAUROC"),
            "uncertainty.binary_auroc": uncertainty.functional.binary_auroc,
            "uncertainty.delong": lambda preds, target: uncertainty.functional.delong(preds[None], target).auroc[0],
            "retrieval.ranking_auroc, one query": query_entry_point(retrieval.functional.ranking_auroc),
        },
        skip_reasons={
            "retrieval.ranking_auroc, one query": ONE_QUERY,
        },
        rtol=1e-6,
    ),
    "average precision": Quantity(
        BINARY,
        {
            **metric_entry_points(uncertainty.BinaryAveragePrecision, "BinaryAveragePrecision"),
            "uncertainty.binary_average_precision": uncertainty.functional.binary_average_precision,
            "retrieval.average_precision, one query": query_entry_point(retrieval.functional.average_precision),
        },
        skip_reasons={
            "retrieval.average_precision, one query": ONE_QUERY,
        },
        rtol=1e-6,
    ),
    "Brier score": Quantity(
        BINARY,
        {
            **metric_entry_points(uncertainty.BrierScore, "BrierScore"),
            "uncertainty.brier_score": uncertainty.functional.brier_score,
        },
        rtol=1e-6,  # the metric keeps multiples of 2^-30
    ),
    "debiased calibration error": Quantity(
        BINARY,
        {
            **metric_entry_points(lambda: uncertainty.CalibrationError(7, norm="rms"), "CalibrationError"),
            "uncertainty.calibration_error": lambda *data: uncertainty.functional.calibration_error(*data, 7, "rms"),
        },
        rtol=1e-6,
    ),
    "calibration error": Quantity(
        BINARY,
        {
            **metric_entry_points(lambda: uncertainty.CalibrationError(7), "CalibrationError"),
            "uncertainty.calibration_error": lambda *data: uncertainty.functional.calibration_error(*data, 7),
        },
        rtol=1e-6,
    ),
}


def random_classes(items: int, classes: int = 3, seen: int = 3) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    def sample(generator: Generator) -> tuple[Tensor, Tensor]:
        target = torch.cat([torch.arange(seen), torch.randint(seen, (items,), generator=generator)])
        wrong = torch.rand(len(target), generator=generator) < 0.3
        return torch.where(wrong, torch.randint(seen, target.shape, generator=generator), target), target

    return sample


ANSWERS = {
    "ordinary": random_classes(60),
    "a class that never occurs": random_classes(30, seen=2),
    "all right": lambda generator: (torch.arange(9) % 3, torch.arange(9) % 3),
    "one class": lambda generator: (torch.ones(5).long(), torch.ones(5).long()),
    "bytes": lambda generator: tuple(tensor.to(torch.uint8) for tensor in random_classes(60)(generator)),
    "a class too many": lambda generator: (torch.tensor([0, 3]), torch.tensor([0, 1])),
    "other lengths": lambda generator: (torch.tensor([0, 1]), torch.tensor([0])),
}


def matrix_quantity(name: str, torchmetric: Callable[[], Any]) -> Quantity:
    metric = posterior.get_metric(name)

    def confusion_matrix(preds: Tensor, target: Tensor) -> Tensor:
        return posterior.functional.compute_confusion_matrix(target, preds, num_classes=3)

    def study_with_matrix(*data: Tensor) -> posterior.Study:
        study = posterior.Study(seed=0, metrics={name: {}})
        study.add_experiment("one/one", confusion_matrix(*data))
        return study

    def value_of_experiment(*data: Tensor) -> Tensor:
        return study_with_matrix(*data)["one/one"].samples(name, "input", 1)[0][0]

    def confusion_posterior() -> Any:
        return posterior.ConfusionPosterior(3, [name], replicates=50)

    return Quantity(
        ANSWERS,
        {
            "posterior.ConfusionPosterior": computed(confusion_posterior, name),
            "posterior.ConfusionPosterior, interval": lambda *data: (
                updated(confusion_posterior(), *data).interval()[name].value
            ),
            "posterior.get_metric": lambda *data: metric(confusion_matrix(*data)),
            "posterior.sample_metrics": lambda *data: posterior.functional.sample_metrics(
                confusion_matrix(*data), [name], 1, method="input"
            )[0],
            "posterior.Study": lambda *data: study_with_matrix(*data).samples(name, "one/one", "input")[0],
            "posterior.Experiment": value_of_experiment,
            "uncertainty.Uncertain, torchmetrics": torchmetrics_entry_point(torchmetric),
        },
        skip_reasons={
            "uncertainty.Uncertain, torchmetrics": {
                **dict.fromkeys(("a class that never occurs", "one class"), "ignores classes that do not occur"),
                **dict.fromkeys(("a class too many", "other lengths"), "checks its inputs differently"),
            }
        },
        rtol=1e-6,
    )


MATRICES = {
    "accuracy": matrix_quantity("acc", lambda: classification.MulticlassAccuracy(3, average="micro")),
    "macro F1": matrix_quantity("f1@macro", lambda: classification.MulticlassF1Score(3, average="macro")),
    "MCC": matrix_quantity("mcc", lambda: classification.MulticlassMatthewsCorrCoef(3)),
    "kappa": matrix_quantity("kappa", lambda: classification.MulticlassCohenKappa(3)),
}


def random_costs(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> Callable[[Generator], tuple[Tensor]]:
    return lambda generator: (torch.randint(-9, 9, (rows, columns), generator=generator).to(dtype),)


COSTS = {
    "square": random_costs(5, 5),
    "wide": random_costs(4, 7),
    "tall": random_costs(7, 4),
    "ties": lambda generator: (torch.ones(5, 5),),
    "integers": random_costs(5, 5, torch.int64),
    "half": random_costs(5, 6, torch.float16),
    "one row": random_costs(1, 3),
    "no rows": random_costs(0, 3),
    "empty": random_costs(0, 0),
    "not a number": lambda generator: (torch.tensor([[1.0, torch.nan], [2.0, 3.0]]),),
    "no matrix": lambda generator: (torch.ones(3),),
}


def sum_of_pairs(cost: Tensor) -> Tensor:
    rows, columns = assignment.pairs(assignment.linear_sum_assignment(cost))
    return cost[rows, columns].double().sum()


def cost_by_set_overlap(cost: Tensor) -> Tensor:
    """Compute the cost from similarities above 0, so that every row or column is matched."""
    return 20.0 * min(cost.shape) - structured.functional.set_overlap(20.0 - cost.double())


ASSIGNED = {
    "assignment cost": Quantity(
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
            "assignment.pairs": sum_of_pairs,
            "structured.set_overlap": cost_by_set_overlap,
        },
        skip_reasons={"structured.set_overlap": {"not a number": "is NaN, as all scores of structures are"}},
    )
}


def random_num_correct(problems: int, samples: int) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    return lambda generator: (
        torch.full((problems,), samples),
        torch.randint(samples + 1, (problems,), generator=generator),
    )


def flatten_samples(n: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each sample is correct, and its problem; samples of one problem are not adjacent."""
    index = torch.cat(
        [torch.stack([torch.full((num_samples,), p), torch.arange(num_samples)], 1) for p, num_samples in enumerate(n)]
    )
    index = index[index[:, 1].argsort(stable=True)]
    return index[:, 1] < c[index[:, 0]], index[:, 0]


def pass_at_3() -> uncertainty.PassAtK:
    return uncertainty.PassAtK(3)


def updated_pass_at_3(n: Tensor, c: Tensor) -> uncertainty.PassAtK:
    metric = pass_at_3()
    metric.update(c, n, ids=torch.arange(len(n)))
    return metric


PASSES = {
    "pass@3": Quantity(
        {
            "ordinary": random_num_correct(20, 8),
            "one problem": random_num_correct(1, 5),
            "as many as k": random_num_correct(12, 3),
            "too few samples": random_num_correct(6, 2),
            "more right than samples": lambda generator: (torch.full((6,), 4), torch.full((6,), 5)),
        },
        {
            "uncertainty.pass_at_k": lambda n, c: uncertainty.functional.pass_at_k(n, c, 3).mean(),
            "uncertainty.pass_at_k, several": lambda n, c: uncertainty.functional.pass_at_k(n, c, (3, 1))[
                ..., 0
            ].mean(),
            "uncertainty.PassAtK": lambda n, c: updated_pass_at_3(n, c).compute(),
            "uncertainty.PassAtK, samples": computed(pass_at_3, inputs=flatten_samples),
        },
        {
            "uncertainty.interval": lambda n, c: uncertainty.interval(
                uncertainty.functional.pass_at_k(n, c, 3), bounds=(0.0, 1.0)
            ),
            "uncertainty.PassAtK": lambda n, c: updated_pass_at_3(n, c).interval(),
            "uncertainty.PassAtK, samples": estimated(pass_at_3, inputs=flatten_samples),
        },
        skip_reasons={"uncertainty.PassAtK, samples": {"more right than samples": "each sample is one"}},
    ),
}


QUANTITIES = PASSES | PROBABLE | MATRICES | ASSIGNED
