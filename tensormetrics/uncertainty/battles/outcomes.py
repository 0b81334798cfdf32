"""Battles between models: notations of their outcomes, and the counts of each pair."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.weights import ItemNames, joined, weighted_sums
from .bradley_terry import Battles

SECOND, TIE, FIRST, MISSING, INVALID = range(5)  # codes of outcomes
TEXTS = {"a": 1.0, "b": 0.0, "tie": 0.5}
CHUNK = 2**24  # numbers of the counts of a chunk of replicates or units


def read_outcomes(outcome: Any) -> Tensor:
    # ->  (N,) float64, NaN where there is no judgement
    """Return the score of the first model in each battle, of a tensor or of a list of numbers and texts."""
    if isinstance(outcome, Tensor):
        checks.shape("outcome", outcome, "N")
        return outcome.detach().double()
    values = []
    for value in checks.as_list("outcome", outcome):
        if isinstance(value, str):
            checks.check_choice("outcome", value, TEXTS)
            value = TEXTS[value]
        values.append(float("nan") if value is None else float(value))
    return torch.tensor(values, dtype=torch.float64, device="cpu")


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
