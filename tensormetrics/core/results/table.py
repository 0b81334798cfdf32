"""`Table`: several results, such as those of models in metrics, as text, LaTeX, CSV, JSON, a DataFrame or a picture."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from ..text.files import parsing
from . import table_formats
from .cells import Cell, distinct_names, joined_cells, row_of_cells, single_values
from .estimates import Comparison
from .formatting import value_rows
from .plots import plot_panels
from .result import Result
from .table_formats import Intervals
from .text_tables import data_frame, saved

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Comparisons = Mapping[tuple[str, str], Mapping[str, Comparison]]  # rows -> column -> their comparison


class Table:
    """Named rows, such as models, and named columns, such as metrics, of results.

    Immutable. `table["model", "f1"]` is a cell, `table["model"]` a row as a dictionary, `table.columns["f1"]` a column
    as one result with a value per row. Tables are equal if their JSON is.

    Args:
        rows: Distinct names of the rows.
        columns: Distinct names of the columns, or name -> whether higher is better (None: neither).
        cells: A sequence of cells, or column -> cell, for each row: an `Estimate` or a `Comparison` of one value, a
            number, a text, or None for nothing.
        title: Title of the table.
        caption: Caption of the table.
        index: Header of the row names, such as "model".

    Raises:
        ValueError: If names repeat, or rows and columns do not fit the cells.
        TypeError: If a cell is something else.

    Example:
        >>> a, b = (Estimate(*map(torch.tensor, ends)) for ends in ((0.84, 0.79, 0.89), (0.8, 0.75, 0.85)))
        >>> table = Table(["base", "large"], {"acc": True, "loss": False}, [[b, 0.4], [a, 0.3]], index="model")
        >>> print(table)
        model  acc                    loss
        base   0.800 [0.750, 0.850]  0.400
        large  0.840 [0.790, 0.890]  0.300
        >>> print(table.sort("loss").rows, table["large", "acc"])
        ('large', 'base') 0.840 [0.790, 0.890]
    """

    __slots__ = ("_comparisons", "caption", "cells", "higher_is_better", "index", "rows", "title")

    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    higher_is_better: dict[str, bool | None]  # of each column
    title: str | None
    caption: str | None
    index: str
    _comparisons: Callable[[], Comparisons] | None

    def __init__(
        self,
        rows: Sequence[str],
        columns: Sequence[str] | Mapping[str, bool | None],
        cells: Sequence[Sequence[Any] | Mapping[str, Any]],
        title: str | None = None,
        caption: str | None = None,
        index: str = "",
    ) -> None:
        rows, names = distinct_names("rows", rows), distinct_names("columns", columns)
        if len(cells) != len(rows):
            raise ValueError(f"cells: got {len(cells)} rows, wanted {len(rows)}, one for each name")
        fields = {
            "rows": rows,
            "cells": tuple(row_of_cells(name, names, row) for name, row in zip(rows, cells, strict=True)),
            "higher_is_better": dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(names),
            "title": title,
            "caption": caption,
            "index": index,
            "_comparisons": None,
        }
        for name, field in fields.items():
            object.__setattr__(self, name, field)

    @classmethod
    def of(
        cls, results: Mapping[str, Any], *, higher_is_better: Mapping[str, bool | None] | None = None, **texts: Any
    ) -> Table:
        """Make a table of results by row and column, or by row alone.

        A result of several values fills a column for each, such as "tpr/cat" and "tpr/dog".

        Args:
            results: Name of a row -> result, or column -> result.
            higher_is_better: Column -> direction, for the columns that have one.
            **texts: `title`, `caption` and `index`.

        Example:
            >>> ends = torch.tensor([[0.9, 0.5], [0.8, 0.3], [1.0, 0.7]])
            >>> recall = Estimate(*ends, name="tpr", labels=("cat", "dog"))
            >>> print(Table.of({"model": recall}))
                   tpr/cat               tpr/dog
            model  0.900 [0.800, 1.000]  0.500 [0.300, 0.700]
        """
        # A row that bears its result's own name, such as a metric's, does not need a column of that name.
        cells = {
            row: dict(single_values(result, result.tensors[0] if getattr(result, "name", None) == row else ""))
            for row, result in results.items()
        }
        directions = higher_is_better or {}
        columns = {
            name: directions.get(name, directions.get(name.partition("/")[0])) for row in cells.values() for name in row
        }
        return cls(list(cells), columns, [{**dict.fromkeys(columns), **row} for row in cells.values()], **texts)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a Table is immutable; make another, for example by select or sort")

    @classmethod
    def _of(cls, table: Table, field: Any) -> Any:
        """Return a table of a subclass, which has a further field."""
        made = cls(table.rows, table.higher_is_better, table.cells, table.title, table.caption, table.index)
        object.__setattr__(made, cls.__slots__[0], field)
        return made

    def __reduce__(self) -> Any:
        if type(self) is not Table:
            return type(self)._of, (self._with(), getattr(self, self.__slots__[0]))
        return Table, (self.rows, self.higher_is_better, self.cells, self.title, self.caption, self.index)

    def _with(self, **fields: Any) -> Table:
        """Return a copy with other fields of the constructor."""
        current = {name: getattr(self, name) for name in ("rows", "cells", "title", "caption", "index")}
        table = Table(**{"columns": self.higher_is_better, **current, **fields})
        return table._compared_by(self._comparisons)

    def _compared_by(self, comparisons: Callable[[], Comparisons] | None) -> Table:
        """Store the function that compares the rows on demand, and return the table."""
        object.__setattr__(self, "_comparisons", comparisons)
        return self

    @property
    def columns(self) -> Mapping[str, Any]:
        """Return each column by name: one result of all rows, a tensor of numbers, or else its cells."""
        return _Columns(self)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: str | tuple[str, str]) -> Any:
        row, *column = key if isinstance(key, tuple) else (key,)
        cells = self._row(row)
        if not column:
            return cells
        if column[0] not in cells:
            raise KeyError(f"column: got {column[0]!r}, wanted one of {', '.join(cells)}")
        return cells[column[0]]

    def _row(self, row: str) -> dict[str, Cell]:
        if row not in self.rows:
            raise KeyError(f"row: got {row!r}, wanted one of {', '.join(self.rows)}")
        return dict(zip(self.higher_is_better, self.cells[self.rows.index(row)], strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __or__(self, other: Table) -> Table:
        """Join the rows and the columns of two tables; ValueError where both have the same cell."""
        columns = {**other.higher_is_better, **self.higher_is_better}
        cells: dict[str, dict[str, Cell]] = {}
        for table in (self, other):
            for row in table.rows:
                row_cells = cells.setdefault(row, dict.fromkeys(columns))
                for column, cell in table._row(row).items():
                    if row_cells[column] is not None and cell is not None:
                        raise ValueError(f"both tables have a cell {row!r}, {column!r}; rename the row of one")
                    row_cells[column] = cell if cell is not None else row_cells[column]
        order = {name: columns[name] for name in (*self.higher_is_better, *other.higher_is_better)}
        return Table(list(cells), order, [*cells.values()], self.title, self.caption, self.index)

    def select(self, *columns: str) -> Table:
        """Return a table of some columns, in the given order."""
        missing = [name for name in columns if name not in self.higher_is_better]
        if missing:
            raise KeyError(f"column: got {missing[0]!r}, wanted one of {', '.join(self.higher_is_better)}")
        rows = [{name: self[row, name] for name in columns} for row in self.rows]
        return self._with(columns={name: self.higher_is_better[name] for name in columns}, cells=rows)

    def sort(self, column: str, *, descending: bool | None = None) -> Table:
        """Return a table whose rows are sorted by a column: the best first, or from high to low.

        Missing cells and NaN go last. `descending` sorts by the numbers whatever is better.
        """
        if descending is None:
            descending = self.higher_is_better.get(column) is not False
        sign = -1 if descending else 1

        def key(row: str) -> tuple[bool, float]:
            value = table_formats.value_of(self[row, column])
            return value != value, sign * value

        order = sorted(self.rows, key=key)
        return self._with(rows=order, cells=[self._row(row) for row in order])

    def compare(self) -> Table:
        """Compare all pairs of rows, where these are metrics that were updated with the same items.

        Returns:
            A table of a row for each pair: see `compare` of several models.

        Raises:
            ValueError: If the rows were not made from metrics.
        """
        pairs = self._pairs("compare")
        return pairs_table(
            pairs, [name for name in self.higher_is_better if any(name in pair for pair in pairs.values())]
        )

    def _pairs(self, method: str) -> Comparisons:
        if self._comparisons is None:
            raise ValueError(f"{method}: this table was not made from metrics; write compare({{name: metric, ...}})")
        return self._comparisons()

    def tied(self, column: str) -> tuple[str, ...]:
        """Return the best row of a column and those whose difference from it is not significant by corrected p-values.

        Raises:
            KeyError: If there is no such column.
            ValueError: If the rows were not made from metrics, or the column has no direction.
        """
        if column not in self.higher_is_better:
            raise KeyError(f"column: got {column!r}, wanted one of {', '.join(self.higher_is_better)}")
        if self.higher_is_better[column] is None:
            raise ValueError(f"column: got {column!r}, for which neither high nor low is better")
        best, *others = self.sort(column).rows
        pairs = {frozenset(pair): comparisons[column] for pair, comparisons in self._pairs("tied").items()}

        return best, *(other for other in others if not pairs[frozenset((best, other))]._is_significant)

    def to_text(self, precision: int = 3) -> str:
        """Return aligned columns of text, as `print` shows them."""
        parts = [self.title, table_formats.to_text(self, "plain", precision), self.caption]
        return "\n".join(part for part in parts if part)

    def __str__(self) -> str:
        # Where a line is wider than the terminal, with rows and columns exchanged if that fits or is half as wide.
        text, terminal = self.to_text(), shutil.get_terminal_size().columns
        width = max(map(len, text.splitlines()), default=0)
        if width <= terminal:
            return text
        cells = [*zip(*self.cells, strict=True)] or [()] * len(self.higher_is_better)
        exchanged = Table([*self.higher_is_better], self.rows, cells, self.title, self.caption).to_text()
        return exchanged if max(map(len, exchanged.splitlines())) <= max(terminal, width // 2) else text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table_formats.to_text(self, "html")

    def to_markdown(self, precision: int = 3) -> str:
        """Return a table of Markdown, its caption in a paragraph below."""
        text = table_formats.to_text(self, "pipe", precision)
        return f"{text}\n\n{self.caption}" if self.caption else text

    def to_latex(
        self,
        precision: int = 3,
        intervals: Intervals = "brackets",
        bold: Literal["best", "tied"] | None = "best",
        booktabs: bool = False,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """Return a `tabular` that compiles with pdflatex and XeLaTeX.

        Args:
            precision: Number of decimals.
            intervals: "brackets" for 0.084 [0.061, 0.109], "plusminus" for 0.084 ± 0.024 (half the width), None for
                numbers alone.
            bold: "best" prints the best number of each column that has a direction in bold, "tied" also those of
                `tied`.
            booktabs: Whether the rules are those of the package booktabs.
            caption: Text of a caption; with it or a `label` there is a `table` around.
            label: Name for references, of letters, digits and ``:_.-``.

        Raises:
            ValueError: If an option is unknown, or ``bold="tied"`` and the table was not made from metrics.
        """
        text = table_formats.to_latex(self, precision, intervals, bold, booktabs)
        return table_formats.latex_float(text, caption, label)

    def to_frame(self, style: Literal["numbers", "text"] = "numbers") -> pd.DataFrame:
        """Return a pandas DataFrame of a row per row.

        Args:
            style: "numbers" adds "metric/low" and "metric/high" to the column of a metric, and p-values and
                probabilities to that of a difference; "text" has printed cells.

        Raises:
            ImportError: Without pandas; it names the extra that has it.
        """
        headers, rows = table_formats.frame_columns(self, style)
        return data_frame(headers, rows, self.rows, self.index or None)

    def to_csv(self, path: str | os.PathLike | None = None) -> str:
        """Return, and write to `path`, comma-separated values with all digits; ends have separate columns."""
        return saved(table_formats.to_csv(self), path)

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Return, and write to `path`, JSON from which `from_json` makes an equal table.

        NaN is null, and infinity "inf" or "-inf".
        """
        return saved(json.dumps(table_formats.document_of(self), allow_nan=False), path)

    @classmethod
    def from_json(cls, source: str | os.PathLike) -> Table:
        """Read the text or the file that `to_json` wrote.

        Raises:
            ValueError: If it is something else.
        """
        arguments = table_formats.from_json(source)
        models = arguments.pop("models", None)
        with parsing(table_formats.name_of(source), "what Table.to_json wrote"):
            if models is None:
                return Table(**arguments)
            return ComparisonTable._of(Table(**arguments), Table(**models))

    def plot(self, ax: Axes | Sequence[Axes] | None = None) -> tuple[Figure, list[Axes]]:
        """Draw a forest plot: a panel for each column of numbers, with a point and its interval for each row.

        Args:
            ax: As many axes as panels; default those of a new figure.

        Returns:
            The figure and its axes.

        Raises:
            ImportError: Without matplotlib.
            ValueError: If no column has numbers.
        """
        panels = {}
        for name, column in self.columns.items():
            if isinstance(column, Result):
                panels[name] = np.array(value_rows(column))
            elif isinstance(column, Tensor):
                panels[name] = np.stack([column.numpy(), *[np.full(len(column), np.nan)] * 2], 1)
        if not panels:
            raise ValueError("plot: no column of this table has numbers")
        return plot_panels(self.rows, panels, self.higher_is_better, ax)


class ComparisonTable(Table):
    """All pairs of several models, as `compare` makes it of them.

    Attributes:
        models: A `Table` of the models: each score with its interval; of a single score also the first and the last
            rank that the model may have, all of them right with probability `confidence`, and whether it may be the
            best.

    Example:
        >>> from tensormetrics import compare
        >>> table = compare({"a": [1, 1, 1, 1] * 10, "b": [1, 1, 1, 0] * 10, "c": [1, 0, 0, 0] * 10})
        >>> table.best, table.ranks
        (('a',), {'a': (1, 1), 'b': (2, 2), 'c': (3, 3)})
    """

    __slots__ = ("models",)

    models: Table

    @property
    def ranks(self) -> dict[str, tuple[int, int]]:
        """Return the first and the last possible rank of each model.

        Raises:
            ValueError: If the models were compared in several scores, or in one without a direction.
        """
        self._check_ranked("ranks")
        ends = ((int(self.models[name, end]) for end in ("first rank", "last rank")) for name in self.models.rows)
        return {name: (first, last) for name, (first, last) in zip(self.models.rows, ends, strict=True)}

    @property
    def best(self) -> tuple[str, ...]:
        """Return the models that cannot be distinguished from the best one, which is among them.

        Raises:
            ValueError: If the models were compared in several scores, or in one without a direction.
        """
        self._check_ranked("best")
        return tuple(name for name in self.models.rows if self.models[name, "best"])

    def _check_ranked(self, method: str) -> None:
        if "best" not in self.models.higher_is_better:
            names = ", ".join(self.models.higher_is_better)
            raise ValueError(f"{method}: got models that were compared in {names}, wanted one score with a direction")


class _Columns(Mapping[str, Any]):
    def __init__(self, table: Table) -> None:
        self.table = table

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.higher_is_better)

    def __len__(self) -> int:
        return len(self.table.higher_is_better)

    def __getitem__(self, name: str) -> Any:
        return joined_cells([self.table[row, name] for row in self.table.rows], name, self.table.rows)


def table_of(results: Mapping[str, Any], direction: Callable[[str], bool | None], **texts: Any) -> Table:
    """Return the table of results by row, where a function says of a value's name whether higher is better."""
    names = {name for result in results.values() for name in (result if isinstance(result, Mapping) else [result.name])}
    return Table.of(results, higher_is_better={name: direction(name) for name in names}, **texts)


def pairs_table(pairs: Comparisons, columns: Sequence[str]) -> Table:
    """Return a table of a row for each pair.

    For one metric it has the difference, p-values, probability that the first is better, tests against a rope, verdict,
    and the fraction of undefined draws if any is above 0; for several metrics a difference and a p-value each,
    corrected where there are several pairs, and with a rope a verdict.
    """
    rows: dict[str, dict[str, Cell]] = {}
    for (a, b), comparisons in pairs.items():
        row = rows.setdefault(f"{a} - {b}", {})
        for name in columns:
            comparison = comparisons[name]
            if len(columns) == 1:
                row |= comparison._cells() | {"difference": comparison}
            else:
                row |= {name: comparison, f"{name} p": float(comparison._decisive_p)}
                row |= {} if comparison.rope is None else {f"{name} verdict": comparison.verdict}
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return Table(list(rows), list(names), list(rows.values()))
