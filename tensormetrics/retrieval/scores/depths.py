"""Ranks, and one or several cutoffs k, as functions of ranks and metrics accept them."""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.native import gpu_kernels
from ..ranking.positive_ranks import PositiveRanks
from ..search.direct_search import MAX_NEIGHBORS

Depths = int | Sequence[int]
Score = Callable[[PositiveRanks], Tensor]
P = ParamSpec("P")
R = TypeVar("R")


def takes_ranks(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function whose first argument is `ranks`, so that other types are a TypeError."""

    @functools.wraps(function)
    def check(*args: P.args, **kwargs: P.kwargs) -> R:
        ranks = args[0] if args else kwargs.get("ranks")
        if not isinstance(ranks, PositiveRanks):
            message = f"ranks: got a {type(ranks).__name__}, wanted PositiveRanks"
            raise TypeError(f"{message}; write {function.__name__}(positive_ranks(embeddings, labels), ...)")
        return function(*args, **kwargs)

    return checks.takes_arrays(check)


def at_depths(k: Depths, score: Callable[[int], Tensor]) -> Tensor:
    # score: k  ->  (..., Q)
    """Compute the score at k, (..., Q), or at each of several k, (..., Q, K)."""
    k = checked_depths(k)
    return score(k) if isinstance(k, int) else torch.stack([score(depth) for depth in k], -1)


def checked_depths(k: Depths) -> int | tuple[int, ...]:
    """Check k: one integer >= 1, or one or more distinct ones."""
    if isinstance(k, str) or not isinstance(k, Sequence):
        return checks.check_int("k", k, 1)
    depths = tuple(checks.check_int("k", depth, 1) for depth in k)
    if not depths or len(set(depths)) < len(depths):
        raise ValueError(f"k: got {k!r}, wanted an integer >= 1, or one or more such integers that differ")
    return depths


def score_kernels(rank: Tensor) -> ModuleType | None:
    """Return the module of the Triton kernels of scores if they can score these ranks."""
    fits = not torch.compiler.is_compiling() and rank.ndim == 2 and len(rank) > 0 and 0 < rank.shape[1] <= MAX_NEIGHBORS
    if not fits or not gpu_kernels.can_use("neighbor scores", rank.device):
        return None
    from ..search.kernels import scores

    return scores


def scores_at(
    k: Depths | None, function: Callable[..., Tensor], **options: str
) -> tuple[Score | dict[str, Score], int | None]:
    """Return the score of a metric, for several k by names such as "recall_at_5", and the largest k."""
    if k is None:
        return functools.partial(function, **options), None
    k = checked_depths(k)
    if isinstance(k, int):
        return functools.partial(function, k=k, **options), k
    return {f"{function.__name__}_at_{depth}": functools.partial(function, k=depth, **options) for depth in k}, max(k)
