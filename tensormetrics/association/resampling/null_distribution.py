"""Scores of many queries under one null hypothesis: a draw moves the words at the same places of all of them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...uncertainty.engine.corrections import StepDown
from ..sets.word_ids import word_sums
from .draws import chunks, random_partitions, random_signs
from .permutation import Alternative, _grid, _read, _units, present_first
from .random import stream

SCALED_BY = 1000  # draws, by whose size each query's scores are made comparable


class Draws(NamedTuple):
    """Scores of queries (...), and those of any draws of the null hypothesis."""

    observed: Tensor  # (...) float64
    drawn: Callable[[int, int], Tensor]  # (start, rows)  ->  (..., rows) float64
    cost: int  # numbers that one draw holds


def partition_draws(
    u: Tensor,
    v: Tensor,
    *,
    seed: int | None = 0,
    u_mask: Tensor | None = None,
    v_mask: Tensor | None = None,
    u_words: Tensor | None = None,
    v_words: Tensor | None = None,
) -> Draws:
    # u: (..., n) scores  v: (..., m)  masks, words: as in `permutation_p_value`
    """Differences of means, those that "approximate" of `permutation_p_value` draws."""
    scores, present, lead = _read(u=(u, u_mask), v=(v, v_mask))
    units, grid, sides = _units(scores), _grid(scores), []
    for part, words in ((slice(u.shape[-1]), u_words), (slice(u.shape[-1], None), v_words)):
        numbers = None if words is None else words.expand(*lead, -1).reshape(len(scores), -1)
        sides.append(word_sums(units[:, part], present[:, part], numbers))
    n = (sides[0][1] > 0).sum(-1)
    sums, rows = (torch.cat(pair, -1) for pair in zip(*sides, strict=True))
    order, size = present_first(rows > 0), (rows > 0).sum(-1)
    sums, rows = (each.gather(-1, order).double() for each in (sums, rows))
    sizes = torch.stack([n, size], 1).unique(dim=0)  # queries of equal sizes share their draws
    group = (torch.stack([n, size], 1)[:, None] == sizes).all(-1).double().argmax(-1)
    total, all_rows = sums.sum(-1, keepdim=True), rows.sum(-1, keepdim=True)
    begin, places = stream(seed), sums.shape[-1]

    def difference(chosen: Tensor) -> Tensor:
        # chosen: (B, R, places)  ->  (B, R), exact but for the divisions
        if len(chosen) == 1:
            mine, mine_rows = sums @ chosen[0].mT, rows @ chosen[0].mT
        else:
            mine, mine_rows = ((chosen @ each.unsqueeze(-1)).squeeze(-1) for each in (sums, rows))
        return (mine / mine_rows - (total - mine) / (all_rows - mine_rows)) * grid

    def drawn(start: int, number: int) -> Tensor:
        chosen = random_partitions(begin, sizes[:, 0], sizes[:, 1], places, start, number).double()
        return difference(chosen[group] if len(chosen) > 1 else chosen).unflatten(0, lead)

    first = (torch.arange(places, device=n.device) < n[:, None]).double()[:, None]
    observed = difference(first).squeeze(-1).where(scores.isfinite().all(-1) & (n > 0) & (n < size), torch.nan)
    return Draws(observed.view(lead), drawn, 2 * sums.numel())


def sign_draws(r: Tensor, *, seed: int | None = 0, mask: Tensor | None = None, words: Tensor | None = None) -> Draws:
    # r: (..., P)  mask, words: (..., P)
    """Means of values with random signs, those that "approximate" of `sign_flip_p_value` draws."""
    values, present, lead = _read(r=(r, mask))
    numbers = None if words is None else words.expand(*lead, -1).reshape(values.shape)
    sums, rows = word_sums(_units(values), present, numbers)
    order, pairs = present_first(rows > 0), sums.shape[-1]
    sums, scale = sums.gather(-1, order).double(), _grid(values) / rows.sum(-1, keepdim=True)
    begin = stream(seed)

    def drawn(start: int, number: int) -> Tensor:
        signs = 1 - 2 * random_signs(begin, pairs, start, number, sums.device)[0].double()
        return (sums @ signs.mT * scale).unflatten(0, lead)

    observed = (sums.sum(-1) * scale[:, 0]).where(values.isfinite().all(-1) & present.any(-1), torch.nan)
    return Draws(observed.view(lead), drawn, sums.numel())


def max_t_p_values(batches: list[Draws], alternative: Alternative, replicates: int) -> Tensor:
    # of observed (B,) each  ->  (sum of B,) float64
    """p-values of all queries at once: step-down maxima of their scores in units of their own size under the null."""

    def drawn(start: int, rows: int) -> Tensor:
        # ->  (rows, T)
        return _as_large(torch.cat([batch.drawn(start, rows) for batch in batches]), alternative).mT

    cost = sum(batch.cost for batch in batches)
    observed = _as_large(torch.cat([batch.observed for batch in batches])[:, None], alternative)[:, 0]
    squares, trial = torch.zeros_like(observed), min(replicates, SCALED_BY)
    for piece in chunks(trial, cost):
        squares += drawn(*piece).square().nan_to_num(0).sum(0)
    scale = (squares / trial).sqrt()
    test = StepDown((observed / scale).where(scale > 0, 0).where(observed.isfinite(), torch.nan))
    for piece in chunks(replicates, cost):
        test.add((drawn(*piece) / scale).where(scale > 0, 0))
    return test.p_values()


def _as_large(scores: Tensor, alternative: Alternative) -> Tensor:
    return {"greater": scores, "less": -scores, "two-sided": scores.abs()}[alternative]
