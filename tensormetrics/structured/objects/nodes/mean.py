"""The node of a weighted mean over fields."""

from collections.abc import Callable, Sequence, Sized
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..columns import RowPath
from .node import Fields, LeafNode, Node, Normalized, Product


class MeanRows(NamedTuple):
    key: None  # means are no equality
    columns: list[Any]
    has_value: Tensor  # (F, n) bool


class Mean(Product):
    """Weighted mean over the fields that at least one of two values has, 1 if neither has any.

    None and an empty collection count as a missing field.
    """

    def __init__(
        self, fields: Fields, check: Callable[[Sequence[Any], RowPath], None], weights: Sequence[float]
    ) -> None:
        super().__init__(fields, check)
        self.weights = weights
        self.equality = self.supports_scalar_path = False
        # For these nodes no value is more similar to another one than to itself.
        self.dominated = all(isinstance(node, LeafNode | Normalized) and node.dominated for node in self.nodes)

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> MeanRows:  # type: ignore[override]
        _, columns = super().encode(values, split, where, device)
        has_value = [[_has_value(read(value)) for value in values] for read, _ in self.fields.values()]
        flags = torch.tensor(has_value, dtype=torch.bool, device=device)
        return MeanRows(None, columns, flags.view(len(columns), len(values)))

    def similarity(self, rows: MeanRows, i: Tensor, j: Tensor) -> Tensor:  # type: ignore[override]
        total = torch.zeros(len(i), dtype=torch.float64, device=i.device)
        size = torch.zeros_like(total)
        for node, column, has_value, weight in zip(self.nodes, rows.columns, rows.has_value, self.weights, strict=True):
            counts = weight * (has_value[i] | has_value[j]).double()
            total += counts * node.similarity(column, i, j)
            size += counts
        return torch.where(size > 0, total / size, 1.0)

    self_similarity = Node.self_similarity


def _has_value(value: Any) -> bool:
    return value is not None and not (
        isinstance(value, Sized) and not isinstance(value, str | bytes) and not len(value)
    )
