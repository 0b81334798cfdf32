"""The base of metrics whose value is a function of sums over items."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..arguments import checks
from ..native.device_cache import cached_per_device
from ..resampling.draws import Bounds
from ..resampling.resampling import Joined, Resampled
from ..resampling.units import MAX_ENTRIES, add_entries, empty_store, entries_of, is_full, merge_stores, units_of_store
from ..resampling.weights import (
    GRIDS,
    KINDS,
    NUMBERED,
    check_draws,
    check_same_kind,
    fingerprint,
    identity,
    joined,
    kind_of_units,
    split_rows,
    weighted_sums,
)
from .base import Answer, Metric, Options


class SumMetric(Metric[Answer]):
    """Metric of sums over items, with `replicates=R` also of R weighted sums, for `interval` and `compare`.

    Sums of integers are exact, and so the same in any order and split of the items; others differ by rounding errors of
    float64. `ids` and `groups`: see `Uncertain`.
    """

    sums: Tensor
    weighted: Tensor  # (2, 3, R, K)
    sizes: Tensor  # (R,), weighted numbers of items
    units: Tensor  # the store of `engine.units`
    entries: Tensor  # of items that were not yet added to it
    items: Tensor  # () fingerprint
    identified: Tensor  # (4,) items by how they were identified

    def __init__(self, *, replicates: int = 0, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.replicates = checks.check_int("replicates", replicates, 0)
        self.seed: int | None = checks.check_int("seed", seed, 0)
        self._first_item: Tensor | None = None  # of a batch of `forward`: how many the metric has
        if self.replicates and type(self).no_interval is not Metric.no_interval:
            raise ValueError(f"replicates: got {replicates}, but there is no interval: {self.no_interval}")

    @property
    def _weighs_items(self) -> bool:
        """True if the sums of replicates are stored; subclasses may have replicates of another kind."""
        return bool(self.replicates) and type(self).no_interval is Metric.no_interval

    def add_sums(self, width: int) -> None:
        """Declare the states of rows (K,), K = `width`."""
        self.add_state("sums", torch.zeros(width, dtype=torch.float64), "sum")
        self.add_weighted(width)

    def add_weighted(self, width: int) -> None:
        """Declare the states of the replicates alone."""
        if self._weighs_items:
            shape = 2, len(GRIDS), self.replicates, width
            self.add_state("weighted", torch.zeros(shape, dtype=torch.float64), "sum")
            self.add_state("sizes", torch.zeros(self.replicates, dtype=torch.float64), "sum")
            self.add_state("units", empty_store(width), merge_stores)
            self.add_rows("entries")
            self.add_state("items", torch.zeros((), dtype=torch.int64), "sum")
            self.add_state("identified", torch.zeros(len(KINDS), dtype=torch.int64), "sum")

    def add_items(self, rows: Tensor, ids: Any = None, groups: Any = None, target: Tensor | None = None) -> None:
        # rows: (B, K) float64  target: (B,) integer
        """Add a row for each item to the sums. `target` makes items comparable only with those of the same target."""
        names = identity(len(rows), rows.device, ids, groups)
        self.sums = self.sums + rows.sum(0)
        self.weigh(rows, **names, target=target)

    def weigh(
        self, rows: Tensor, ids: Tensor | None = None, groups: Tensor | None = None, target: Tensor | None = None
    ) -> None:
        # rows: (B, K) float64  ids, groups, target: (B,) int64
        """Add the weighted rows of items to the sums of each replicate, and the rows to those of their units."""
        if not self._weighs_items:
            return
        assert self.seed is not None  # a metric with replicates has a seed
        kind = kind_of_units(ids is not None, groups is not None)
        if len(rows):
            check_same_kind(kind, self._kind)
            self._kind = kind
        item = self._numbers(len(rows), rows.device) if ids is None else ids
        unit = item if groups is None else groups
        split, sizes = split_rows(rows), self.sizes.clone()
        added = weighted_sums(rows, unit, self.replicates, self.seed, random_halves=True, split=split, sizes=sizes)
        names = [item, *(column for column in (groups, target) if column is not None)]
        if not is_full(self.units):
            entries = entries_of(split, unit)
            self.entries = torch.cat([self.entries, entries]) if len(self.entries) else entries
            if len(self.entries) > MAX_ENTRIES:
                self.units, self.entries = add_entries(self.units, self.entries), self.entries[:0]
        self.weighted, self.sizes = self.weighted + added[..., 0, :], sizes
        self.items = self.items + fingerprint(*names)
        self.identified = self.identified + len(rows) * _kinds(rows, kind)

    def _numbers(self, count: int, device: torch.device) -> Tensor:
        """Assign numbers to items in the order of updates, separately on each rank; a restored metric continues."""
        first = self.identified.sum() if self._first_item is None else self._first_item + self.identified.sum()
        return torch.arange(count, device=device) + first.to(device) + (_rank() << 40)

    @abstractmethod
    def read_sums(self, sums: Tensor) -> Any:
        # sums: (..., K)  ->  (...), or name: (...)
        """Return the value, or values, of sums of rows."""

    def item_bounds(self) -> Bounds | None:
        """Return the rows of the worst and the best possible item; None if these are unknown."""
        return None

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled | Joined:
        return self._resampled_state(replicates, seed)

    def _resampled_state(self, replicates: int | None, seed: int | None) -> Resampled:
        options = {"replicates": (replicates, self.replicates), "seed": (seed, self.seed)}
        kind = type(self).__name__
        if type(self).no_interval is not Metric.no_interval:
            raise NotImplementedError(f"{kind}: {self.no_interval}")
        if not self.replicates:
            default = check_draws(replicates, seed)[0]
            raise ValueError(f"replicates: {kind} keeps sums; write {kind}(..., replicates={default}) and update again")
        for name, (requested, value) in options.items():
            if requested not in (None, value):
                raise ValueError(f"{name}: got {requested}, but this {kind} was made with {name}={value}; leave it out")
        if self.identified.count_nonzero() > 1:
            raise ValueError(
                f"ids, groups: got items of {kind} that were identified in different ways; give every update the same"
            )
        weighted, half = map(joined, self.weighted)
        store = add_entries(self.units, self.entries) if len(self.entries) else self.units
        assert self.seed is not None
        return Resampled(
            observed=self.all_sums(),
            weighted=weighted,
            half=half,
            read=self.read_sums,
            items=self.items,
            units=units_of_store(store),
            num_items=int(self.identified.sum()),
            sizes=self.sizes,
            seed=self.seed,
            bounds=self.item_bounds(),
            range=self.value_range(),
        )

    def all_sums(self) -> Tensor:
        # ->  (K,)
        """Return the sums of the data."""
        return self.sums

    def _check_mergeable(self, states: list[dict[str, Tensor]]) -> None:
        super()._check_mergeable(states)
        if not self._weighs_items:
            return
        if sum(bool(items[NUMBERED]) for items in (self.identified, *(state["identified"] for state in states))) > 1:
            raise ValueError(
                "incoming_state: both metrics numbered their own items, so that items of both would share weights; "
                "give ids= to every update"
            )

    def _number_after(self, state: dict[str, Any]) -> None:
        if self._weighs_items:
            self._first_item = state["identified"].sum()
            self._kind = state["_kind"]

    def reset(self) -> None:
        """Reset all states and free the memory of stored rows."""
        super().reset()
        self._first_item = None


@cached_per_device
def _kinds(device: torch.device, kind: int) -> Tensor:
    return torch.eye(len(KINDS), dtype=torch.int64, device=device)[kind]


def _rank() -> int:
    return (
        torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else 0
    )
