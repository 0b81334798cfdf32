"""One-to-one matching of the items of lists, for many pairs of lists at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from ...tensors._pairs import assigned, best_columns

SCALE = 1 << 20  # similarities are rounded to multiples of its inverse
MAX_SHIFT = 15  # beyond, positions of equally similar items make no difference


class Edges(NamedTuple):
    """Pairs of items of pairs of lists.

    Attributes:
        pair: (E,) which pair of lists.
        pred_position, ref_position: (E,) positions in these lists.
        pred, ref: (E,) rows in the columns of the items.
        similarity: (E,) float64.
    """

    pair: np.ndarray
    pred_position: np.ndarray
    ref_position: np.ndarray
    pred: np.ndarray
    ref: np.ndarray
    similarity: np.ndarray

    def take(self, index: np.ndarray) -> Edges:
        """Return some of the pairs."""
        return Edges(*(column[index] for column in self))

    @classmethod
    def concatenate(cls, parts: Sequence[Edges]) -> Edges:
        """Return the pairs of all parts."""
        if not parts:
            empty = np.zeros(0, dtype=np.int64)
            return cls(empty, empty, empty, empty, empty, np.zeros(0))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


def best_matching(
    edges: Edges, weights: np.ndarray, num_preds: np.ndarray, num_refs: np.ndarray, ordered: bool = False
) -> np.ndarray:
    # weights: (E,)  num_preds, num_refs: (P,) lengths of the lists  ->  (M,) index into edges
    """Select pairs of maximum total weight with each item in at most one; ties prefer the smallest position shifts.

    Args:
        edges: Admissible pairs of all lists.
        weights: Weight of each edge, positive.
        num_preds: Lengths of the lists of predictions.
        num_refs: Lengths of the lists of references.
        ordered: Matched pairs do not cross.
    """
    shift = np.minimum(np.abs(edges.pred_position - edges.ref_position), MAX_SHIFT)
    smaller = np.minimum(num_preds, num_refs)[edges.pair]
    gains = np.maximum(np.rint(weights * SCALE), 1) * (1 + MAX_SHIFT * smaller) - shift
    pred, ref, gain, pair = map(torch.from_numpy, (edges.pred_position, edges.ref_position, gains, edges.pair))
    return assigned(pred, ref, gain, pair, _best_chain if ordered else best_columns).numpy().nonzero()[0]


def _best_chain(table: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    # (B, N, M)  ->  (B, N) column of each row, -1 if none; rising in N
    """Return the chains of greatest gain, by dynamic programming."""
    gains = table.numpy()
    count, height, width = gains.shape
    best = np.zeros((height + 1, count, width + 1))
    for n in range(height):
        candidates = np.maximum(best[n][:, 1:], best[n][:, :-1] + gains[:, n])
        best[n + 1][:, 1:] = np.maximum.accumulate(candidates, axis=1)
    columns = np.full((count, height), -1)
    problems, width_left = np.arange(count), np.full(count, width)
    for n in range(height, 0, -1):
        value = best[n][problems, width_left]
        # The first prefix that reaches the value ends with the column of this row, if the row is used.
        reached = best[n] >= value[:, None]
        last = reached.argmax(axis=1)
        used = best[n - 1][problems, width_left] < value
        columns[used, n - 1] = last[used] - 1
        width_left = np.where(used, last - 1, width_left)
    return torch.from_numpy(columns)
