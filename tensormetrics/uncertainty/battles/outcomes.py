"""Battles between models: notations of their outcomes, and the counts of each pair."""

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.weights import ItemNames, joined, weighted_sums
from ..item_scores.score_files import MISSING as NO_SCORE
from .bradley_terry import Battles

SECOND, TIE, FIRST, MISSING, INVALID = range(5)  # codes of outcomes
WORDS = {
    **dict.fromkeys(("a", "model_a"), 1.0),
    **dict.fromkeys(("b", "model_b"), 0.0),
    **dict.fromkeys(("tie", "draw", "tie (bothbad)", "bothbad", "both_bad"), 0.5),
    **dict.fromkeys(NO_SCORE, math.nan),
}
CHUNK = 2**24  # numbers of the counts of a chunk of replicates or units


def read_outcomes(outcome: Any, a: Any, b: Any) -> Tensor:
    # a, b: (N,) models  ->  (N,) float64, NaN where there is no judgement
    """Return the score of the first model in each battle: of numbers, of winners one-hot, or of a list with texts."""
    if getattr(outcome, "ndim", 1) == 2:
        one_hot = checks.as_tensor(outcome if isinstance(outcome, Tensor) else np.array(outcome)).detach().double()
        checks.shape("outcome", one_hot, "N", 3)
        is_one_hot = ((one_hot == 1).sum(1) == 1) & ((one_hot == 0).sum(1) == 2)
        score = (one_hot[:, 0] + one_hot[:, 2] / 2).where(is_one_hot, -1)
        return score.masked_fill(one_hot.isnan().any(1), torch.nan)
    if isinstance(outcome, Tensor):
        checks.shape("outcome", outcome, "N")
        return outcome.detach().double()
    values = checks.as_list("outcome", outcome)
    models = [[] if isinstance(names, Tensor) else [*names] for names in (a, b)]
    rows = enumerate(itertools.zip_longest(values, *(names[: len(values)] for names in models)))
    scores = [score_of(value, x, y, f"outcome: battle {row}") for row, (value, x, y) in rows]
    return torch.tensor(scores, dtype=torch.float64, device="cpu")


def score_of(value: Any, a: Any, b: Any, where: str) -> float:
    """Return the score of model a: of the name of the winner, one of `WORDS`, or a number; NaN for no judgement."""
    if not isinstance(value, str):
        return math.nan if value is None else float(value)
    text = value.strip()
    by_word, by_name = WORDS.get(text.lower()), float(text == a) if text in (a, b) and a != b else None
    if None not in (by_word, by_name) and by_word != by_name:
        raise ValueError(f"{where}: got {text!r}, both a word and the name of another model; write 1, 0 or 0.5")
    for score in (by_name, by_word):
        if score is not None:
            return score
    with contextlib.suppress(ValueError):
        if (score := float(text)) in (0, 0.5, 1):
            return score
    expected = "model_a, model_b, tie, the name of a model, or 1, 0 or 0.5"
    raise ValueError(f"{where}: got {value!r:.60} for an outcome, wanted {expected}")


def outcome_codes(first: Tensor, second: Tensor, score: Tensor, count: int | None) -> Tensor:
    # first, second: (N,) int64  score: (N,) float64  count: of models  ->  (N,) int8
    """Return the outcome code of each battle; ValueError for an invalid one, on CPUs alone, since it reads values."""
    is_valid = (score == 0) | (score == 0.5) | (score == 1)
    codes = torch.where(is_valid, 2 * score, torch.where(score.isnan(), MISSING, INVALID)).to(torch.int8)
    unknown = torch.zeros_like(is_valid)
    if count is not None:
        unknown = (first < 0) | (first >= count) | (second < 0) | (second >= count)
    codes = codes.masked_fill(unknown | (first == second), INVALID)
    if codes.device.type == "cpu" and bool((codes == INVALID).any()):
        row = int((codes == INVALID).nonzero()[0])
        if bool(unknown[row]):
            got, last = f"{int(first[row])} and {int(second[row])}", (count or 0) - 1
            raise ValueError(f"a, b: battle {row}: got {got}, wanted two of 0 to {last}")
        if first[row] == second[row]:
            raise ValueError(f"a, b: battle {row}: got a model against itself, wanted two models")
        raise ValueError(f"outcome: battle {row}: got {float(score[row])}, wanted 1, 0, 0.5 or NaN")
    return codes


class BattleTable(NamedTuple):
    """Judged battles between K models, which are numbered from 0."""

    models: Sequence[str]
    first: Tensor  # (N,) int64 in [0, K)
    second: Tensor  # (N,) int64
    codes: Tensor  # (N,) int8: FIRST, SECOND or TIE
    names: ItemNames

    def scores(self) -> Tensor:
        # ->  (N,) float64, of the first model
        return self.codes.double() / 2

    def cells(self) -> Tensor:
        # ->  (N,) int64
        """Return the cell of each battle: (winner, loser), or the pair of a tie after these K^2 cells."""
        count = len(self.models)
        won = self.codes == FIRST
        winner, loser = self.first.where(won, self.second), self.second.where(won, self.first)
        tied = (count + torch.minimum(self.first, self.second)) * count + torch.maximum(self.first, self.second)
        return tied.where(self.codes == TIE, winner * count + loser)

    def counts(self, ties: bool) -> Battles:
        """Count the outcomes of each pair; without `ties` a tie is half a win for each."""
        return self._split(torch.bincount(self.cells(), minlength=self._width).double(), ties)

    def wins_of_two(self, i: int, j: int) -> tuple[Tensor, Tensor] | None:
        # ->  (1,) wins of i and battles without a tie
        """Return the counts of the only two models, if their battles are independent."""
        if len(self.models) > 2 or self.names.groups is not None:
            return None
        wins = self.counts(ties=True).wins
        return wins[i, j][None], (wins[i, j] + wins[j, i])[None]

    @property
    def _width(self) -> int:
        return 2 * len(self.models) ** 2

    def _split(self, cells: Tensor, ties: bool) -> Battles:
        # cells: (..., 2 K^2)  ->  (..., K, K) each
        wins, tied = cells.unflatten(-1, (2, len(self.models), len(self.models))).unbind(-3)
        tied = tied + tied.mT
        return Battles(wins, tied) if ties else Battles(wins + tied / 2, torch.zeros_like(tied))

    def weighted_counts(self, replicates: int, seed: int, ties: bool) -> Any:
        # ->  pairs of (..., K, K) counts and (...,) sums of weights, of a chunk of replicates each
        """Yield the counts of each replicate, in which battles have the weights of their units."""
        cells, rows = self.cells(), torch.ones(len(self.first), 1, dtype=torch.float64, device=self.first.device)
        step = 8 * max(CHUNK // (8 * 3 * self._width), 1)
        for start in range(0, replicates, step):
            size = min(step, replicates - start)
            sizes = rows.new_zeros(size)
            sums = weighted_sums(
                rows, self.names.units, size, seed, cells=cells, width=self._width, start=start, sizes=sizes
            )
            yield self._split(joined(sums[0])[..., 0], ties), sizes
