"""Intervals and comparisons for metrics of torchmetrics."""

from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import torch
import torchmetrics
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torchmetrics.utilities.data import dim_zero_sum

from ... import _checks
from ..._metric import Lock
from ..._sum_metric import SumMetric


class Uncertain(SumMetric):
    """Any torchmetrics metric whose states are all sums, with `interval` and `compare`: one `update` is one item.

    Or one group of them: a patient's pictures, a document's tokens, or a batch of a shuffled loader, of which there are
    to be at least some thirty. `compute` and `forward` are those of `metric`, which is used up: the wrapper feeds it.
    `replicates` weighted sums of its states, and as many of random halves, are all that is kept. Metrics with list
    states (`thresholds=None`) are a ValueError: give them thresholds.

        metric = Uncertain(MulticlassF1Score(10), replicates=1000)
        for preds, target in loader:
            metric.update(preds, target)
        value, low, high = metric.interval()

    >>> from torchmetrics.classification import MulticlassF1Score
    >>> metric = Uncertain(MulticlassF1Score(3), replicates=200)
    >>> for patient in range(40):
    ...     labels = torch.arange(patient, patient + 6) % 3
    ...     metric.update(labels.clone().clamp(max=2 - patient % 2), labels)
    >>> print("{:.2f} [{:.2f}, {:.2f}]".format(*metric.interval()))
    0.82 [0.75, 0.88]
    """

    def __init__(self, metric: torchmetrics.Metric, *, replicates: int = 1000, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        if not isinstance(metric, torchmetrics.Metric):
            raise TypeError(f"metric: got a {type(metric).__name__}, wanted a metric of torchmetrics")
        wrong = [name for name, how in metric._reductions.items() if how is not dim_zero_sum]
        if wrong or not metric._defaults:
            raise ValueError(
                f"metric: {type(metric).__name__} keeps {', '.join(wrong) or 'nothing'}, which is no sum; metrics of "
                "scores want thresholds=100"
            )
        metric.reset()
        self.metric, self._turn = metric, Lock()  # batches of `forward` share both
        self.shapes = {name: getattr(metric, name).shape for name in metric._defaults}  # they are reset
        self.add_sums(sum(shape.numel() for shape in self.shapes.values()))

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        return self.metric.higher_is_better

    def update(
        self, *args: Any, ids: Hashable | Tensor | None = None, groups: Hashable | Tensor | None = None, **kwargs: Any
    ) -> None:
        """Add an item, or a group of items: what `metric.update` takes, and whose it is, a number or a name.

        Updates of one group may come in any number and order. `ids`: items of one id have one weight in a replicate, in
        whatever order they come. `groups`: documents, patients, speakers; items of one group share a weight.
        """
        with self._turn:
            self.metric.reset()
            self.metric.update(*args, **kwargs)
            states = [getattr(self.metric, name).detach().flatten().double() for name in self.shapes]
        row = torch.cat(states).to(self.sums.device)
        self.add_items(row[None], _single(ids), _single(groups))

    def compute(self) -> Any:
        return self.read_sums(self.sums)

    def read_sums(self, sums: Tensor) -> Any:
        # sums: (..., K)  ->  (..., *shape of the metric's value), or several by name
        rows = sums.reshape(-1, sums.shape[-1])
        with self._turn:
            found = self._values(rows)
        return tree_map(lambda leaf: leaf.reshape((*sums.shape[:-1], *leaf.shape[1:])), found)

    def _values(self, rows: Tensor) -> Any:
        # rows: (R, K)  ->  (R, *shape of the metric's value), or several by name
        vars(self.metric).update(_update_count=1, _computed=None)
        if len(rows) > 1:
            with suppress(RuntimeError):  # where `compute` branches on a value, rows are read one by one
                found = torch.vmap(self._value)(rows)
                self.metric.reset()
                return found
        flat, spec = zip(*(tree_flatten(self._value(row)) for row in rows), strict=True)
        return tree_unflatten([torch.stack(leaf) for leaf in zip(*flat, strict=True)], spec[0])

    def _value(self, row: Tensor) -> Any:
        pieces = row.split([shape.numel() for shape in self.shapes.values()])
        # States are plain attributes; `__setattr__` of a module takes longer than `compute`.
        vars(self.metric).update(
            {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}
        )
        return tree_map(_value_of, type(self.metric).compute(self.metric))


def _value_of(leaf: Any) -> Tensor:
    # as torchmetrics does around `compute`
    found = _checks.as_tensor(leaf).double()
    return found.squeeze() if found.numel() == 1 else found


def _single(given: Any) -> Any:
    return given.reshape(1) if isinstance(given, Tensor) else None if given is None else [given]
