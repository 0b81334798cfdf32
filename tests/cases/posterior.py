"""Rows of the posterior domain."""

from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_leaves

from tensormetrics import posterior
from tensormetrics.posterior import functional

from .case import FunctionCase, LeftOut, MetricCase
from .statistics import experiments


def confusion_inputs(generator: Generator, items: int) -> tuple[Tensor, Tensor]:
    target = torch.randint(0, 3, (items,), generator=generator)
    logits = torch.randn(items, 3, generator=generator) + 2 * torch.nn.functional.one_hot(target, 3)
    return logits, target


def posterior_of_counts(logits: np.ndarray, target: np.ndarray) -> list[float]:
    """Compute the observed accuracy and the narrowest 95 % interval of the sampled one, counting one item at a time."""
    counts = np.zeros((3, 3))
    for row, label in zip(logits, target, strict=True):
        counts[int(label), int(np.argmax(row))] += 1
    sums = functional.sample_sums(
        torch.from_numpy(counts),
        500,
        names=["posterior"],
        need="diag",
    )
    accuracy = np.sort((sums.tp.double().sum(-1) / (sums.tp + sums.fn).double().sum(-1)).numpy()[:, 0])
    num_covered = int(0.95 * len(accuracy))
    start = int(np.argmin(accuracy[num_covered:] - accuracy[:-num_covered]))
    return [np.trace(counts) / counts.sum(), accuracy[start], accuracy[start + num_covered]]


def largest(logits: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    metric = METRICS["ConfusionPosterior"].make().to(logits.device)
    metric.update(logits.nan_to_num(posinf=1e6, neginf=-1e6), target)
    return tuple(tree_leaves(metric.compute()))


METRICS = {
    "ConfusionPosterior": MetricCase(
        lambda: posterior.ConfusionPosterior(3, ["acc"], replicates=500),
        confusion_inputs,
        posterior_of_counts,
        rtol=1e-6,  # the samples are float32
        forward_is_compute=False,
        bad=(
            (torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64)),
            (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)),
            (torch.zeros(4, dtype=torch.int64), torch.full((4,), 3)),
            (torch.full((4,), -1), torch.zeros(4, dtype=torch.int64)),
            (torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)),
            (torch.zeros(4, 3), torch.zeros(4)),
        ),
        not_finite=lambda position, value: (
            "raises" if value != value else LeftOut("is the largest or smallest", largest)
        ),
    ),
}

SCORES = ["acc", "ba+adjusted=True", "mcc", "kappa", "tpr", "fbeta+beta=2.0", "log_plr+clamp=True", "log_dor", "p4"]
SCORES += [
    "f1_gain",
    "rmse",
    "pwkappa+power=2.0",
    "f1@macro",
    "jaccard@micro",
    "tnr@weighted",
    "npv@harmonic",
    "ppv@max",
]


def matrices(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (torch.randint(0, 20, (*batch_shape, 5, 5), generator=generator),)


def heterogeneity(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(functional.estimate_i2(x.movedim((-2, -1), (0, 1)))[:3])


SAMPLING_OPTIONS = {"seed": 3, "prevalence_prior": "perks", "confusion_prior": "perks"}


def sampled(function: Any, **options: Any) -> FunctionCase:
    """Make a row of a function of random draws.

    Draws are addressed by name: each experiment is named after its matrix, so it has the same draws in every batch.
    """

    def call(counts: Tensor) -> tuple[Tensor, ...]:
        flat = counts.reshape(-1, 5, 5)
        samples = function(flat, 40, names=[str(matrix) for matrix in flat.tolist()], **SAMPLING_OPTIONS, **options)
        leaves = [leaf for leaf in tree_leaves(samples) if isinstance(leaf, Tensor)]
        return tuple(leaf.movedim(0, -1).reshape(*counts.shape[:-2], *leaf.shape[2:], 40) for leaf in leaves)

    return FunctionCase(call, matrices)


FUNCTIONS = {
    "sample_sums": sampled(functional.sample_sums),
    "sample_confusion_matrices": sampled(functional.sample_confusion_matrices),
    "sample_metrics": sampled(lambda counts, n, **options: functional.sample_metrics(counts, SCORES[:4], n, **options)),
    "sums_from_matrices": FunctionCase(lambda counts: tuple(functional.sums_from_matrices(counts)[:4]), matrices),
    "estimate_i2": FunctionCase(
        heterogeneity,
        lambda g, batch_shape: experiments(g, batch_shape)[:1],
        rtol=1e-9,
        not_finite=LeftOut("such samples of an experiment are left out"),
    ),
    "get_metric": FunctionCase(
        lambda counts: tuple(posterior.get_metric(metric)(counts) for metric in SCORES),
        matrices,
        rtol=1e-12,
    ),
}
