"""The states of a metric as torchmetrics sees them: which metrics of a collection may keep one state for all."""

from collections.abc import Iterator, KeysView, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


class States(MutableMapping[str, Any]):
    """Default of each state by name, a view of a metric's dictionary.

    A MetricCollection of torchmetrics shares the states of metrics whose states have the same names and, after the
    first batch, the same values. Names of this view are equal only if the states are equal after every batch.
    """

    def __init__(self, defaults: dict[str, Any], metric: Any) -> None:
        self.defaults, self.metric = defaults, metric

    def __getitem__(self, name: str) -> Any:
        return self.defaults[name]

    def __setitem__(self, name: str, default: Any) -> None:
        self.defaults[name] = default

    def __delitem__(self, name: str) -> None:
        del self.defaults[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.defaults)

    def __len__(self) -> int:
        return len(self.defaults)

    def keys(self) -> KeysView[str]:
        return _Names(self)


class _Names(KeysView[str]):
    _mapping: States

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Names):  # of a metric of another package
            return False
        one, two = self._mapping, other._mapping
        return one.defaults.keys() == two.defaults.keys() and _same(
            one.metric.update_options(), two.metric.update_options()
        )

    __hash__ = None  # type: ignore[assignment]  # as of any keys


def _same(a: Any, b: Any) -> bool:
    """Return whether two options are certainly equivalent; objects only if they are identical."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.device == b.device and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, str | bytes | int | float | complex | frozenset | set | torch.device) and a == b
