"""The four sums of a confusion matrix that metrics are made of: observed, or drawn from its posterior.

Rows of a matrix are the truth, columns the prediction; the matrix is divided by its total, so the sums of a class add
up to 1. Model: Tötsch & Hoffmann 2021, doi:10.7717/peerj-cs.398, for any number of classes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native.device_cache import cached_per_device
from . import operators
from .dirichlet import DTYPES, check_later, is_hierarchical, normalised, prior_on_device, stream_keys
from .hierarchical import sample_splits
from .reference import column_sums, without_diagonal
from .stick_breaking import draw_wrong_answers, in_groups

Method = Literal["posterior", "prior", "random", "input"]
METHODS: tuple[Method, ...] = get_args(Method)
NEEDS = "diag", "margins", "weighted"

CPU = torch.device("cpu")
INTEGERS = torch.int32, torch.int64  # of counts: their sums and differences are exact
TILE = 2**23  # cells of matrices at a time


class ConfusionSums(NamedTuple):
    """Shares of true positives, false positives, false negatives and true negatives per class, each (..., C)."""

    tp: Tensor
    fp: Tensor | None  # None where only the diagonal and the prevalence were drawn, as is tn
    fn: Tensor
    tn: Tensor | None
    weighted: Tensor | None = None  # (..., W): sums of the cells under given weights


@takes_arrays
def sums_from_matrices(matrices: Tensor, weights: Tensor | None = None) -> ConfusionSums:
    """Compute the sums of observed matrices of counts >= 0, in float64; nan if their total is 0 or not finite.

    Shapes: matrices: (..., C, C); weights: (W, C, C) -> (..., C) and (..., W).

    >>> counts = torch.tensor([[90, 10], [12, 88]])
    >>> sums_from_matrices(counts).tp
    tensor([0.4500, 0.4400], dtype=torch.float64)
    """
    _check_square("matrices", matrices)
    if weights is not None:
        checks.same_device(matrices=matrices, weights=weights)
        checks.shape("weights", weights, "W", *matrices.shape[-2:])
    if weights is None and matrices.dtype in INTEGERS:
        return _sums_of_integers(matrices)
    matrices = normalize_counts(matrices)
    tp, wrong = matrices.diagonal(dim1=-2, dim2=-1), without_diagonal(matrices)
    fp, tn = column_sums(tp, wrong)
    weighted = None if weights is None else torch.einsum("wij,...ij->...w", weights.to(matrices), matrices)
    return ConfusionSums(tp, fp, wrong.sum(-1), tn, weighted)


def _sums_of_integers(matrices: Tensor) -> ConfusionSums:
    right, true, pred = matrices.diagonal(dim1=-2, dim2=-1), matrices.sum(-1), matrices.sum(-2)
    total = true.sum(-1, keepdim=True)
    counts = torch.stack([right, pred - right, true - right, total - true - pred + right])
    return ConfusionSums(*(counts.double() / total.double()).unbind())


@takes_arrays
def sample_sums(
    counts: Tensor,
    replicates: int,
    *,
    prevalence_prior: str | float | Any = "perks",
    confusion_prior: str | float | Any = "balanced",
    method: Method = "posterior",
    seed: int = 0,
    names: Sequence[str] | None = None,
    start: int = 0,
    need: str = "margins",
    weights: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> ConfusionSums:
    """Draw S = `replicates` confusion matrices for each matrix of `counts`, and return their sums.

    Shapes: counts: (E, C, C), or (C, C) for E = 1; weights: (W, C, C) -> (S, E, C), weighted (S, E, W).

    The prevalence is Dirichlet(prior + row sums), each row given the truth Dirichlet(prior + counts), independently;
    priors as in `dirichlet_prior`. With the confusion prior "hierarchical" the true positive rates are Beta(m r,
    m (1 - r)) with one r and m for all classes, drawn from their posterior, and errors are distributed as by
    "balanced": for macro scores and rates of classes with 5 to 20 items each, where intervals of every fixed prior
    are too narrow.
    It takes no items: rates drawn given the counts of all classes are no weighted sums of items, so that pairs (`ids`)
    and `groups` have no weights to share; give these "balanced", or leave them out where items are independent.
    `method`: "posterior"; "prior", without the counts; "random", a uniform guesser whose rows keep their concentration
    ("hierarchical" counts as "balanced"); "input", the observed matrix as the one sample, in float64.
    `need`: "diag" draws O(C) variates per sample and leaves `fp` and `tn` None, "margins" O(C^2); "weighted", which
    `weights` imply, adds the sum of w_ij times cell ij for each of them. The numbers they share are equal.
    `names` (E, default "0", "1", ...) address the draws, which depend on nothing else, numbered from `start`: see
    `sample_log_gamma`. Sums are float64, variates and results of `dtype`. Memory is that of the result and of one row
    of 64 samples per thread.

    The n >= 64 cells of errors with the smallest concentration a of their row, a <= 1/256 and n a <= 16, are drawn by
    their largest masses, down to 2^-53 of the row, and by the largest other mass of each column.
    Metrics have the law of the Dirichlet; the single cells of a row that were not drawn are exact zeros. Numbers below
    the smallest of `dtype` (1e-38, 1e-308) are 0, as in any draw: rates of a class with neither true nor predicted
    items may be 0 / 0, which is nan or `zero_division`, and x / 0 = inf.

    A row whose concentrations are all 0 contributes nothing. Raises ValueError for counts that are negative or not
    finite, or add up to more than 1e37 in a row, and for "prior" with such a row.

    >>> counts = torch.tensor([[90, 10], [12, 88]])
    >>> sums = sample_sums(counts, 1000)
    >>> sums.tp.shape, round(float((sums.tp + sums.fn).sum(-1).mean()), 3)
    (torch.Size([1000, 1, 2]), 1.0)
    """
    checks.check_choice("need", need, NEEDS)
    counts, names, replicates = _checked(counts, replicates, method, names, dtype)
    finish_check = check_later(counts)
    E, C, _ = counts.shape
    if weights is not None:
        checks.same_device(counts=counts, weights=weights)
        checks.shape("weights", weights, "W", C, C)
        weights = weights.double().contiguous()
    elif need == "weighted":
        raise ValueError("weights: got None with need='weighted', wanted a tensor (W, C, C)")
    if method == "input":
        finish_check()
        return sums_from_matrices(counts[None], weights)
    model = _model(counts, prevalence_prior, confusion_prior, method)
    start = checks.check_int("start", start, 0)
    if model.right is not None:
        finish_check()
        return _shared_sums(model, weights, need, dtype, replicates, seed=seed, names=names, method=method, start=start)
    keys = _keys(counts, checks.check_int("seed", seed, 0), tuple(names), method)
    W = 0 if weights is None else len(weights)
    diagonal = need == "diag" and weights is None
    sizes = [C, C] if diagonal else [C, C, C, C, W]
    out = torch.empty(E, sum(sizes), replicates, dtype=dtype, device=counts.device)
    operators.dirichlet_sums(out, model.prevalence, model.cells, weights, keys, start)
    finish_check()  # while the device draws
    parts = out.movedim(-1, 0).split(sizes, -1)
    if diagonal:
        tp, fn = parts
        return ConfusionSums(tp, None, fn, None)
    tp, fn, fp, tn, weighted = parts
    if weights is None:
        return ConfusionSums(tp, fp, fn, tn)
    # Cells without mass are not added, whatever they weigh.
    return ConfusionSums(tp, fp, fn, tn, torch.where(weights.isfinite().all((-2, -1)), weighted, torch.nan))


@takes_arrays
def sample_confusion_matrices(
    counts: Tensor,
    replicates: int,
    *,
    prevalence_prior: str | float | Any = "perks",
    confusion_prior: str | float | Any = "balanced",
    method: Method = "posterior",
    seed: int = 0,
    names: Sequence[str] | None = None,
    start: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw the matrices whose sums `sample_sums` returns, each summing to 1.

    Shapes: counts: (E, C, C), or (C, C) for E = 1 -> (S, E, C, C).

    They are drawn in float64, in chunks: besides the result about 0.5 GB are used, or the memory of one sample if it
    is larger. Sums that `sample_sums` draws in float32 are others in at most 1e-4 of the samples, where
    a rounding error decides whether a proposal is accepted.

    >>> counts = torch.tensor([[90, 10], [12, 88]])
    >>> matrices = sample_confusion_matrices(counts, 1000)
    >>> matrices.shape, matrices.sum((-2, -1)).mean().round(decimals=3)
    (torch.Size([1000, 1, 2, 2]), tensor(1.))
    """
    counts, names, replicates = _checked(counts, replicates, method, names, dtype)
    check_later(counts)()
    if method == "input":
        return normalize_counts(counts[None])
    model = _model(counts, prevalence_prior, confusion_prior, method)
    start = checks.check_int("start", start, 0)
    draws: dict[str, Any] = {"seed": seed, "names": names, "method": method, "start": start}
    right, wrong = _right_and_wrong(model, replicates, **draws)
    out = torch.empty(*right.shape, right.shape[-1], dtype=dtype, device=right.device)
    for part, cells in _error_cells(model, wrong, **draws):
        out[part] = cells
    out.diagonal(dim1=-2, dim2=-1).copy_(right)
    return out


@cached_per_device
def _keys(device: torch.device, seed: int, names: tuple[str, ...], method: str) -> Tensor:  # (E, 3, 2)
    keys = [stream_keys(seed, names, method, stream, CPU) for stream in ("prevalence", "split", "spread")]
    return torch.stack(keys, 1).to(device, non_blocking=True)


class _Model(NamedTuple):
    """The concentrations of what is drawn."""

    prevalence: Tensor  # (E, C)
    cells: Tensor  # (E, C, C)
    right: Tensor | None  # (E, C) counts of right answers, where the classes share a prior
    wrong: Tensor | None


def _shared_sums(
    model: _Model, weights: Tensor | None, need: str, dtype: torch.dtype, replicates: int, **draws: Any
) -> ConfusionSums:
    tp, fn = _right_and_wrong(model, replicates, **draws)
    if need == "diag" and weights is None:
        return ConfusionSums(tp.to(dtype), None, fn.to(dtype), None)
    fp, tn = torch.empty_like(tp), torch.empty_like(tp)
    weighted = None if weights is None else tp.new_empty(*tp.shape[:-1], len(weights))
    for part, cells in _error_cells(model, fn, **draws):
        fp[part], tn[part] = column_sums(tp[part], cells)
        if weights is not None and weighted is not None:
            matrices = torch.diag_embed(tp[part]) + cells
            weighted[part] = torch.einsum("wij,...ij->...w", weights, matrices)
    weighted = None if weighted is None else weighted.to(dtype)
    return ConfusionSums(tp.to(dtype), fp.to(dtype), fn.to(dtype), tn.to(dtype), weighted)


def _right_and_wrong(
    model: _Model, replicates: int, *, seed: int, names: Sequence[str], method: str, start: int
) -> tuple[Tensor, Tensor]:
    # ->  the diagonal and the sum of the other cells in each row, (S, E, C) each
    def draw(stream: str, alpha: Tensor) -> Tensor:  # (E, R, K) -> (S, E, R, K)
        keys = stream_keys(seed, names, method, stream, alpha.device)
        return normalised(_logs(alpha, replicates, keys, start))

    off_diagonal = without_diagonal(model.cells)
    if model.right is None or model.wrong is None:
        split = draw("split", torch.stack([model.cells.diagonal(dim1=-2, dim2=-1), off_diagonal.sum(-1)], -1))
    else:
        split = sample_splits(model.right, model.wrong, replicates, seed=seed, names=names, method=method, start=start)
    prevalence = draw("prevalence", model.prevalence[:, None]).transpose(-2, -1)
    right, wrong = (prevalence * split).unbind(-1)
    return right, wrong


def _error_cells(
    model: _Model, wrong: Tensor, *, seed: int, names: Sequence[str], method: str, start: int
) -> Iterator[tuple[slice, Tensor]]:
    # wrong: (S, E, C)  ->  some samples, and the cells (s, E, C, C) their wrong answers lie in, TILE at a time or one
    off_diagonal = without_diagonal(model.cells)
    group = in_groups(off_diagonal)
    keys = stream_keys(seed, names, method, "spread", off_diagonal.device)
    tile = max(1, TILE // max(1, off_diagonal.numel()))
    for first in range(0, len(wrong), tile):
        part = slice(first, first + tile)
        errors = wrong[part]
        if group is None:
            yield part, errors[..., None] * normalised(_logs(off_diagonal, len(errors), keys, start + first))
        else:
            sample = torch.arange(start + first, start + first + len(errors), device=off_diagonal.device)
            logs = (
                _logs(off_diagonal.masked_fill(group, 0), len(errors), keys, start + first).movedim(-1, 0).contiguous()
            )
            yield part, draw_wrong_answers(errors, logs, off_diagonal, group, keys, sample)


def _logs(alpha: Tensor, replicates: int, keys: Tensor, start: int) -> Tensor:  # (E, R, K) -> (E, R, K, S)
    out = alpha.new_empty(*alpha.shape, replicates)
    operators.log_gamma(out, alpha.contiguous(), keys, start)
    return out


def _checked(
    counts: Tensor, replicates: int, method: Method, names: Sequence[str] | None, dtype: torch.dtype
) -> tuple[Tensor, Sequence[str], int]:  # counts: (E, C, C)
    checks.check_choice("method", method, METHODS)
    checks.check_choice("dtype", dtype, DTYPES)
    replicates = checks.check_int("replicates", replicates, 0)
    _check_square("counts", counts)
    counts = counts[None] if counts.ndim == 2 else counts
    checks.shape("counts", counts, "E", "C", "C")
    counts = counts if counts.dtype in INTEGERS else counts.double()
    names = [str(e) for e in range(len(counts))] if names is None else names
    if isinstance(names, str) or not hasattr(names, "__len__") or len(names) != len(counts):
        raise ValueError(f"names: got {names!r}, wanted a list of {len(counts)}, one for each matrix of counts")
    return counts, names, replicates


def _model(counts: Tensor, prevalence_prior: Any, confusion_prior: Any, method: Method) -> _Model:
    # counts: (E, C, C)
    C = counts.shape[-1]
    if method == "prior":
        counts = torch.zeros_like(counts)
    shared = is_hierarchical(confusion_prior)
    prior = prior_on_device(counts, prevalence_prior, (C,), "prevalence_prior")
    prevalence = counts.sum(-1, dtype=torch.float64) + prior
    prior = prior_on_device(counts, "balanced" if shared else confusion_prior, (C, C), "confusion_prior")
    cells = counts + prior  # float64
    if method == "prior" and not (prevalence.any(-1).all() and cells.any(-1).all()):
        raise ValueError("method: got 'prior' with an improper prior; give every row a concentration above 0")
    if method == "random":
        cells = cells.mean(-1, keepdim=True).expand_as(cells)
    if not shared or method == "random":
        return _Model(prevalence.contiguous(), cells.contiguous(), None, None)
    counts = counts.double()
    right, wrong = counts.diagonal(dim1=-2, dim2=-1), without_diagonal(counts).sum(-1)
    return _Model(prevalence.contiguous(), cells.contiguous(), right, wrong)


def normalize_counts(matrices: Tensor) -> Tensor:  # (..., C, C), summing to 1
    """Divide counts by their total, in float64; nan where that is 0 or not finite."""
    if matrices.dtype in INTEGERS:
        return matrices / matrices.sum((-2, -1), dtype=torch.float64, keepdim=True)
    matrices = matrices.double()
    total = matrices.sum((-2, -1), keepdim=True)
    return matrices / torch.where(total.isfinite(), total, torch.nan)


def _check_square(name: str, matrices: Tensor) -> None:
    checks.tensor(name, matrices)
    if matrices.ndim < 2 or matrices.shape[-2] != matrices.shape[-1] or matrices.shape[-1] < 2:
        raise ValueError(f"{name}: got shape {tuple(matrices.shape)}, wanted (..., C, C) with C >= 2")
