"""Nodes of a user's similarity function of Python values or of their numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...comparators.base import call, current_answers, to_float
from ..columns import RowPath
from .node import NeedsTensors, Node, below


class FunctionValues(NamedTuple):
    values: Sequence[Any]
    ids: list[int]  # of the values; equal values have equal ids
    similarities: dict[tuple[int, int], float]  # pair of ids -> similarity
    where: RowPath


class FunctionError(Exception):
    """Wrapper of an error of a user's function; other errors of the scalar path mean that tensors must be used."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Function(Node):
    """User function f(x, y) on the host, called once for each required pair; batched: f(xs, ys) of lists."""

    cost = 3

    def __init__(self, function: Callable[..., Any], dominated: bool = False, batched: bool = False) -> None:
        self.function, self.dominated, self.batched = function, dominated, batched
        self.supports_scalar_path = not batched

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        answers = current_answers()
        return [(answers.id_of(value), value) for value in values]

    def scalar_similarity(self, a: tuple[int, Any], b: tuple[int, Any]) -> float:
        similarities, pair = current_answers().of(self.function), (a[0], b[0])
        if pair not in similarities:
            try:
                answer = self.function(a[1], b[1])
            except Exception as error:
                raise FunctionError(error) from error
            similarity = to_float(answer)
            if not similarity < math.inf:  # False for NaN
                raise NeedsTensors
            similarities[pair] = similarity
        return similarities[pair]

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> FunctionValues:
        answers = current_answers()
        return FunctionValues(values, list(map(answers.id_of, values)), answers.of(self.function), where)

    def similarity(self, rows: FunctionValues, i: Tensor, j: Tensor) -> Tensor:
        similarities, ids = rows.similarities, rows.ids
        row_pairs = list(zip(i.tolist(), j.tolist(), strict=True))
        pairs = [(ids[x], ids[y]) for x, y in row_pairs]
        if new := {pair: row_pair for pair, row_pair in zip(pairs, row_pairs, strict=True) if pair not in similarities}:
            pairs_of_values = {pair: (rows.values[x], rows.values[y]) for pair, (x, y) in new.items()}
            wrong = call(self.function, pairs_of_values, similarities, self.batched, to_float)
            if wrong is not None:
                pair_text = " and ".join(map(rows.where, new[wrong[1]]))
                raise ValueError(f"from_func: got {wrong[0]!r:.60} for {pair_text}, wanted a number below infinity")
        return torch.tensor([similarities[pair] for pair in pairs], dtype=torch.float64, device=i.device)


class Numbers(NamedTuple):
    table: Tensor  # (n, F) float64
    where: RowPath


Reader = tuple[tuple[str | int, ...], Callable[[Any], Any]]  # path component, function that reads it from a value


class TensorFunction(Node):
    """User function f((pairs, F), (pairs, F)) -> (pairs,) of the numbers of two values as float64.

    columns: the readers from a value to each number. check: raises an error for values of another type.
    """

    cost = 2

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        columns: Sequence[Sequence[Reader]],
        check: Callable[[Sequence[Any], RowPath], None],
        dominated: bool = False,
    ) -> None:
        self.function, self.columns, self.check, self.dominated = function, columns, check, dominated

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Numbers:
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
        is_valid = value < torch.inf  # False for NaN
        if not is_valid.all():
            wrong = tuple((~is_valid).nonzero()[0])
            pair = " and ".join(rows.where(int(index[wrong])) for index in (i, j))
            raise ValueError(f"tensor_func: got {value[wrong].item()} for {pair}, wanted a number below infinity")
        return value


def _column(values: Sequence[Any], readers: Sequence[Reader], where: RowPath) -> Tensor:  # ->  (n,) float64
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
