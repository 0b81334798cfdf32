"""p-values of scores that are no sums over words: every partition of the target words is scored anew."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from . import _sets
from ._random import stream
from .permutation import chunks, is_exact, joined, present_first, random_partitions

MOST_PARTITIONS = 20_000


@torch.no_grad()
def target_permutation_p_value(
    metric: Callable[..., Tensor],
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    alternative: str = "right-sided",
    method: str = "auto",
    iterations: int = 10000,
    seed: int | None = 0,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
) -> Tensor:
    # x: (..., X, D)  y: (..., Y, D)  a: (..., A, D)  masks: (..., X), (..., Y), (..., A)  ->  (...) float64, in (0, 1]
    """How often is a score of targets x and y as extreme when their words are partitioned at random into these sizes?

    `metric` is `rnd`, `ect` or `example_metric`, or another of this package with these sets. "exact" scores all
    partitions, up to 20,000 of them and for targets without masks; "auto" does so whenever it can; the rest as in
    `permutation_p_value`. Scores within 2^-40 (relative, above 1) of the observed one count as equal to it, NaN scores
    as not extreme; NaN where the observed score is NaN.
    """
    observed = metric(x, y, a, x_mask=x_mask, y_mask=y_mask, a_mask=a_mask)  # its own checks come first
    sets = _sets.read(x=(x, x_mask), y=(y, y_mask))
    n, places = x.shape[-2], x.shape[-2] + y.shape[-2]
    ragged = x_mask is not None or y_mask is not None
    most = 0 if ragged else MOST_PARTITIONS
    exact = is_exact(alternative, method, iterations, math.comb(places, n), most, most, "partitions")
    words, present = joined(sets)
    lead, order = present.shape[:-1], present_first(present)
    words = words.take_along_dim(order.unsqueeze(-1), -2).unsqueeze(-3)
    if a_mask is not None:
        a, a_mask = a.where(a_mask.unsqueeze(-1), 0), a_mask.unsqueeze(-2)
    if exact:
        table = torch.tensor(list(itertools.combinations(range(places), n)), device=words.device).view(-1, n)
        members = torch.zeros(len(table), places, dtype=torch.bool, device=words.device).scatter(-1, table, True)
    sizes = present[..., : x.shape[-2]].sum(-1).flatten(), present.sum(-1).flatten()
    if not ragged:
        sizes = tuple(size.new_full((1,), number) for size, number in zip(sizes, (n, places), strict=True))
    begin, total = stream(seed), len(members) if exact else iterations
    extreme = torch.zeros_like(observed, dtype=torch.int64)
    margin = observed.abs().clamp(min=1).unsqueeze(-1) / _sets.GRID
    for start, rows in chunks(total, max(words.numel(), a.numel())):
        if exact:
            chosen = members[start : start + rows]
        else:
            chosen = random_partitions(begin, *sizes, places, start, rows)
            chosen = chosen.unflatten(0, lead) if ragged and lead else chosen[0]
        others = ~chosen & present.take_along_dim(order, -1).unsqueeze(-2)
        scores = metric(words, words, a.unsqueeze(-3), x_mask=chosen.long(), y_mask=others.long(), a_mask=a_mask)
        extreme += is_extreme(scores, observed.unsqueeze(-1), margin, alternative).sum(-1)
    share = extreme.double() / total if exact else (1 + extreme.double()) / (1 + total)
    return share.where(observed.isfinite(), torch.nan)


def is_extreme(scores: Tensor, observed: Tensor, margin: Tensor, alternative: str) -> Tensor:
    if alternative == "left-sided":
        return scores <= observed + margin
    if alternative == "two-sided":
        scores, observed = scores.abs(), observed.abs()
    return scores >= observed - margin
