"""Objects as padded tables of numbers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor


def numbers() -> defaultdict[Any, int]:
    """Gives every key that it is asked for a number, from 0 on."""
    return defaultdict(count().__next__)


def padded(lengths: Iterable[int], columns: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # lengths: D numbers of rows  columns: C columns of all rows  ->  rows (D, W, C) int64, lengths (D,) int64
    """The rows of each document, filled up with zeros."""
    lengths = torch.tensor(list(lengths), dtype=torch.int64)
    width = int(lengths.max()) if len(lengths) else 0
    table = torch.zeros(len(lengths), width, len(columns), dtype=torch.int64)
    table[torch.arange(width) < lengths[:, None]] = torch.tensor(columns, dtype=torch.int64).mT
    return table.to(device), lengths.to(device)
