"""Objects as padded tables of numbers."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor

Row = tuple[int, ...]


def numbers() -> defaultdict[Any, int]:
    """Gives every key that it is asked for a number, from 0 on."""
    return defaultdict(count().__next__)


def padded(documents: Sequence[Sequence[Row]], columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    # -> rows (D, W, columns) int64, how many of them are a document's (D,)
    """The rows of each document, filled up with zeros."""
    lengths = torch.tensor(list(map(len, documents)), dtype=torch.int64)
    flat = torch.tensor(list(chain.from_iterable(chain.from_iterable(documents))), dtype=torch.int64)
    width = int(lengths.max()) if len(documents) else 0
    table = torch.zeros(len(documents), width, columns, dtype=torch.int64)
    table[torch.arange(width) < lengths[:, None]] = flat.reshape(-1, columns)
    return table.to(device), lengths.to(device)


def check_as_many(preds: Sequence[Any], refs: Sequence[Any]) -> None:
    if len(preds) != len(refs):
        raise ValueError(f"lengths differ: preds has {len(preds)}, refs has {len(refs)}")
