"""Confusion matrices of several experiments on the same items, drawn together.

Every item has one random weight in all experiments, by the Bayesian bootstrap (Rubin 1981,
doi:10.1214/aos/1176345338): sums of weights are gamma variates, so that an experiment by itself has the posterior it
has without the others. Items that all experiments classify correctly no longer add variance to their differences.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.resampling.weights import joined, weighted_sums
from . import operators
from .dirichlet import DTYPES, HIERARCHICAL_WITH_ITEMS, confusion_prior_of, dirichlet_prior, normalised, stream_keys


class PairedItems(NamedTuple):
    """Items that experiments have in common, under a label, and the cell truth * C + prediction each fell into."""

    label: str
    cells: Tensor  # (N,) for one experiment, or (E, N)
    groups: Tensor | None = None  # (N,) int64, equal for items that share a weight


@takes_arrays
def sample_paired_matrices(
    items: PairedItems,
    num_classes: int,
    replicates: int,
    *,
    prevalence_prior: str | float | Any = "perks",
    confusion_prior: str | float | Any = "balanced",
    seed: int = 0,
    names: Sequence[str] | None = None,
    start: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw S = `replicates` matrices, each summing to 1, for each of E experiments; as `sample_confusion_matrices`.

    Shapes: items.cells: (E, N) -> (S, E, C, C).

    With `items.groups`, such as patients or documents, all items of a group have the same weight, and the prevalence
    too is that of the weighted items.

    The prevalence and the weights of the items are drawn under the label of the items, the mass of the confusion prior
    under `names` (E, default "0", "1", ...). Items are read in tiles; weights of all of them are never in memory.

    >>> cells = torch.tensor([[0, 1, 3, 3, 2], [0, 0, 3, 3, 3]])  # truth * 2 + prediction of two models
    >>> sample_paired_matrices(PairedItems("test", cells), 2, 1000).shape
    torch.Size([1000, 2, 2, 2])
    """
    C = checks.check_int("num_classes", num_classes, 2)
    replicates = checks.check_int("replicates", replicates, 0)
    start = checks.check_int("start", start, 0)
    checks.check_choice("dtype", dtype, DTYPES)
    checks.integral("items.cells", items.cells)
    cells = torch.atleast_2d(items.cells).long().contiguous()
    checks.shape("items.cells", cells, "E", "N")
    E, device = len(cells), cells.device
    if cells.numel() and not 0 <= cells.min() <= cells.max() < C * C:
        raise ValueError(f"items.cells: got {cells.min()} to {cells.max()}, wanted 0 to {C * C - 1} for {C} classes")
    if items.groups is not None:
        checks.integral("items.groups", items.groups)
        checks.shape("items.groups", items.groups, cells.shape[1])
    names = [str(e) for e in range(E)] if names is None else names
    shared = f"items:{items.label}"
    masses = torch.empty(E, C * C, replicates, dtype=torch.float64, device=device)
    if items.groups is None:
        operators.item_sums(masses, cells, *stream_keys(seed, [shared], "posterior", "items", device), start)
    else:
        _group_sums(masses, cells, items.groups.to(device, torch.int64), seed, shared, start)

    def log_gamma(alpha: Tensor, names: Sequence[str], stream: str) -> Tensor:  # (E, R, K) -> (E, R, K, S)
        out = alpha.new_empty(*alpha.shape, replicates)
        operators.log_gamma(out, alpha.contiguous(), stream_keys(seed, names, "posterior", stream, device), start)
        return out

    rows = torch.zeros(E, C, dtype=torch.float64, device=device)
    rows.scatter_add_(1, cells // C, torch.ones_like(cells, dtype=torch.float64))
    prevalence = rows + dirichlet_prior(prevalence_prior, (C,), argument="prevalence_prior").to(device)
    cell_prior = confusion_prior_of(confusion_prior, C)
    if not isinstance(cell_prior, Tensor):
        raise ValueError(HIERARCHICAL_WITH_ITEMS)
    prior = cell_prior.to(device).expand(E, C, C)
    logs = torch.logaddexp(masses.log().view(E, C, C, replicates), log_gamma(prior, names, "prior-mass"))
    if items.groups is None:
        prevalences = log_gamma(prevalence[:, None], [shared] * E, "prevalence")
    else:
        prior_prevalences = log_gamma((prevalence - rows)[:, None], [shared] * E, "prevalence")
        prevalences = torch.logaddexp(masses.view(E, 1, C, C, replicates).sum(3).log(), prior_prevalences)
    prevalences = normalised(prevalences)  # (S, E, 1, C)
    return (prevalences.mT * normalised(logs)).to(dtype)


def _group_sums(out: Tensor, cells: Tensor, groups: Tensor, seed: int, name: str, start: int) -> None:
    # out: (E, C * C, S)  cells: (E, N)  groups: (N,)
    first = start - start % 8  # eight samples share a draw
    for sums, cell in zip(out, cells, strict=True):
        pairs, count = torch.stack([groups, cell], 1).unique(dim=0, return_counts=True)
        options = {"cells": pairs[:, 1], "width": len(sums), "name": name, "start": first}
        rows, replicates = count[:, None].double(), sums.shape[1] + start - first
        weighted = weighted_sums(rows, pairs[:, 0], replicates, seed, **options)
        sums.copy_(joined(weighted[0])[start - first :, :, 0].T)
