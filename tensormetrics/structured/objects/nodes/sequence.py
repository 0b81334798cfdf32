"""Node of sequences: items are matched in order."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...tensors.constraints import Constraint
from ...tensors.sequence import sequence_overlap
from .node import Part
from .set import Matched, Ragged, alike


class Sequence(Matched):
    """The heaviest chain of pairs of items along which neither index falls; see `sequence_overlap`."""

    ordered = "a sequence"

    def overlap(self, rows: Ragged, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        value = torch.zeros(len(i), dtype=torch.float64, device=i.device)
        for part in alike(rows.count[i], rows.count[j]):
            here, there = i[part], j[part]
            dense = self.dense(rows, here, there)
            value[part] = sequence_overlap(dense, rows.count[here], rows.count[there], self.constraint)
        return value

    def parts(self, rows: Ragged, i: int, j: int, x: Any, y: Any) -> Iterator[Part]:
        x, y = self.items(x), self.items(y)
        one, other = torch.tensor([[i], [j]], device=rows.start.device)
        (gain,) = self.dense(rows, one, other).clamp(min=0).tolist()
        for a, b in heaviest_chain(gain, self.constraint):
            yield self.part(rows, i, j, a, b, x, y)


def heaviest_chain(gain: list[list[float]], constraint: Constraint) -> list[tuple[int, int]]:
    """The pairs of the heaviest chain; where several are, those of the first prediction, then the first reference."""
    n, m = len(gain), len(gain[0]) if gain else 0
    down, right = (
        int(constraint in (Constraint.ONE_TO_ONE, step)) for step in (Constraint.ONE_TO_MANY, Constraint.MANY_TO_ONE)
    )  # what a pair moves on by
    any_relation = constraint is Constraint.MANY_TO_MANY
    best = [[0.0] * (m + 1) for _ in range(n + 1)]  # of what is left from (a, b) on
    for a in reversed(range(n)):
        for b in reversed(range(m)):
            skip = max(best[a + 1][b], best[a][b + 1])
            best[a][b] = gain[a][b] + skip if any_relation else max(skip, gain[a][b] + best[a + down][b + right])
    pairs = []
    a = b = 0
    while a < n and b < m:
        if any_relation:
            if gain[a][b] > 0:
                pairs.append((a, b))
            a, b = (a, b + 1) if best[a][b + 1] >= best[a + 1][b] else (a + 1, b)
            continue
        found = next(
            (c for c in range(b, m) if gain[a][c] > 0 and gain[a][c] + best[a + down][c + right] == best[a][b]), None
        )
        if found is None:
            a += 1
        else:
            pairs.append((a, found))
            a, b = a + down, found + right
    return pairs
