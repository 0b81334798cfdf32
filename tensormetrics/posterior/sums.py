"""The four sums of a confusion matrix that metrics are made of: observed, or drawn from its posterior.

Rows of a matrix are the truth, columns the prediction; the matrix is divided by its total, so the sums of a class add
up to 1. Model: Tötsch & Hoffmann 2021, doi:10.7717/peerj-cs.398, for any number of classes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import _checks
from .dirichlet import DTYPES, chunks, dirichlet_prior, draw_log_gamma, non_negative, stream_keys

METHODS = "posterior", "prior", "random", "input"


class ConfusionSums(NamedTuple):
    """Shares of true positives, false positives, false negatives and true negatives per class, each (..., C)."""

    tp: Tensor
    fp: Tensor | None  # None where only the diagonal and the prevalence were drawn, as is tn
    fn: Tensor
    tn: Tensor | None

    @property
    def condition(self) -> Tensor:  # (..., C): the class is true
        return self.tp + self.fn

    @property
    def no_condition(self) -> Tensor:
        return self.fp + self.tn

    @property
    def predicted(self) -> Tensor:
        return self.tp + self.fp

    @property
    def not_predicted(self) -> Tensor:
        return self.fn + self.tn


def sums_from_matrices(matrices: Tensor) -> ConfusionSums:  # (..., C, C) -> (..., C)
    """The sums of observed matrices of counts >= 0, in float64; nan for a matrix of zeros."""
    _check_square("matrices", matrices)
    matrices = matrices.double()
    matrices = matrices / matrices.sum((-2, -1), keepdim=True)
    tp, wrong = matrices.diagonal(dim1=-2, dim2=-1), _without_diagonal(matrices)
    fp, tn = _column_sums(tp, wrong)
    return ConfusionSums(tp, fp, wrong.sum(-1), tn)


def sample_sums(
    counts: Tensor,  # (E, C, C), or (C, C) for E = 1
    num_samples: int,
    *,
    prevalence_prior: str | float | Any = 0,
    confusion_prior: str | float | Any = 0,
    method: str = "posterior",
    seed: int = 0,
    names: Sequence[str] | None = None,
    start: int = 0,
    need: str = "margins",
    dtype: torch.dtype = torch.float32,
) -> ConfusionSums:  # (S, E, C)
    """Sums of S = `num_samples` confusion matrices drawn for each matrix of `counts`.

    The prevalence is Dirichlet(prior + row sums), each row given the truth Dirichlet(prior + counts), independently;
    priors as in `dirichlet_prior`. `method`: "posterior"; "prior", without the counts; "random", a uniform guesser
    whose rows keep their concentration; "input", the observed matrix as the one sample, in float64.
    `need`: "diag" draws O(C) variates per sample and leaves `fp` and `tn` None, "margins" O(C^2); the numbers they
    share are equal. `names` (E, default "0", "1", ...) address the draws, which depend on nothing else: see
    `sample_log_gamma`. The arithmetic is float64, `dtype` that of the result. Memory is that of the result and a
    fixed scratch, or that of one sample's matrices where it does not fit.

    A row whose concentrations are all 0 contributes nothing. Raises ValueError for negative or non-finite counts.
    """
    _checks.one_of("method", method, METHODS)
    _checks.one_of("need", need, ("diag", "margins"))
    _checks.one_of("dtype", dtype, DTYPES)
    num_samples = _checks.integer_at_least("num_samples", num_samples, 0)
    _check_square("counts", counts)
    counts = counts.double()[None] if counts.ndim == 2 else counts.double()
    _checks.shape("counts", counts, "E", "C", "C")
    non_negative("counts", counts)
    if method == "input":
        return sums_from_matrices(counts[None])
    E, C, _ = counts.shape
    names = [str(e) for e in range(E)] if names is None else names
    if isinstance(names, str) or len(names) != E:
        raise ValueError(f"names: got {names!r}, wanted a list of {E}, one for each matrix of counts")

    if method == "prior":
        counts = torch.zeros_like(counts)
    prevalence = counts.sum(-1) + dirichlet_prior(prevalence_prior, (C,), argument="prevalence_prior").to(counts)
    cells = counts + dirichlet_prior(confusion_prior, (C, C), argument="confusion_prior").to(counts)
    if method == "prior" and not (prevalence.any(-1).all() and cells.any(-1).all()):
        raise ValueError("method: got 'prior' with an improper prior; give every row a concentration above 0")
    if method == "random":
        cells = cells.mean(-1, keepdim=True).expand_as(cells)
    spread = _without_diagonal(cells)
    split = torch.stack([cells.diagonal(dim1=-2, dim2=-1), spread.sum(-1)], -1)  # (E, C, 2): right or wrong

    prevalence_keys, split_keys, spread_keys = (
        stream_keys(seed, names, method, stream, counts.device) for stream in ("prevalence", "split", "spread")
    )
    size = C * C if need == "margins" else 2 * C
    out = counts.new_empty(4 if need == "margins" else 2, num_samples, E, C, dtype=dtype)
    for part, sample in chunks(start, num_samples, E * size, counts.device):
        share = _normalised_gammas(prevalence[:, None], prevalence_keys, sample).transpose(-2, -1)  # (s, E, C, 1)
        tp, fn = (share * _normalised_gammas(split, split_keys, sample)).unbind(-1)
        out[:2, part] = torch.stack([tp, fn])
        if need == "margins" and C == 2:  # there is only one wrong answer
            out[2:, part] = torch.stack([fn, tp]).flip(-1)
        elif need == "margins":
            wrong = fn[..., None] * _normalised_gammas(spread, spread_keys, sample)
            out[2:, part] = torch.stack(_column_sums(tp, wrong))
    tp, fn, fp, tn = (*out, None, None)[:4]
    return ConfusionSums(tp, fp, fn, tn)


def _normalised_gammas(alpha: Tensor, keys: Tensor, sample: Tensor) -> Tensor:
    # alpha: (E, R, K)  keys: (E, 2)  sample: (s,)  ->  (s, E, R, K), rows sum to 1, or to 0 where no alpha is positive
    return draw_log_gamma(alpha, keys, sample).softmax(-1).nan_to_num(0)


def _column_sums(tp: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    # tp: (..., C)  wrong: (..., C, C), 0 on its diagonal  ->  fp and tn: (..., C)
    return wrong.sum(-2), _sum_of_others(tp) + _without_diagonal(_sum_of_others(wrong)).sum(-2)


def _sum_of_others(x: Tensor) -> Tensor:  # (..., C) -> (..., C)
    """Each entry replaced by the sum of the others; never by subtraction, which would lose small sums."""
    before = pad(x[..., :-1], (1, 0)).cumsum(-1)
    after = pad(x[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
    return before + after


def _without_diagonal(matrices: Tensor) -> Tensor:  # (..., C, C) -> (..., C, C)
    return matrices * (1 - torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device))


def _check_square(name: str, matrices: Tensor) -> None:
    if matrices.ndim < 2 or matrices.shape[-2] != matrices.shape[-1] or matrices.shape[-1] < 2:
        raise ValueError(f"{name}: got shape {tuple(matrices.shape)}, wanted (..., C, C) with C >= 2")
