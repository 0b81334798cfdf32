"""Null distributions of scores, and p-values of one query or of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.exact_sums import ratio
from ...core.resampling.corrections import StepDown
from .draws import chunks

Alternative = Literal["two-sided", "greater", "less"]
Method = Literal["auto", "exact", "approximate"]
ALTERNATIVES: tuple[Alternative, ...] = get_args(Alternative)
METHODS: tuple[Method, ...] = get_args(Method)
NUM_SCALE_DRAWS = 1000  # draws from which the scale of each query's scores is estimated


class Exact(NamedTuple):
    """Exact count of all cases of a null hypothesis: "auto" counts up to `auto` units, "exact" up to `max_size`."""

    size: int
    unit: str
    auto: int
    max_size: int
    fraction: Callable[[Alternative], Tensor]  # ->  (B,), the fraction of cases as extreme as the observed scores

    def is_used(self, method: Method) -> bool:
        if method == "exact" and self.size > self.max_size:
            got = f"'exact' with {self.size} {self.unit}"
            raise ValueError(f"method: got {got}, wanted at most {self.max_size}; write method='approximate'")
        return method == "exact" or (method == "auto" and self.size <= self.auto)


@dataclass
class NullDistribution:
    """Scores of queries and their distribution under a null hypothesis, as random draws or as all cases.

    Args:
        is_valid: Queries that have a test.
        score: ``score()`` returns the observed scores of the queries.
        draw: ``draw(start, rows)`` returns the scores of the draws ``start``, ``start + 1``, ...
        draw_by_word: The same, but a word, identified by `WordSet.words`, has the same random numbers in all queries;
            None if words have no ids.
        cost: Largest number of elements that one draw holds in memory.
        margin: Largest difference of scores that count as equal.
        exact: Count of all cases; None if cases can only be drawn.
        count: ``count(alternative, replicates)`` counts the extreme draws faster than ``draw`` would.

    Shape:
        - is_valid: ``(...)``, bool
        - score, margin: ``(...)``, float64
        - draw, draw_by_word: ``(..., rows)``
        - count: ``(...)`` or flattened
    """

    is_valid: Tensor
    score: Callable[[], Tensor]
    draw: Callable[[int, int], Tensor]
    cost: int
    margin: Tensor | float = 0.0
    exact: Exact | None = None
    count: Callable[[Alternative, int], Tensor] | None = None
    draw_by_word: Callable[[int, int], Tensor] | None = None

    @cached_property
    def observed(self) -> Tensor:
        # ->  (...) float64, NaN for queries without a test
        return self.score().where(self.is_valid, torch.nan)

    def p_value(self, alternative: Alternative = "greater", method: Method = "auto", replicates: int = 10000) -> Tensor:
        # ->  (...) float64
        """Compute the fraction of cases, the observed one included, at least as extreme as the observed scores."""
        checks.check_choice("alternative", alternative, ALTERNATIVES)
        checks.check_choice("method", method, METHODS)
        checks.check_int("replicates", replicates, 1)
        if method == "exact" and self.exact is None:
            raise ValueError("method: got 'exact' for cases that can only be drawn (GWEAT, masks); write 'approximate'")
        if self.exact is not None and self.exact.is_used(method):
            fraction = self.exact.fraction(alternative)
        else:
            count = self.count or self._count_draws
            fraction = ratio(1 + count(alternative, replicates), 1 + replicates)
        fraction = fraction if fraction.shape == self.is_valid.shape else fraction.view(self.is_valid.shape)
        return fraction.where(self.is_valid, torch.nan)

    @torch.no_grad()
    def _count_draws(self, alternative: Alternative, replicates: int) -> Tensor:
        # ->  (...) int64
        count, observed = torch.zeros_like(self.is_valid, dtype=torch.int64), self.score()
        for row_range in chunks(replicates, self.cost):
            count += count_extreme(self.draw(*row_range), observed, self.margin, alternative)
        return count


def count_extreme(scores: Tensor, observed: Tensor, margin: Tensor | float, alternative: Alternative) -> Tensor:
    # scores: (..., rows)  observed, margin: (...)  ->  (...) int64
    """Count the scores at least as extreme as the observed ones or within the margin of them; NaN is not extreme."""
    scores, observed = (_extremeness(t, alternative) for t in (scores, observed))
    return (scores >= (observed - margin).unsqueeze(-1)).sum(-1)


def max_t_p_values(nulls: Sequence[NullDistribution], alternative: Alternative, replicates: int) -> Tensor:
    # nulls: of (B,) queries each  ->  (sum of B,) float64
    """Compute p-values of all queries jointly, from step-down maxima of their standardized scores."""

    def draw(start: int, rows: int) -> Tensor:
        # ->  (rows, T)
        scores = [(null.draw_by_word or null.draw)(start, rows) for null in nulls]
        return _extremeness(torch.cat(scores), alternative).mT

    cost = sum(null.cost for null in nulls)
    observed = _extremeness(torch.cat([null.observed for null in nulls]), alternative)
    squares, num_draws = torch.zeros_like(observed), min(replicates, NUM_SCALE_DRAWS)
    for row_range in chunks(num_draws, cost):
        squares += draw(*row_range).square().nan_to_num(0).sum(0)
    scale = (squares / num_draws).sqrt()
    test = StepDown((observed / scale).where(scale > 0, 0).where(observed.isfinite(), torch.nan))
    for row_range in chunks(replicates, cost):
        test.add((draw(*row_range) / scale).where(scale > 0, 0))
    return test.p_values()


def _extremeness(scores: Tensor, alternative: Alternative) -> Tensor:
    if alternative == "greater":
        return scores
    return -scores if alternative == "less" else scores.abs()
