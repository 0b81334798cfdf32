"""Dirichlet and gamma variates in log space, each a function of its address (key, cell, sample) alone."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native import convergence
from ...core.native.device_cache import cached_per_device
from ...core.numbers.philox import philox_key
from . import operators

STRATEGIES = {
    **dict.fromkeys(("bayes-laplace", "bayes", "laplace", "ones", "one"), 1.0),
    **dict.fromkeys(("jeffreys", "jeffrey", "halves", "half"), 0.5),
    **dict.fromkeys(("haldane", "zeros", "zero"), 0.0),
}
DTYPES = torch.float32, torch.float64
MIN_CONCENTRATION = 2.0**-100  # concentration of a row
LARGEST = 1e37  # of a row of counts, and of one of a prior: of twice as much float32 can still draw


def dirichlet_prior(strategy: Any, shape: tuple[int, ...], *, argument: str = "strategy") -> Tensor:
    """Return prior concentrations (float64) of `shape`; the last axis is that of the distribution.

    Shapes: -> (...) = shape.

    `strategy`: a number >= 0 for every cell; an array of `shape`, up to axes of size 1, with finite entries >= 0; or
    "bayes-laplace" (also bayes, laplace, ones, one) 1, "jeffreys" (jeffrey, halves, half) 1/2, "haldane" (zeros, zero)
    0, "perks" 1 / (size of the last axis), which adds one observation per row for any number of classes; or, for square
    matrices (C, C), "balanced": 1 / (2 C) on the diagonal and 1 / (2 C (C - 1)) elsewhere, half of each row's 1 / C on
    the diagonal. With a prevalence prior "perks" that is one Dirichlet distribution over the full table, so that
    the accuracy is Beta(right + 1/2, wrong + 1/2), Jeffreys' law, for any number of classes.
    `argument` is its name in errors (ValueError).

    >>> dirichlet_prior("balanced", (3, 3))
    tensor([[0.1667, 0.0833, 0.0833],
            [0.0833, 0.1667, 0.0833],
            [0.0833, 0.0833, 0.1667]], dtype=torch.float64)
    """
    if isinstance(strategy, str):
        checks.check_choice(argument, strategy, ("perks", "balanced", *STRATEGIES))
        if strategy == "balanced":
            return _balanced(shape, argument)
        strategy = STRATEGIES[strategy] if strategy != "perks" else 1 / shape[-1]
    try:
        prior = checks.as_tensor(strategy, torch.float64)
    except (TypeError, ValueError, RuntimeError):
        expected = f"a word, a number or an array of shape {tuple(shape)}"
        raise ValueError(f"{argument}: got {strategy!r}, wanted {expected}") from None
    non_negative(argument, prior)
    if prior.ndim == 0:
        non_negative(argument, prior.expand(shape), rows=True)
        return prior.expand(shape)
    if prior.squeeze().shape != torch.Size(size for size in shape if size != 1):
        raise ValueError(f"{argument}: got an array of shape {tuple(prior.shape)}, wanted {tuple(shape)}")
    non_negative(argument, prior.reshape(shape), rows=True)
    return prior.reshape(shape)


def checked_prior(strategy: Any, shape: tuple[int, ...], argument: str) -> str | float | Tensor:
    """Check a prior, and return its name, number or tensor, as `prior_on_device` takes it."""
    if argument == "confusion_prior" and is_hierarchical(strategy):
        return strategy
    prior = dirichlet_prior(strategy, shape, argument=argument)
    return strategy if isinstance(strategy, str | float | int) else prior


def prior_on_device(like: Tensor, strategy: Any, shape: tuple[int, ...], argument: str) -> Tensor:
    """Return `dirichlet_prior` as float32 can draw from it; those of words and numbers are made once for a device."""
    if isinstance(strategy, str | float | int):
        return _prior(like, strategy, shape, argument)
    return _held_by_float32(dirichlet_prior(strategy, shape, argument=argument)).to(like.device)


@cached_per_device
def _prior(device: torch.device, strategy: str | float, shape: tuple[int, ...], argument: str) -> Tensor:
    prior = _held_by_float32(dirichlet_prior(strategy, shape, argument=argument))
    return prior.to(device, non_blocking=True)


def _held_by_float32(prior: Tensor) -> Tensor:
    # prior: (..., K)  ->  (..., K)
    """Scale rows of which all concentrations are below 2^-100 up to it.

    One cell gets all of the mass with the same odds, except with a probability of about 2^-90, and float32 holds the
    reciprocals."""
    largest = prior.amax(-1, keepdim=True)
    # The smallest ones have no reciprocal in float64.
    return torch.where((largest > 0) & (largest < MIN_CONCENTRATION), prior / largest * MIN_CONCENTRATION, prior)


def confusion_prior_of(strategy: Any, C: int) -> Tensor | Literal["hierarchical"]:
    # ->  (C, C), or the name of the prior that `hierarchical` draws
    """Return the prior that `confusion_prior` names; see `dirichlet_prior` and `sample_sums`."""
    if is_hierarchical(strategy):
        return "hierarchical"
    return dirichlet_prior(strategy, (C, C), argument="confusion_prior")


HIERARCHICAL_WITH_ITEMS = (
    "confusion_prior: got 'hierarchical' with items or groups, wanted another such as 'balanced': its rates are drawn "
    "given the counts of all classes and are no weighted sums of items, so that pairs and groups share no weights"
)


def is_hierarchical(strategy: Any) -> bool:
    return isinstance(strategy, str) and strategy == "hierarchical"


def _balanced(shape: tuple[int, ...], argument: str) -> Tensor:  # (..., C, C)
    C = shape[-1]
    if len(shape) < 2 or shape[-2] != C or C < 2:
        raise ValueError(f"{argument}: got 'balanced' for shape {tuple(shape)}, wanted (C, C); write 'perks'")
    prior = torch.full((C, C), 1 / (2 * C * (C - 1)), dtype=torch.float64, device="cpu")
    return prior.fill_diagonal_(1 / (2 * C)).expand(shape)


@takes_arrays
def sample_log_gamma(
    alpha: Tensor,
    replicates: int,
    *,
    seed: int = 0,
    name: str = "",
    method: str = "posterior",
    stream: str = "prevalence",
    start: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw logarithms of S = `replicates` Gamma(alpha, 1) variates by Marsaglia & Tsang's method.

    Shapes: alpha: (..., K) -> (S, ..., K).

    A variate depends on its address alone: `seed`, `name`, `method`, `stream`, its index in `alpha` and its
    sample number, which counts from `start`. Shards join: [0, 5) and [5, 9) are [0, 9). alpha = 0 gives -inf.
    `dtype`, float32 or float64, is that of the arithmetic too: in float32 they agree with float64 to 1e-5 for alpha >=
    0.1 and to 1e-6 / alpha below, times max(1, |log G|), except for at most 1e-4 of them, where a rounding error
    decides whether a proposal is accepted.

    Raises ValueError for an alpha that is negative, not finite or above 1e37. Reference: doi:10.1145/358407.358414.

    >>> sample_log_gamma(torch.tensor([2.0, 0.0]), 3).shape, sample_log_gamma(torch.tensor([0.0]), 1)
    (torch.Size([3, 2]), tensor([[-inf]]))
    """
    checks.shape("alpha", alpha, "...", "K")
    checks.check_choice("dtype", dtype, DTYPES)
    replicates = checks.check_int("replicates", replicates, 0)
    start = checks.check_int("start", start, 0)
    rows = alpha.double().reshape(1, math.prod(alpha.shape[:-1]), alpha.shape[-1]).contiguous()
    non_negative("alpha", rows)
    out = torch.empty(*rows.shape, replicates, dtype=dtype, device=alpha.device)
    operators.log_gamma(out, rows, stream_keys(seed, [name], method, stream, alpha.device), start)
    return out.view(*alpha.shape, replicates).movedim(-1, 0)


@takes_arrays
def sample_dirichlet(
    alpha: Tensor,
    replicates: int,
    *,
    dtype: torch.dtype = torch.float32,
    **address: Any,
) -> Tensor:
    """Draw Dirichlet(alpha) vectors, each summing to 1: the softmax of `sample_log_gamma`, whose arguments it takes.

    Shapes: alpha: (..., K) -> (S, ..., K).

    Any alpha > 0 gives finite vectors, alpha = 0 an exact 0, a row of nothing but zeros nan.

    >>> shares = sample_dirichlet(torch.tensor([2.0, 3.0, 5.0]), 1000)
    >>> shares.shape, shares.mean(0).sum().round(decimals=3)
    (torch.Size([1000, 3]), tensor(1.))
    """
    checks.check_choice("dtype", dtype, DTYPES)
    return sample_log_gamma(alpha, replicates, dtype=torch.float64, **address).softmax(-1).to(dtype)


def normalised(log_masses: Tensor) -> Tensor:  # (..., K, S) -> (S, ..., K)
    """Return fractions that sum to 1, or to 0 where no mass is positive."""
    rows = log_masses.movedim(-1, 0)
    return rows.softmax(-1).masked_fill_((rows == -torch.inf).all(-1, keepdim=True), 0)


def stream_keys(seed: int, names: Sequence[str], method: str, stream: str, device: torch.device) -> Tensor:  # (E, 2)
    seed = checks.check_int("seed", seed, 0)
    keys = [philox_key(seed, name, method, stream) for name in names]
    return torch.tensor(keys, dtype=torch.int64, device="cpu").reshape(-1, 2).to(device, non_blocking=True)


def check_later(counts: Tensor) -> Callable[[], None]:
    # counts: (..., C, C)
    """Queue the check of counts, and return a function that waits for it alone and raises the error of `non_negative`.

    On the CPU it is over when this returns.
    """
    check = functools.partial(non_negative, "counts", counts, rows=True)
    if counts.device.type == "cpu" or not counts.numel():
        check()
        return lambda: None
    if counts.is_floating_point():
        smallest, valid = ((counts >= 0) & (counts.sum(-1, keepdim=True) <= LARGEST)).all(), 1
    else:
        smallest, valid = counts.amin(), 0
    copy = convergence.Copy(smallest)
    return lambda: None if copy.read() >= valid else check()


def non_negative(name: str, tensor: Tensor, rows: bool = False) -> None:
    """Raise a ValueError unless entries are >= 0 and they, or with `rows` the sums of rows, are at most LARGEST."""
    sums = tensor.sum(-1, keepdim=True) if rows else tensor
    if not torch.all((tensor >= 0) & (sums <= LARGEST)):
        finite = (tensor >= 0).all() and tensor.isfinite().all()
        expected = f"at most {LARGEST:g}{' in a row' * rows}" if finite else "finite ones >= 0"
        raise ValueError(f"{name}: got entries from {tensor.min()} to {tensor.max()}, wanted {expected}")
