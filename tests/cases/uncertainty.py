"""Rows of the words that all domains share."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor
from torchmetrics import MeanSquaredError

from tensormetrics import uncertainty

from .case import FunctionCase, LeftOut, MetricCase


def two_sides(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 9, (2, items), generator=generator).double())  # sums in float32 are exact


def two_classes(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    preds = torch.rand(items, generator=generator).mul(20).round() / 20  # ties
    return preds, torch.rand(items, generator=generator).lt(preds * 0.8 + 0.1).long()


def as_rows(made: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    def several(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
        sides = made(generator, 11 * math.prod(lead))
        return tuple(side.view(*lead, 11, *side.shape[1:]) for side in sides)

    return several


def three_classes(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    preds = torch.randn(items, 3, generator=generator).double().softmax(-1)
    return preds, torch.randint(3, (items,), generator=generator)


def pairs_won(preds: np.ndarray, target: np.ndarray) -> list[float]:
    """The definition of the area: over all pairs of a positive and a negative."""
    gaps = preds[target == 1][:, None] - preds[target == 0][None]
    return [float(((gaps > 0) + 0.5 * (gaps == 0)).mean())]


def precision_of_positives(preds: np.ndarray, target: np.ndarray) -> list[float]:
    return [float(np.mean([target[preds >= score].mean() for score in preds[target == 1]]))]


def squares(preds: np.ndarray, target: np.ndarray) -> list[float]:
    return [float(((preds - np.eye(3)[target]) ** 2).sum(1).mean())]


def gaps_in_bins(preds: np.ndarray, target: np.ndarray) -> list[float]:
    place = np.minimum((preds.astype(float) * 7).astype(int), 6)
    inside = [place == k for k in range(7) if (place == k).any()]
    return [sum(abs(target[one].mean() - preds[one].mean()) * one.mean() for one in inside)]


def samples_of_problems(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    return torch.rand(items, generator=generator) < 0.3, torch.arange(items) % 4


def passes_of_subsets(correct: np.ndarray, problems: np.ndarray) -> list[float]:
    """The fraction of all subsets of k samples that hold a right one, the mean over the problems."""
    samples = [correct[problems == problem] for problem in np.unique(problems)]
    return [np.mean([np.mean([any(s) for s in itertools.combinations(one, k)]) for one in samples]) for k in (1, 3)]


BAD_SAMPLES = ((torch.ones(5), torch.arange(5)), (torch.ones(5).bool(), torch.arange(4)))


def judged(generator: Generator, items: int) -> tuple[Tensor, Tensor, Tensor]:
    first = torch.randint(3, (items,), generator=generator)
    second = (first + torch.randint(1, 3, (items,), generator=generator)) % 3
    return first, second, torch.randint(3, (items,), generator=generator).double() / 2


def strengths_by_ascent(first: np.ndarray, second: np.ndarray, outcome: np.ndarray) -> list[float]:
    """The maximum of the likelihood of Davidson, battle by battle, by the method of Newton with a numeric Hessian."""
    sign = np.eye(3)[first] - np.eye(3)[second]

    def gradient(point: np.ndarray) -> np.ndarray:
        strengths, log_nu = point[:3], point[3]
        logits = np.stack([-sign @ strengths / 2, np.full(len(sign), log_nu), sign @ strengths / 2])
        p = np.exp(logits) / np.exp(logits).sum(0)
        score = (outcome == 1) / 2 - (outcome == 0) / 2 - (p[2] - p[0]) / 2
        return np.append(score @ sign - strengths / 9, (outcome == 0.5).sum() - p[1].sum())

    point = np.zeros(4)
    for _ in range(50):
        hessian = np.stack([(gradient(point + step) - gradient(point - step)) / 2e-5 for step in np.eye(4) * 1e-5])
        point = point - np.linalg.solve(hessian, gradient(point))
    return [1000 + 400 / math.log(10) * strength for strength in point[:3]]


BAD = (
    (torch.rand(5), torch.rand(5)),
    (torch.rand(5), torch.zeros(4, dtype=torch.int64)),
    (torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)),
)
METRICS = {
    "BinaryAUROC": MetricCase(uncertainty.BinaryAUROC, two_classes, pairs_won, bad=BAD, not_finite="nan"),
    "BinaryAveragePrecision": MetricCase(
        uncertainty.BinaryAveragePrecision, two_classes, precision_of_positives, bad=BAD, not_finite="nan"
    ),
    "BrierScore": MetricCase(uncertainty.BrierScore, three_classes, squares, rtol=1e-7, bad=BAD, not_finite="nan"),
    "CalibrationError": MetricCase(
        lambda: uncertainty.CalibrationError(7), two_classes, gaps_in_bins, rtol=1e-6, bad=BAD, not_finite="nan"
    ),
    "PassAtK": MetricCase(
        lambda: uncertainty.PassAtK((1, 3)),
        samples_of_problems,
        passes_of_subsets,
        bad=BAD_SAMPLES,
        not_finite="no floats",
    ),
    "Ratings": MetricCase(
        lambda: uncertainty.Ratings(3),
        judged,
        strengths_by_ascent,
        rtol=1e-7,
        bad=(
            (torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0])),
            (torch.tensor([0]), torch.tensor([3]), torch.tensor([1.0])),
            (torch.tensor([0]), torch.tensor([1]), torch.tensor([0.7])),
            (torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0.5])),
        ),
        not_finite=lambda place, value: LeftOut("no judgement") if value != value else "raises",
    ),
    "Uncertain": MetricCase(
        lambda: uncertainty.Uncertain(MeanSquaredError(), replicates=0),  # with replicates: test_table.py
        two_sides,
        lambda preds, target: [np.mean((preds - target) ** 2)],
        rtol=1e-6,
        not_finite="nan",
    ),
}


def numbers_of_samples(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    n = torch.randint(4, 30, (*lead, 9), generator=generator)
    return n, (n * torch.rand(*lead, 9, generator=generator)).round().long()


def three_models(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    preds = torch.randn(*lead, 3, 14, generator=generator).mul(2).round()  # ties
    return preds, torch.arange(14).expand(*lead, 14) % 3 % 2, torch.randint(6, (*lead, 14), generator=generator)


def some_p_values(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor]:
    return (torch.rand(*lead, 9, generator=generator).double() ** 2,)


def without_them(p_values: Tensor) -> tuple[Tensor, ...]:
    kept = p_values.isfinite()
    return tuple(
        torch.stack(
            [
                torch.full_like(row, torch.nan).masked_scatter(here, uncertainty.correct_p_values(row[here], how))
                for row, here in zip(p_values, kept, strict=True)
            ]
        )
        for how in ("holm", "bh")
    )


def outcomes(generator: Generator, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    wins, ties = torch.randint(0, 9, (2, *lead, 4, 4), generator=generator).double()
    return wins, ties + ties.mT


FUNCTIONS = {
    "binary_auroc": FunctionCase(
        lambda *sides: (uncertainty.binary_auroc(*sides), uncertainty.binary_auroc(*sides, sides[0].double() + 1)),
        as_rows(two_classes),
        compiles=True,
        not_finite="nan",
    ),
    "binary_average_precision": FunctionCase(
        lambda *sides: (uncertainty.binary_average_precision(*sides),), as_rows(two_classes), not_finite="nan"
    ),
    "bradley_terry": FunctionCase(
        lambda *sides: uncertainty.bradley_terry(*sides), outcomes, rtol=1e-9, not_finite="nan"
    ),
    "brier_score": FunctionCase(
        lambda *sides: (uncertainty.brier_score(*sides),), as_rows(three_classes), rtol=1e-12, not_finite="nan"
    ),
    "calibration_error": FunctionCase(
        lambda *sides: (uncertainty.calibration_error(*sides),), as_rows(two_classes), rtol=1e-12, not_finite="nan"
    ),
    "correct_p_values": FunctionCase(
        lambda p: tuple(uncertainty.correct_p_values(p, how) for how in ("holm", "bh")),
        some_p_values,
        not_finite=LeftOut("it is no test, and NaN", without_them),
    ),
    "delong": FunctionCase(
        lambda preds, target, groups: (*uncertainty.delong(preds, target), *uncertainty.delong(preds, target, groups)),
        three_models,
        rtol=1e-12,
        not_finite="nan",
    ),
    "pass_at_k": FunctionCase(
        lambda n, c: (uncertainty.pass_at_k(n, c, (1, 4)), uncertainty.pass_at_k(n, c, 3, require="all")),
        numbers_of_samples,
        not_finite="no floats",
    ),
}
ROWLESS = {}
