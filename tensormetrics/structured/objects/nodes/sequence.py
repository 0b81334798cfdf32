"""Node of sequences: items are matched in order."""

from collections.abc import Sequence as Items
from typing import Any

import torch
from torch import Tensor

from ...tensors.sequence import sequence_overlap
from .relations import chains, heaviest_chain
from .set import Matched, RaggedRows, length_groups


class Sequence(Matched):
    """Heaviest chain of pairs of items along which neither index decreases; see `sequence_overlap`."""

    ordered = "a sequence"

    def scalar_overlap(self, a: Items[Any], b: Items[Any], distinct: bool) -> float:
        return chains(self.gains(a, b), self.constraint)[0][0]

    def overlap(self, rows: RaggedRows, i: Tensor, j: Tensor, distinct: bool) -> Tensor:
        value = torch.zeros(len(i), dtype=torch.float64, device=i.device)
        for part in length_groups(rows.count[i], rows.count[j]):
            first, second = i[part], j[part]
            dense = self.dense(rows, first, second)
            value[part] = sequence_overlap(dense, rows.count[first], rows.count[second], self.constraint)
        return value

    def relation(self, rows: RaggedRows, i: Tensor, j: Tensor) -> list[tuple[int, int]]:
        (gain,) = self.dense(rows, i, j).clamp(min=0).tolist()
        return heaviest_chain(gain, self.constraint)
