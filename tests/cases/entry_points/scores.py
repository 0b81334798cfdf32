"""Quantities of scores and probabilities, and of repeated samples."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import retrieval, uncertainty

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


QUANTITIES = PASSES | PROBABLE
