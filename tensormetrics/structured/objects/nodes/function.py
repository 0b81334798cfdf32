"""Nodes of a user's own similarity, of Python values or of their numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..values.columns import Where
from .node import Node, NotPlain, below


class Values(NamedTuple):
    values: Sequence[Any]
    known: dict[tuple[int, int], float]  # pair of rows -> similarity
    where: Where


class Function(Node):
    """f(x, y) on the host, called once for each pair that is needed; batched: f(xs, ys) of lists, for many pairs."""

    cost = 3

    def __init__(self, function: Callable[..., Any], dominated: bool = False, batched: bool = False) -> None:
        self.function, self.dominated, self.batched = function, dominated, batched
        self.plain = not batched

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        return values

    def worth(self, a: Any, b: Any) -> float:
        number = _number(self.function(a, b))
        if not number < math.inf:  # False for NaN
            raise NotPlain
        return number

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Values:
        return Values(values, {}, where)

    def similarity(self, rows: Values, i: Tensor, j: Tensor) -> Tensor:
        known, values = rows.known, rows.values
        pairs = list(zip(i.tolist(), j.tolist(), strict=True))
        if new := [pair for pair in dict.fromkeys(pairs) if pair not in known]:
            sides = [[values[row] for row in side] for side in zip(*new, strict=True)]
            got = self._many(*sides) if self.batched else list(map(self.function, *sides))
            known.update(zip(new, self._numbers(got, new, rows), strict=True))
        return torch.tensor([known[pair] for pair in pairs], dtype=torch.float64, device=i.device)

    def _many(self, xs: list[Any], ys: list[Any]) -> list[Any]:
        got = self.function(xs, ys)
        found = got.tolist() if hasattr(got, "tolist") else list(got)  # of a tensor or an array
        if len(found) != len(xs):
            raise ValueError(f"from_func: got {len(found)} values for {len(xs)} pairs, wanted one for each")
        return found

    def _numbers(self, got: list[Any], pairs: list[tuple[int, int]], rows: Values) -> list[float]:
        numbers = list(map(_number, got))
        for number, value, (a, b) in zip(numbers, got, pairs, strict=True):
            if not number < math.inf:  # False for NaN
                raise ValueError(
                    f"from_func: got {value!r:.60} for {rows.where(a)} and {rows.where(b)}, wanted a number below "
                    "infinity"
                )
        return numbers


def _number(value: Any) -> float:
    """NaN for what is none; text is none."""
    try:
        return value.__float__()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return math.nan


class Numbers(NamedTuple):
    table: Tensor  # (n, F) float64
    where: Where


Reader = tuple[tuple[str | int, ...], Callable[[Any], Any]]  # a component of the path, how to read it from a value


class TensorFunction(Node):
    """f((pairs, F), (pairs, F)) -> (pairs,), of the numbers of two values as float64.

    columns: the readers that lead from a value to each number. check: raises for values of another type.
    """

    cost = 2

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        columns: Sequence[Sequence[Reader]],
        check: Callable[[Sequence[Any], Where], None],
        dominated: bool = False,
    ) -> None:
        self.function, self.columns, self.check, self.dominated = function, columns, check, dominated

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Numbers:
        self.check(values, where)
        table = [_column(values, readers, where) for readers in self.columns]
        return Numbers(torch.stack(table, -1).to(device), where)

    def similarity(self, rows: Numbers, i: Tensor, j: Tensor) -> Tensor:
        return self._values(rows, i, j, rows.table[i], rows.table[j])

    def similarities(self, rows: Numbers, x: Tensor, y: Tensor) -> Tensor:
        shape = (*x.shape, y.shape[1])
        left, right = rows.table[x][:, :, None].expand(*shape, -1), rows.table[y][:, None].expand(*shape, -1)
        return self._values(rows, x[:, :, None].expand(shape), y[:, None].expand(shape), left, right)

    def _values(self, rows: Numbers, i: Tensor, j: Tensor, left: Tensor, right: Tensor) -> Tensor:
        # i, j: (...)  left, right: (..., F)  ->  (...) float64
        value = self.function(left.flatten(0, -2), right.flatten(0, -2))
        if not isinstance(value, Tensor) or value.shape != (i.numel(),):
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(f"tensor_func: got {got} for {i.numel()} pairs, wanted a tensor of shape ({i.numel()},)")
        value = value.double().view(i.shape)
        number = value < torch.inf  # False for NaN
        if not number.all():
            wrong = tuple((~number).nonzero()[0])
            pair = " and ".join(rows.where(int(side[wrong])) for side in (i, j))
            raise ValueError(f"tensor_func: got {value[wrong].item()} for {pair}, wanted a number below infinity")
        return value


def _column(values: Sequence[Any], readers: Sequence[Reader], where: Where) -> Tensor:  # ->  (n,) float64
    for names, read in readers:
        values, where = list(map(read, values)), below(where, names)
    try:
        column = torch.tensor(values, dtype=torch.float64, device="cpu")
        fault = column.isnan()
    except (TypeError, ValueError, RuntimeError):
        fault = torch.tensor([not isinstance(value, int | float) for value in values], device="cpu")
    if fault.any():
        row = int(fault.nonzero()[0])
        raise ValueError(f"{where(row)}: got {values[row]!r:.60}, wanted a number")
    return column
