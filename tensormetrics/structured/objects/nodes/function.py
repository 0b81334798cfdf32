"""Nodes of a user's own similarity, of Python values or of their numbers."""

import math
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..values.answers import current_answers
from ..values.columns import Where
from .node import Node, NotPlain, below


class Values(NamedTuple):
    values: Sequence[Any]
    numbers: list[int]  # of the values, equal where these are
    known: dict[tuple[int, int], float]  # pair of numbers -> similarity
    where: Where


class FunctionError(Exception):
    """An error of a user's function, where other errors mean that tensors must compare."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Function(Node):
    """f(x, y) on the host, called once for each pair of values that is needed; batched: f(xs, ys) of lists."""

    cost = 3

    def __init__(self, function: Callable[..., Any], dominated: bool = False, batched: bool = False) -> None:
        self.function, self.dominated, self.batched = function, dominated, batched
        self.plain = not batched

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        answers = current_answers()
        return [(answers.number(value), value) for value in values]

    def worth(self, a: tuple[int, Any], b: tuple[int, Any]) -> float:
        known, pair = current_answers().of(self.function), (a[0], b[0])
        if pair not in known:
            try:
                answer = self.function(a[1], b[1])
            except Exception as error:
                raise FunctionError(error) from error
            number = _number(answer)
            if not number < math.inf:  # False for NaN
                raise NotPlain
            known[pair] = number
        return known[pair]

    def encode(self, values: Sequence[Any], split: int, where: Where, device: torch.device) -> Values:
        answers = current_answers()
        return Values(values, list(map(answers.number, values)), answers.of(self.function), where)

    def similarity(self, rows: Values, i: Tensor, j: Tensor) -> Tensor:
        known, numbers = rows.known, rows.numbers
        places = list(zip(i.tolist(), j.tolist(), strict=True))
        pairs = [(numbers[x], numbers[y]) for x, y in places]
        if new := {pair: place for pair, place in zip(pairs, places, strict=True) if pair not in known}:
            self._ask(new, rows)
        return torch.tensor([known[pair] for pair in pairs], dtype=torch.float64, device=i.device)

    def _ask(self, new: dict[tuple[int, int], tuple[int, int]], rows: Values) -> None:
        # new: pair of numbers -> pair of rows
        """Add what the function answers; an error leaves the answers before it."""
        places = [(rows.values[x], rows.values[y]) for x, y in new.values()]
        answers = self._many(*zip(*places, strict=True)) if self.batched else starmap(self.function, places)
        wrong = None
        for (pair, place), answer in zip(new.items(), answers, strict=True):
            number = _number(answer)
            if number < math.inf:  # False for NaN
                rows.known[pair] = number
            elif wrong is None:
                wrong = answer, *place
                if not self.batched:
                    break
        if wrong is not None:
            answer, x, y = wrong
            pair_text = f"{rows.where(x)} and {rows.where(y)}"
            raise ValueError(f"from_func: got {answer!r:.60} for {pair_text}, wanted a number below infinity")

    def _many(self, xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
        got = self.function(list(xs), list(ys))
        found = got.tolist() if hasattr(got, "tolist") else list(got)  # of a tensor or an array
        if len(found) != len(xs):
            raise ValueError(f"from_func: got {len(found)} values for {len(xs)} pairs, wanted one for each")
        return found


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
