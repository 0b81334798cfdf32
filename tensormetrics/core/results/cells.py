"""Cells of a `Table`: their types, and how results of several values are split into columns and joined again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .estimates import Comparison, Estimate
from .formatting import label_texts
from .result import Result

Cell: TypeAlias = Estimate | Comparison | float | int | bool | str | None


def distinct_names(name: str, names: Any) -> tuple[str, ...]:
    distinct = tuple(names)
    wrong = next((x for x in distinct if not isinstance(x, str)), None)
    if wrong is not None:
        raise TypeError(f"{name}: got {wrong!r}, wanted texts")
    if len({*distinct}) < len(distinct):
        twice = next(x for i, x in enumerate(distinct) if x in distinct[:i])
        raise ValueError(f"{name}: got {twice!r} twice, wanted distinct names")
    return distinct


def row_of_cells(name: str, columns: tuple[str, ...], cells: Any) -> tuple[Cell, ...]:
    if isinstance(cells, Mapping):
        if unknown := cells.keys() - {*columns}:
            raise ValueError(f"cells: got {sorted(unknown)[0]!r} in row {name!r}, wanted one of {', '.join(columns)}")
        cells = [cells.get(column) for column in columns]
    if len(cells) != len(columns):
        raise ValueError(f"cells: got {len(cells)} in row {name!r}, wanted {len(columns)}, one for each column")
    return tuple(_cell(cell, name, column) for cell, column in zip(cells, columns, strict=True))


def _cell(cell: Any, row: str, column: str) -> Cell:
    if cell is None or type(cell) in (float, int, bool, str):
        return cell
    if isinstance(cell, Estimate | Comparison) and cell.low.ndim == 0 and cell.labels is None:
        return cell
    if isinstance(cell, Estimate | Comparison) and cell.low.numel() == 1:
        return dataclasses.replace(cell._map(lambda tensor: tensor.reshape(())), labels=None)
    if isinstance(cell, np.number | np.bool_) or (isinstance(cell, Tensor) and cell.numel() == 1):
        return cell.item()
    if isinstance(cell, int | float | str):
        return cell
    got = f"{cell.low.numel()} values" if isinstance(cell, Result) else f"a {type(cell).__name__}"
    raise TypeError(
        f"cells: got {got} in row {row!r}, column {column!r}, wanted an Estimate or a Comparison of one value, a "
        "number, a text or None; Table.of splits several values into columns"
    )


def single_values(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a result, or of several by name, with the name of its column."""
    if isinstance(result, Mapping):
        for key, part in result.items():
            yield from single_values(part, str(key))
        return
    name = name or getattr(result, "name", None) or "value"
    if isinstance(result, Result) and result.low.ndim:
        flat = result._map(torch.Tensor.flatten)
        for i, label in enumerate(label_texts(result)):
            yield f"{name}/{label}", flat[i]
    elif isinstance(result, Tensor) and result.ndim:
        yield from ((f"{name}/{i}", value) for i, value in enumerate(result.flatten()))
    else:
        yield name, result


def joined_cells(cells: Sequence[Any], name: str, rows: tuple[str, ...]) -> Any:
    """Return one result with a value per cell, a tensor of numbers, or the cells themselves if they are mixed."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds and kinds <= {int, float, bool}:
        values = [torch.nan if cell is None else float(cell) for cell in cells]
        return torch.tensor(values, dtype=torch.float64, device="cpu")
    for kind in (Estimate, Comparison):
        if kinds == {kind}:
            return _stacked(kind, cells, name, rows)
    return tuple(cells)


def _stacked(kind: type[Estimate] | type[Comparison], cells: Sequence[Any], name: str, rows: tuple[str, ...]) -> Any:
    """Return one result with a value per cell, NaN for a missing one, and the fields that are equal in all cells."""
    filled = [cell for cell in cells if cell is not None]
    nan = filled[0].low.new_full((), torch.nan, dtype=torch.float64)
    fields: dict[str, Any] = {
        field: torch.stack([nan if cell is None else getattr(cell, field).to(nan) for cell in cells])
        for field in kind.tensors
    }
    for field in ("confidence", "items", "groups", "effective_groups", "method", "rope", "higher_is_better"):
        values = {getattr(cell, field, None) for cell in filled}
        if field in kind.__dataclass_fields__ and len(values) == 1:
            fields[field] = values.pop()
    return kind(**fields, name=name, labels=rows)


def as_scalars(
    values: Mapping[str, Any] | Result, prefix: str = "", labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, float]:
    """Return a flat dictionary for a logger: "acc", "acc/low", "acc/high", with indices as in "tpr/0" and "tpr/0/low".

    Args:
        values: An `Estimate`, a `Comparison` ("acc" is the difference) or a tensor (...) by name, or one of the former
            two, with its own name or else "value".
        prefix: Text before each name, such as "val/".
        labels: Names in place of the last index of some values: {"tpr": ["cat", "dog"]}.

    Returns:
        The values as numbers: `self.log_dict(as_scalars(metric.interval()))`.

    >>> accuracy = Estimate(torch.tensor(0.9), torch.tensor(0.75), torch.tensor(1.0))
    >>> as_scalars({"acc": accuracy, "tpr": torch.tensor([0.5, 0.25])}, labels={"tpr": ["cat", "dog"]})
    {'acc': 0.8999999761581421, 'acc/low': 0.75, 'acc/high': 1.0, 'tpr/cat': 0.5, 'tpr/dog': 0.25}
    """
    scalars = {}
    if isinstance(values, Result):
        values = {getattr(values, "name", None) or "value": values}
    for name, result in values.items():
        names = (labels or {}).get(name) or getattr(result, "labels", None)
        tensors = {field: getattr(result, field) for field in getattr(result, "tensors", ())} or {"value": result}
        for position, (field, tensor) in enumerate(tensors.items()):
            for index, value in np.ndenumerate(torch.as_tensor(tensor).detach().cpu().numpy()):
                keys = [*index[:-1], names[index[-1]]] if names else index
                scalars[prefix + "/".join([name, *map(str, keys), *([field] if position else [])])] = float(value)
    return scalars
