"""Intervals and comparisons for metrics of torchmetrics."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import torchmetrics
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torchmetrics.utilities.data import dim_zero_sum

from ...core.arguments import checks
from ...core.metric.base import Answer
from ...core.metric.state_metric import Lock
from ...core.metric.sum_metric import SumMetric
from ...core.resampling.draws import Bounds
from . import _stat_scores


class Uncertain(SumMetric[Answer]):
    """Any torchmetrics metric whose states are all sums, with `interval` and `compare`: one `update` is one item.

    Or one group of them: a patient's pictures, a document's tokens, or a batch of a shuffled loader, of which there are
    to be at least some thirty. `compute` and `forward` are those of `metric`. Or, with an id for each row of a batch,
    the rows are items. `Uncertain[ScoreTable[Estimate]](...)` says that `metric` has values by name.

    Args:
        metric: Metric that the wrapper updates from now on. One with list states (`thresholds=None`) is a ValueError:
            give it thresholds.
        item_bounds: States that one worst and one best possible item adds, by name. They are known for accuracy,
            precision, recall, specificity, negative predictive value, F, Jaccard and Hamming scores: the interval of 10
            right answers of 10 is no point.

        metric = Uncertain(MulticlassF1Score(10))
        for preds, target, ids in loader:
            metric.update(preds, target, ids=ids)  # each row is an item; without ids the batch is one
        value, low, high = metric.interval()

    >>> from torchmetrics.classification import MulticlassF1Score
    >>> metric = Uncertain(MulticlassF1Score(3))
    >>> for patient in range(40):
    ...     labels = torch.arange(patient, patient + 6) % 3
    ...     metric.update(labels.clone().clamp(max=2 - patient % 2), labels)
    >>> print("{:.2f} [{:.2f}, {:.2f}]".format(*metric.interval()))
    0.82 [0.75, 0.88]
    """

    def __init__(
        self,
        metric: torchmetrics.Metric,
        *,
        replicates: int | None = None,
        seed: int = 0,
        item_bounds: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None,
        **kwargs: Any,
    ) -> None:
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
        self._counts_items = item_bounds is None  # the bounds are those of one item, of which an update may have many
        bounds = _stat_scores.item_bounds(metric) if item_bounds is None else item_bounds
        is_pair = (
            isinstance(bounds, tuple | list) and len(bounds) == 2 and all(isinstance(end, Mapping) for end in bounds)
        )
        if bounds is not None and not is_pair:
            raise TypeError(f"item_bounds: got {item_bounds!r:.60}, wanted the states of the worst and the best item")
        self._item_bounds = None if bounds is None else (self._row("worst", bounds[0]), self._row("best", bounds[1]))

    def _row(self, name: str, states: Mapping[str, Tensor]) -> Tensor:
        # ->  (K,)
        if states.keys() != self.shapes.keys():
            raise ValueError(f"item_bounds: got {sorted(states)} for the {name} item, wanted {sorted(self.shapes)}")
        expected = self.shapes.items()
        return torch.cat(
            [torch.as_tensor(states[state]).double().cpu().expand(shape).flatten() for state, shape in expected]
        )

    def item_bounds(self) -> Bounds | None:
        if self._item_bounds is None:
            return None
        size = torch.ones((), dtype=torch.float64, device="cpu")
        if self._counts_items and self._keeps_items:
            items = _stat_scores.items_of(self.metric, self._states(self.sums)) / (
                self._num_folded() + len(self.entries)
            )
            size = items.nan_to_num(1.0).clamp(min=1.0).cpu()
        return Bounds(size * self._item_bounds[0], size * self._item_bounds[1])

    def value_range(self) -> tuple[Any, Any]:
        if self._item_bounds is None:
            return -torch.inf, torch.inf
        if self._counts_items:
            return 0.0, 1.0  # of all scores of confusion counts
        ends = [self.read_sums(row.to(self.sums)) for row in self._item_bounds]
        flat = [torch.cat([leaf.flatten() for leaf in tree_flatten(end)[0]]).nan_to_num(torch.inf) for end in ends]
        low, high = torch.minimum(*flat), torch.maximum(*flat)
        return low.masked_fill(low == torch.inf, -torch.inf), high

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        return self.metric.higher_is_better

    def update(self, *args: Any, ids: Any = None, groups: Any = None, **kwargs: Any) -> None:
        """Add an item, or a group of items: the arguments of `metric.update`, and an integer or a name for each.

        With several ids or groups, one for each row of the arguments, each row is an item, which takes an update of
        `metric` each. A group may have any number of updates in any order. `ids`: items of one id have one weight in a
        replicate, in any order of updates. `groups`: documents, patients, speakers; items of one group share a weight.
        """
        names = {name: column for name, column in (("ids", ids), ("groups", groups)) if column is not None}
        if not any(map(_are_several, names.values())):
            self.add_items(self._states_of(*args, **kwargs)[None], _single(ids), _single(groups))
            return
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        for name, column in names.items():
            if not _are_several(column) or {len(column)} != {len(x) if x.ndim else 0 for x in tensors}:
                got, wanted = len(column) if _are_several(column) else 1, "one for each row of its arguments"
                raise ValueError(f"{name}: got {got}, but an update is one item, or a group; wanted one, or {wanted}")
        rows = [
            self._states_of(*item, **options)
            for item, options in (
                tree_map(lambda x, i=i: x[i : i + 1] if isinstance(x, Tensor) else x, (args, kwargs))
                for i in range(len(next(iter(names.values()))))
            )
        ]
        self.add_items(torch.stack(rows) if rows else self.sums.new_zeros(0, len(self.sums)), **names)

    def _states_of(self, *args: Any, **kwargs: Any) -> Tensor:
        # ->  (K,)
        with self._turn:
            self.metric.reset()
            self.metric.update(*args, **kwargs)
            states = [getattr(self.metric, name).detach().flatten().double() for name in self.shapes]
        return torch.cat(states).to(self.sums.device)

    def compute(self) -> Any:
        return self.read_sums(self.sums)

    def read_sums(self, sums: Tensor) -> Any:
        # sums: (..., K)  ->  (..., *shape of the metric's value), or several by name
        rows = sums.reshape(-1, sums.shape[-1])
        with self._turn:
            values = self._values(rows)
        return tree_map(lambda leaf: leaf.reshape((*sums.shape[:-1], *leaf.shape[1:])), values)

    def _values(self, rows: Tensor) -> Any:
        # rows: (R, K)  ->  (R, *shape of the metric's value), or several by name
        vars(self.metric).update(_update_count=1, _computed=None)
        if len(rows) > 1:
            with suppress(RuntimeError):  # where `compute` branches on a value, rows are read one by one
                values = torch.vmap(self._value)(rows)
                self.metric.reset()
                return values
        flat, spec = zip(*(tree_flatten(self._value(row)) for row in rows), strict=True)
        return tree_unflatten([torch.stack(leaf) for leaf in zip(*flat, strict=True)], spec[0])

    def _states(self, row: Tensor) -> dict[str, Tensor]:
        # row: (K,)
        chunks = row.split([shape.numel() for shape in self.shapes.values()])
        return {name: chunk.view(shape) for (name, shape), chunk in zip(self.shapes.items(), chunks, strict=True)}

    def _value(self, row: Tensor) -> Any:
        # States are plain attributes; `__setattr__` of a module takes longer than `compute`.
        vars(self.metric).update(self._states(row))
        return tree_map(_value_of, type(self.metric).compute(self.metric))


def _value_of(leaf: Any) -> Tensor:
    # as torchmetrics does around `compute`
    value = checks.as_tensor(leaf).double()
    return value.squeeze() if value.numel() == 1 else value


def _is_list(names: Any) -> bool:
    return isinstance(names, Sequence) and not isinstance(names, str)


def _are_several(names: Any) -> bool:
    """Return whether these are the names of the items of a batch, as opposed to that of one."""
    return names.numel() != 1 if isinstance(names, Tensor) else _is_list(names) and len(names) != 1


def _single(name: Any) -> Any:
    return name.reshape(1) if isinstance(name, Tensor) else name if name is None or _is_list(name) else [name]
