"""Conversion of an array, a table or a path to `Scores`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...core.results.result import Result
from ...core.text.tables import is_frame
from .item_scores import Scores, is_array
from .score_files import TELLING, check_ids, id_column, read_scores, score_column


class Source(NamedTuple):
    """Options of reading scores; for a table or a path `ids`, `groups`, `score` and `weights` are names of columns."""

    ids: Any = None
    groups: Any = None
    bounds: tuple[float, float] | None = None
    score: str | None = None
    higher_is_better: bool | None = None
    weights: Any = None

    def read(self, data: Any, name: str = "metric") -> Scores:
        """Return the scores that `data` holds."""
        if isinstance(data, Scores):
            self.check_unused(("ids", "groups", "score", "weights"), f"{name}, which has its own")
            scores = data
        elif is_path(data):
            self.check_unused(("weights",), f"{name}, a path", "read it as a DataFrame")
            scores = read_scores(data, self.score, **self._columns("ids", "groups"))
        elif is_frame(data):
            scores = self._of_frame(data)
        else:
            self.check_unused(("score",), f"{name}, a {type(data).__name__}")
            scores = Scores(data, self.ids, self.groups, weights=self.weights)
        return scores.replaced(bounds=self.bounds, higher_is_better=self.higher_is_better)

    def check_unused(self, options: Sequence[str], owner: str, advice: str = "leave it out") -> None:
        """Raise a ValueError for an option that does not apply to such scores."""
        for option in options:
            if getattr(self, option) is not None:
                raise ValueError(f"{option}: got it for {owner}; {advice}")

    def _columns(self, *options: str) -> dict[str, Any]:
        """Return options that are names of columns."""
        for option in options:
            if not isinstance(getattr(self, option), str | None):
                got = type(getattr(self, option)).__name__
                raise TypeError(f"{option}: got a {got} for a table, wanted the name of a column")
        return {option: getattr(self, option) for option in options}

    def _of_frame(self, frame: Any) -> Scores:
        self._columns("ids", "groups", "weights")
        columns = [*frame.columns]
        if (score := self.score or score_column(columns, (self.ids, self.groups, self.weights))) is None:
            raise ValueError(f"score: got none, wanted the name of a column: {_listed(frame)}")
        key = id_column(columns) if self.ids is None else self.ids
        names = (key, self.groups, self.weights)
        ids, groups, weights = (None if name is None else _column(frame, name) for name in names)
        if ids is not None and self.ids is None:
            check_ids([*ids], {name: [*frame[name]] for name in TELLING if name in columns}, "the table")
        return Scores(_column(frame, score), ids, groups, weights=weights, name=str(score))

    def models(self, table: Any, model: str) -> dict[str, Scores]:
        """Return the scores of each model of a table that names them in a column."""
        if is_path(table):
            read = read_scores(table, self.score, model=model, **self._columns("ids", "groups"))
            source = self._replace(ids=None, groups=None, score=None)
            return {name: source.read(scores, name) for name, scores in read.items()}
        if not is_frame(table):
            raise TypeError(f"model: got {model!r} for a {type(table).__name__}, wanted a DataFrame or a path")
        names = np.asarray([str(name) for name in _column(table, model)])
        key = id_column([*table.columns]) if self.ids is None else self.ids
        scores = self._replace(ids=key).read(table)
        return {name: scores.selected(np.flatnonzero(names == name)) for name in dict.fromkeys(names.tolist())}


NO_SOURCE = Source()


def is_path(data: Any) -> bool:
    """Return whether an object is the path of a file, or a list of the paths of several."""
    if isinstance(data, list | tuple):
        return all(isinstance(x, str | os.PathLike) for x in data) and any(map(os.path.exists, data))
    return isinstance(data, str | os.PathLike)


def is_scores(data: Any) -> bool:
    """Return whether an object holds scores, as opposed to a metric, which computes them."""
    if isinstance(data, Scores):
        return True
    if hasattr(data, "_resampled") or isinstance(data, Result):
        return False
    if isinstance(data, Mapping):
        return len(data) > 0 and all(is_number(value) or value is None for value in data.values())
    return isinstance(data, str | os.PathLike | Sequence) or is_frame(data) or (is_array(data) and not is_number(data))


def is_number(data: Any) -> bool:
    return isinstance(data, int | float | np.number | np.bool_) or (isinstance(data, Tensor) and data.ndim == 0)


def _column(frame: Any, name: Any) -> Any:
    if name not in list(frame.columns):
        raise ValueError(f"column: got {name!r}, wanted one of {_listed(frame)}")
    return frame[name]


def _listed(frame: Any) -> str:
    return ", ".join(map(repr, frame.columns))
