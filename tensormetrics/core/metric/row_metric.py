"""Base of metrics that store a row of every item, and the ids and groups of items."""

from typing import Any

from torch import Tensor

from ..resampling.weights import ItemNames, check_same_kind, identity, kind_of_rows, kind_of_units
from .base import Answer, Metric


class RowMetric(Metric[Answer]):
    """Metric that stores columns of rows, and the `ids` and `groups` of their items, for `interval` and `compare`.

    Either all items have ids or none, and either all have groups or none: others are refused, not mixed.
    """

    ids: Tensor
    groups: Tensor
    _columns: tuple[str, ...] = ()

    def add_columns(self, *names: str) -> None:
        """Declare the states of the columns, by name, and those of `ids` and `groups`."""
        self._columns = names
        for name in (*names, "ids", "groups"):
            self.add_rows(name)

    def append_items(self, columns: dict[str, Tensor], **items: Any) -> None:
        # columns: (B, ...) each
        """Append the rows of items; `ids` and `groups` as in `update`."""
        first = next(iter(columns.values()))
        names = identity(len(first), first.device, **items)
        if len(first):
            check_same_kind(kind_of_units("ids" in names, "groups" in names), self._kind_of_state(self.metric_state))
        for name, rows in {**names, **columns}.items():
            self.append_rows(name, rows)

    def item_names(self) -> ItemNames:
        """Return the ids and groups of the items; ValueError if some have ids or groups and others have none."""
        return ItemNames.of_rows(getattr(self, self._columns[0]), self.ids, self.groups)

    def _kind_of_state(self, state: dict[str, Tensor]) -> int | None:
        return kind_of_rows(len(state[self._columns[0]]), state["ids"], state["groups"])

    def _add_state(self, state: dict[str, Tensor]) -> None:
        check_same_kind(self._kind_of_state(state), self._kind_of_state(self.metric_state))
        super()._add_state(state)
