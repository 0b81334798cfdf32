"""Statistics of battles without strengths: win rates of pairs, and the effect of being shown first."""

import dataclasses
import itertools

import torch
from torch import Tensor

from ...core.resampling.draws import Bounds
from ...core.resampling.resampling import Items, Resampled
from ...core.results.estimates import Estimate
from ...core.results.table import Table
from ..intervals import interval
from ..pairs.model_tables import one_warning
from .outcomes import BattleTable


def win_rates(table: BattleTable, *, confidence: float, replicates: int | None, seed: int | None) -> Table:
    """Return a table of how often each model beat each other one, by the interval of the scores of their battles."""
    count, scores = len(table.models), table.scores()
    pair = table.first * count + table.second
    cells: list[list[Estimate | None]] = [[None] * count for _ in range(count)]
    with one_warning():
        for i, j in itertools.combinations(range(count), 2):
            ahead, behind = pair == i * count + j, pair == j * count + i
            if not bool((ahead | behind).any()):
                continue
            won = scores.where(ahead, 1 - scores)[ahead | behind]
            groups = table.names.units[ahead | behind]
            estimate = interval(
                won, groups=groups, bounds=(0, 1), confidence=confidence, replicates=replicates, seed=seed
            )
            cells[i][j] = estimate = dataclasses.replace(estimate, name="win rate")
            value, low, high = (1 - end for end in estimate)
            cells[j][i] = dataclasses.replace(estimate, value=value, low=high, high=low)
    return Table(list(table.models), list(table.models), cells, title="win rates", index="model")


def resampled_position_effect(table: BattleTable, replicates: int, seed: int) -> Resampled:
    """Draw the win rate of the answer that is shown first, less 1/2, over the pairs that battled in both orders."""
    scores = table.scores()
    lower, upper = torch.minimum(table.first, table.second), torch.maximum(table.first, table.second)
    pair = (lower * len(table.models) + upper).unique(return_inverse=True)[1]
    order, width = 2 * pair + (table.first > table.second).long(), 2 * (int(pair.max()) + 1 if len(pair) else 1)
    rows = torch.stack([scores, torch.ones_like(scores)], 1)
    # The part of one pseudo-battle that falls to each cell.
    fraction = torch.bincount(order, minlength=width).double().cpu() / max(len(order), 1)
    bounds = Bounds(torch.stack([0 * fraction, fraction], 1), torch.stack([fraction, fraction], 1))
    items = Items(rows, table.names.units, _order_effect, order, width, False, bounds, (-0.5, 0.5))
    return items.resampled(replicates, seed)


def _order_effect(sums: Tensor) -> Tensor:
    # sums: (..., 2 P, 2), points of the first answer and battles, of both orders of each pair  ->  (...)
    points, battles = sums.unflatten(-2, (-1, 2)).unbind(-1)
    weights = (battles.prod(-1) / battles.sum(-1)).nan_to_num(0)
    rates = (points / battles).mean(-1).where(weights > 0, 0)
    return (weights * rates).sum(-1) / weights.sum(-1) - 0.5
