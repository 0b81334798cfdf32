"""Base of the result types: a number, or several, with the ends of an interval."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from .formatting import description, interval_text, label_texts, result_lines, value_rows
from .plots import plot_values
from .text_tables import data_frame, json_value, rendered, saved

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ResultType = TypeVar("ResultType", bound="Result")


class Result:
    """Base of `Estimate` and `Comparison`: a number, or several, with the ends of an interval.

    Immutable; unpacks into its number and both ends. A node of `torch.utils._pytree`, whose leaves are its tensors.
    """

    tensors: ClassVar[tuple[str, ...]]  # names of the fields that are tensors, the number first
    optional: ClassVar[tuple[str, ...]] = ()  # names of the fields that are tensors or results, or None
    low: Tensor
    high: Tensor
    labels: tuple[str, ...] | None

    def __init_subclass__(cls) -> None:
        def flatten(result: Any) -> tuple[list[Any], Any]:
            names = [name for name in (*cls.tensors, *cls.optional) if getattr(result, name) is not None]
            context = {name: getattr(result, name) for name in _field_names(cls) if name not in names}
            return [getattr(result, name) for name in names], _Context((*names,), context)

        def unflatten(leaves: Any, context: Any) -> Any:
            result = object.__new__(cls)
            for name, field in (*zip(context.names, leaves, strict=True), *context.fields.items()):
                object.__setattr__(result, name, field)
            return result

        register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"tensormetrics.{cls.__name__}")

    def _number(self) -> Tensor:
        return getattr(self, self.tensors[0])

    def _map(self: ResultType, function: Callable[[Tensor], Tensor]) -> ResultType:
        mapped: dict[str, Any] = {}
        for name in (*self.tensors, *self.optional):
            field = getattr(self, name)
            if isinstance(field, Result):
                mapped[name] = field._map(function)
            elif field is not None:
                mapped[name] = function(field)
        return dataclasses.replace(self, **mapped)  # type: ignore[type-var]

    def to(self: ResultType, *args: Any, **kwargs: Any) -> ResultType:
        """Move or cast all tensors; takes what `torch.Tensor.to` takes."""
        return self._map(lambda tensor: tensor.to(*args, **kwargs))

    def cpu(self: ResultType) -> ResultType:
        """Move all tensors to the CPU."""
        return self._map(torch.Tensor.cpu)

    def detach(self: ResultType) -> ResultType:
        """Detach all tensors from the graph of gradients."""
        return self._map(torch.Tensor.detach)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but `details` as Python numbers, texts, lists and dictionaries."""
        return {name: _to_python(getattr(self, name)) for name in _field_names(type(self)) if name != "details"}

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame of one row per value. ImportError names the extra that has pandas."""
        fields = (*self.tensors, "p_corrected", "p_not_worse", "p_equivalent")
        names = [name for name in fields if isinstance(getattr(self, name, None), Tensor)]
        rows: list[list[Any]] = [*value_rows(self, (*names,))]
        if hasattr(self, "verdict"):
            verdicts = np.array(self.verdict, dtype=object).flatten().tolist()
            names, rows = [*names, "verdict"], [[*row, x] for row, x in zip(rows, verdicts, strict=True)]
        return data_frame(names, rows, label_texts(self), None)

    def to_markdown(self, precision: int = 3) -> str:
        """Return a Markdown table of a row per value, that of a difference with p-values and verdict."""
        return self._rendered("pipe", precision)

    def to_latex(self, precision: int = 3) -> str:
        """Return the same table as a `tabular` of LaTeX."""
        return self._rendered("latex", precision)

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Return, and write to `path`, what `to_dict` returns as JSON; NaN is null, and infinity "inf" or "-inf"."""
        return saved(json.dumps(json_value(self.to_dict()), allow_nan=False), path)

    def _rendered(self, text_format: str, precision: int = 3) -> str:
        parts = [self._map(lambda t, i=i: t.flatten()[i]) for i in range(self.low.numel())]  # type: ignore[misc]
        rows = [{"": x} | part._cells(precision) for x, part in zip(label_texts(self), parts, strict=True)]
        return rendered(text_format, [*(rows[0] if rows else ())], [[*row.values()] for row in rows], precision)

    def _cells(self, precision: int) -> dict[str, Any]:
        """Return the cells of the row of a single value by header."""
        (row,) = value_rows(self)
        return {self.tensors[0]: interval_text(*row, precision=precision, is_signed=self.tensors[0] == "difference")}

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Plot each number as a point with its interval as a bar.

        Args:
            ax: Axes to draw on; default those of a new figure.

        Returns:
            The figure and its axes.

        Raises:
            ImportError: Without matplotlib.
        """
        name, parts = getattr(self, "name", None) or type(self).__name__, self.by_label()
        return plot_values([parts if len(parts) > 1 else next(iter(parts.values()), self)], name, ax=ax)

    def by_label(self: ResultType) -> dict[str, ResultType]:
        """Return each value by its label or index, a single one by ""."""
        labels = label_texts(self)
        return {label: self._map(lambda t, i=i: t.flatten()[i]) for i, label in enumerate(labels)}  # type: ignore[misc]

    def _repr_html_(self) -> str:
        return f"{self._rendered('html')}\n<p>{description(self)}</p>"

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self._number(), self.low, self.high))

    def __getitem__(self: ResultType, index: Any) -> ResultType:
        if self.low.ndim == 0:
            raise IndexError(f"index: got {index!r} for a single value; write .{self.tensors[0]}, .low or .high")
        if isinstance(index, str):
            if index not in (self.labels or ()):
                raise KeyError(f"label: got {index!r}, wanted one of {self.labels}")
            index = (..., (self.labels or ()).index(index))
        part = self._map(lambda tensor: tensor[index])
        keeps_labels = self.labels is not None and part.low.shape[-1:] == self.low.shape[-1:]
        return part if keeps_labels else dataclasses.replace(part, labels=None)  # type: ignore[type-var]

    def __float__(self) -> float:
        value = self._number()
        if value.numel() != 1:
            raise TypeError(f"got {value.numel()} values, wanted one; write result[0] or result.{self.tensors[0]}")
        return float(value)

    def __bool__(self) -> bool:
        kind = type(self).__name__
        raise TypeError(f"the truth of {kind} is ambiguous; compare .{self.tensors[0]}, .low or .high with a number")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._number().detach().cpu().numpy(), dtype=dtype)

    def __format__(self, spec: str) -> str:
        return "\n".join(result_lines(self, spec))

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return ", ".join(filter(None, [str(self), description(self)]))

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Result):
            raise TypeError("two results: overlapping intervals are no test; write compare(a, b) of the metrics")
        if not isinstance(other, Tensor | int | float | np.number):
            return NotImplemented
        outcome = compare(self._number(), other)
        return bool(outcome) if outcome.ndim == 0 else outcome

    def _bits(self) -> tuple[Any, ...]:
        ends = (getattr(self, name).detach().cpu().double() + 0 for name in self.tensors)
        return type(self), *((end.shape, end.numpy().tobytes()) for end in ends)

    def __eq__(self, other: object) -> Any:
        # With a number as `<` and `>`; results are equal if all their numbers are, NaN to NaN.
        return self._bits() == other._bits() if isinstance(other, Result) else self._compared(other, torch.eq)

    def __ne__(self, other: object) -> Any:
        return self._bits() != other._bits() if isinstance(other, Result) else self._compared(other, torch.ne)

    def __hash__(self) -> int:
        return hash(self._bits())

    def __round__(self: ResultType, ndigits: int | None = None) -> ResultType:
        ends = zip((self.tensors[0], "low", "high"), self, strict=True)
        return dataclasses.replace(self, **{name: end.round(decimals=ndigits or 0) for name, end in ends})  # type: ignore[type-var]

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, torch.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, torch.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, torch.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, torch.ge)


def _field_names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cast(Any, cls))]


def _to_python(field: Any) -> Any:
    if isinstance(field, Result):
        return field.to_dict()
    return field.tolist() if isinstance(field, Tensor) else list(field) if isinstance(field, tuple) else field


@dataclasses.dataclass(frozen=True, eq=False)
class _Context:
    """The names of a result's leaves and its other fields; equal to any other, because trees compare structures."""

    names: tuple[str, ...]
    fields: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context)

    def __hash__(self) -> int:
        return 0
