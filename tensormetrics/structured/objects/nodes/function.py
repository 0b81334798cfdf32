"""Nodes of a user's similarity function of Python values or of their numbers."""

import math
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..values.answers import current_answers
from ..values.columns import RowPath
from .node import NeedsTensors, Node, below


class Values(NamedTuple):
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
            similarity = _to_float(answer)
            if not similarity < math.inf:  # False for NaN
                raise NeedsTensors
            similarities[pair] = similarity
        return similarities[pair]

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Values:
        answers = current_answers()
        return Values(values, list(map(answers.id_of, values)), answers.of(self.function), where)

    def similarity(self, rows: Values, i: Tensor, j: Tensor) -> Tensor:
        similarities, ids = rows.similarities, rows.ids
        row_pairs = list(zip(i.tolist(), j.tolist(), strict=True))
        pairs = [(ids[x], ids[y]) for x, y in row_pairs]
        if new := {pair: row_pair for pair, row_pair in zip(pairs, row_pairs, strict=True) if pair not in similarities}:
            self._call_function(new, rows)
        return torch.tensor([similarities[pair] for pair in pairs], dtype=torch.float64, device=i.device)

    def _call_function(self, new: dict[tuple[int, int], tuple[int, int]], rows: Values) -> None:
        # new: pair of ids -> pair of rows
        """Call the function for new pairs and store the similarities; an error keeps those before it."""
        value_pairs = [(rows.values[x], rows.values[y]) for x, y in new.values()]
        answers = (
            self._call_batched(*zip(*value_pairs, strict=True)) if self.batched else starmap(self.function, value_pairs)
        )
        wrong = None
        for (pair, value_pair), answer in zip(new.items(), answers, strict=True):
            similarity = _to_float(answer)
            if similarity < math.inf:  # False for NaN
                rows.similarities[pair] = similarity
            elif wrong is None:
                wrong = answer, *value_pair
                if not self.batched:
                    break
        if wrong is not None:
            answer, x, y = wrong
            pair_text = f"{rows.where(x)} and {rows.where(y)}"
            raise ValueError(f"from_func: got {answer!r:.60} for {pair_text}, wanted a number below infinity")

    def _call_batched(self, xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
        result = self.function(list(xs), list(ys))
        values = result.tolist() if hasattr(result, "tolist") else list(result)  # of a tensor or an array
        if len(values) != len(xs):
            raise ValueError(f"from_func: got {len(values)} values for {len(xs)} pairs, wanted one for each")
        return values


def _to_float(value: Any) -> float:
    """Convert a value to a float, NaN for text and other values that are no number."""
    try:
        return value.__float__()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return math.nan


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
