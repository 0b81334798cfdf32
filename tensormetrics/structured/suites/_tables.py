"""Objects as padded tables of numbers."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..objects.columns import check_type


def items_of(side: Sequence[Any], attribute: str, wanted: type, name: str) -> tuple[list[list[Any]], list[Any]]:
    """The items of each document, which has them as `attribute` or consists of them, and of all together.

    TypeError with the place of one that is no `wanted`; `name` is that of the side.
    """
    documents = [getattr(document, attribute, document) for document in side]
    for number, document in enumerate(documents):
        if not isinstance(document, Iterable):
            raise TypeError(f"{name}[{number}]: got {document!r:.60}, wanted a collection of {wanted.__name__}s")
    documents = list(map(list, documents))
    for number, items in enumerate(documents):
        check_type(wanted, items, lambda row, number=number: f"{name}[{number}].{attribute}[{row}]")
    return documents, list(chain.from_iterable(documents))


def padded(lengths: Iterable[int], columns: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # lengths: D numbers of rows  columns: C columns of all rows  ->  rows (D, W, C) int64, lengths (D,) int64
    """The rows of each document, filled up with zeros."""
    lengths = torch.tensor(list(lengths), dtype=torch.int64)
    width = int(lengths.max()) if len(lengths) else 0
    table = torch.zeros(len(lengths), width, len(columns), dtype=torch.int64)
    table[torch.arange(width) < lengths[:, None]] = torch.tensor(columns, dtype=torch.int64).mT
    return table.to(device), lengths.to(device)
