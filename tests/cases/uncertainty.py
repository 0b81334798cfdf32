"""Rows of the uncertainty domain."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor
from torchmetrics import MeanSquaredError

from tensormetrics import uncertainty
from tensormetrics.uncertainty import functional

from .case import FunctionCase, LeftOut, MetricCase


def predictions_and_targets(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    return tuple(torch.randint(0, 9, (2, items), generator=generator).double())  # sums in float32 are exact


def two_classes(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    preds = torch.rand(items, generator=generator).mul(20).round() / 20  # ties
    return preds, torch.rand(items, generator=generator).lt(preds * 0.8 + 0.1).long()


def as_rows(make: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    def batch(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        inputs = make(generator, 11 * math.prod(batch_shape))
        return tuple(tensor.view(*batch_shape, 11, *tensor.shape[1:]) for tensor in inputs)

    return batch


def three_classes(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    preds = torch.randn(items, 3, generator=generator).double().softmax(-1)
    return preds, torch.randint(3, (items,), generator=generator)


def auroc_by_pairs(preds: np.ndarray, target: np.ndarray) -> list[float]:
    """Compute the area by its definition, over all pairs of a positive and a negative."""
    differences = preds[target == 1][:, None] - preds[target == 0][None]
    return [float(((differences > 0) + 0.5 * (differences == 0)).mean())]


def precision_of_positives(preds: np.ndarray, target: np.ndarray) -> list[float]:
    return [float(np.mean([target[preds >= score].mean() for score in preds[target == 1]]))]


def brier_score(preds: np.ndarray, target: np.ndarray) -> list[float]:
    return [float(((preds - np.eye(3)[target]) ** 2).sum(1).mean())]


def calibration_error(preds: np.ndarray, target: np.ndarray) -> list[float]:
    bin_index = np.minimum((preds.astype(float) * 7).astype(int), 6)
    bin_masks = [bin_index == bin_number for bin_number in range(7) if (bin_index == bin_number).any()]
    return [sum(abs(target[mask].mean() - preds[mask].mean()) * mask.mean() for mask in bin_masks)]


def samples_of_problems(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    return torch.rand(items, generator=generator) < 0.3, torch.arange(items) % 4


def passes_of_subsets(correct: np.ndarray, problems: np.ndarray) -> list[float]:
    """Compute the mean over problems of the fraction of subsets of k samples that contain a correct one."""
    samples = [correct[problems == problem] for problem in np.unique(problems)]
    return [np.mean([np.mean([any(s) for s in itertools.combinations(one, k)]) for one in samples]) for k in (1, 3)]


BAD_SAMPLES = ((torch.ones(5), torch.arange(5)), (torch.ones(5).bool(), torch.arange(4)))


def judged(generator: Generator, items: int) -> tuple[Tensor, Tensor, Tensor]:
    first = torch.randint(3, (items,), generator=generator)
    second = (first + torch.randint(1, 3, (items,), generator=generator)) % 3
    return first, second, torch.randint(3, (items,), generator=generator).double() / 2


def strengths_by_ascent(first: np.ndarray, second: np.ndarray, outcome: np.ndarray) -> list[float]:
    """Maximize Davidson's likelihood, battle by battle, by Newton's method with a numeric Hessian."""
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
    (torch.rand(5), 1 - 2 * (torch.arange(5) % 2)),
)
LOGITS = (*BAD, (torch.tensor([0.5, 3.0]), torch.tensor([0, 1])))
METRICS = {
    "BinaryAUROC": MetricCase(uncertainty.BinaryAUROC, two_classes, auroc_by_pairs, bad=BAD, not_finite="nan"),
    "BinaryAveragePrecision": MetricCase(
        uncertainty.BinaryAveragePrecision, two_classes, precision_of_positives, bad=BAD, not_finite="nan"
    ),
    "BrierScore": MetricCase(
        uncertainty.BrierScore, three_classes, brier_score, rtol=1e-7, bad=LOGITS, not_finite="nan"
    ),
    "CalibrationError": MetricCase(
        lambda: uncertainty.CalibrationError(7),
        two_classes,
        calibration_error,
        rtol=1e-6,
        bad=LOGITS,
        not_finite="nan",
    ),
    "PassAtK": MetricCase(
        lambda: uncertainty.PassAtK((1, 3)),
        samples_of_problems,
        passes_of_subsets,
        bad=BAD_SAMPLES,
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
        not_finite=lambda position, value: LeftOut("no judgement") if value != value else "raises",
    ),
    "Uncertain": MetricCase(
        lambda: uncertainty.Uncertain(MeanSquaredError()),
        predictions_and_targets,
        lambda preds, target: [np.mean((preds - target) ** 2)],
        rtol=1e-6,
        not_finite="nan",
    ),
}


def numbers_of_samples(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    n = torch.randint(4, 30, (*batch_shape, 9), generator=generator)
    return n, (n * torch.rand(*batch_shape, 9, generator=generator)).round().long()


def three_models(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    preds = torch.randn(*batch_shape, 3, 14, generator=generator).mul(2).round()  # ties
    return (
        preds,
        torch.arange(14).expand(*batch_shape, 14) % 3 % 2,
        torch.randint(6, (*batch_shape, 14), generator=generator),
    )


def some_p_values(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor]:
    return (torch.rand(*batch_shape, 9, generator=generator).double() ** 2,)


def correct_finite_p_values(p_values: Tensor) -> tuple[Tensor, ...]:
    is_finite = p_values.isfinite()
    return tuple(
        torch.stack(
            [
                torch.full_like(row, torch.nan).masked_scatter(mask, uncertainty.correct_p_values(row[mask], how))
                for row, mask in zip(p_values, is_finite, strict=True)
            ]
        )
        for how in ("holm", "bh")
    )


def outcomes(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    wins, ties = torch.randint(0, 9, (2, *batch_shape, 4, 4), generator=generator).double()
    return wins, ties + ties.mT


def strengths_without_diagonal(wins: Tensor, ties: Tensor) -> tuple[Tensor, ...]:
    diagonal = torch.eye(4, dtype=torch.bool, device=wins.device)
    return functional.bradley_terry(*(counts.masked_fill(diagonal, 0) for counts in (wins, ties)))


FUNCTIONS = {
    "binary_auroc": FunctionCase(
        lambda *inputs: (functional.binary_auroc(*inputs), functional.binary_auroc(*inputs, inputs[0].double() + 1)),
        as_rows(two_classes),
        compiles=True,
        not_finite="nan",
    ),
    "binary_average_precision": FunctionCase(
        lambda *inputs: (functional.binary_average_precision(*inputs),), as_rows(two_classes), not_finite="nan"
    ),
    "bradley_terry": FunctionCase(
        lambda *inputs: functional.bradley_terry(*inputs),
        outcomes,
        rtol=1e-9,
        not_finite=LeftOut("the diagonal, which holds the first entry, is ignored", strengths_without_diagonal),
    ),
    "brier_score": FunctionCase(
        lambda *inputs: (functional.brier_score(*inputs),), as_rows(three_classes), rtol=1e-12, not_finite="nan"
    ),
    "calibration_error": FunctionCase(
        lambda *inputs: (functional.calibration_error(*inputs),), as_rows(two_classes), rtol=1e-12, not_finite="nan"
    ),
    "correct_p_values": FunctionCase(
        lambda p: tuple(uncertainty.correct_p_values(p, how) for how in ("holm", "bh")),
        some_p_values,
        not_finite=LeftOut("is no test; its corrected value is NaN", correct_finite_p_values),
    ),
    "delong": FunctionCase(
        lambda preds, target, groups: (*functional.delong(preds, target), *functional.delong(preds, target, groups)),
        three_models,
        rtol=1e-12,
        not_finite="nan",
    ),
    "pass_at_k": FunctionCase(
        lambda n, c: (functional.pass_at_k(n, c, (1, 4)), functional.pass_at_k(n, c, 3, require="all")),
        numbers_of_samples,
    ),
}
