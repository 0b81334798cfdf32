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
from ..resampling.units import MAX_ENTRIES, MAX_UNITS, ROW, add_up, entries_of, read_entries, renumbered
from ..resampling.weights import (
    GRIDS,
    KINDS,
    NUMBERED,
    WITH_GROUPS,
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
from .state_metric import MERGED

NAMES = "ids", "groups"  # states of the names of items
COUNTS = slice(1, 1 + len(KINDS))  # of the columns of `folded`


class SumMetric(Metric[Answer]):
    """Metric of sums over items, which also keeps the sums of each item, or group of items, for `interval`, `compare`.

    Of more than 1,000 items, or groups, it keeps 1,000 sums of several. Sums of integers are exact, and so the same
    in any order and split of the items; others differ by rounding errors of float64. `ids` and `groups`: see
    `Uncertain`.

    Args:
        replicates: Number of weighted sums that an update adds for `interval`, each with its own weight of an item. By
            default items, or sums of several, are kept and weighted when `interval` is called; 0 keeps nothing.
        seed: Seed of the weights.
    """

    sums: Tensor
    entries: Tensor  # (n, ...), rows of items that were not yet added to `units`
    ids: Tensor  # (n,), or (0,) for none, as `groups`
    groups: Tensor
    units: Tensor  # entries of `resampling.units`
    folded: Tensor  # (f, 6) of the items in `units`: fingerprint, numbers of items by how they were identified, merges
    weighted: Tensor  # (2, 3, R, K)
    sizes: Tensor  # (R,), weighted numbers of items
    has_target = False  # whether rows end with the bits of an integer: items are compared with those of the same one

    def __init__(self, *, replicates: int | None = None, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.replicates = None if replicates is None else checks.check_int("replicates", replicates, 0)
        self.seed: int | None = checks.check_int("seed", seed, 0)
        self._first_item: tuple[Tensor | int, int] = 0, 0  # numbers of items before a batch of `forward`
        if self.replicates and type(self).no_interval is not Metric.no_interval:
            raise ValueError(f"replicates: got {replicates}, but there is no interval: {self.no_interval}")

    @property
    def _keeps_items(self) -> bool:
        return self.replicates != 0 and type(self).no_interval is Metric.no_interval

    def add_sums(self, width: int) -> None:
        """Declare the states of rows (K,), K = `width`."""
        self.add_state("sums", torch.zeros(width, dtype=torch.float64), "sum")
        self.add_kept(width)

    def add_kept(self, width: int) -> None:
        """Declare the states of items, and those of replicates."""
        for name in ("entries", *NAMES, "units", "folded") if self._keeps_items else ():
            self.add_rows(name)
        if self._keeps_items and self.replicates:
            shape = 2, len(GRIDS), self.replicates, width
            self.add_state("weighted", torch.zeros(shape, dtype=torch.float64), "sum")
            self.add_state("sizes", torch.zeros(self.replicates, dtype=torch.float64), "sum")

    def rows_of_items(self) -> list[tuple[str, ...]]:
        return [("entries", *NAMES)] if self._keeps_items else []

    def add_items(self, rows: Tensor, ids: Any = None, groups: Any = None) -> None:
        # rows: (B, K) float64, or (B, K + 1) with targets
        """Add a row for each item to the sums."""
        names = identity(len(rows), rows.device, ids, groups)
        self.sums = self.sums + self.item_rows(rows).sum(0)
        self.keep(rows, **names)

    def keep(self, entries: Tensor, ids: Tensor | None = None, groups: Tensor | None = None) -> None:
        # entries: (B, ...)  ids, groups: (B,) int64
        """Keep what `item_rows` makes rows of, and add the weighted rows to the sums of each replicate."""
        if not self._keeps_items:
            return
        kind = kind_of_units(ids is not None, groups is not None)
        if len(entries):
            check_same_kind(kind, self._kind)
            self._kind = kind
        if self.replicates:
            assert self.seed is not None  # a metric with replicates has a seed
            unit = next((names for names in (groups, ids) if names is not None), None)
            unit = self._numbers(len(entries), entries.device, len(self.entries)) if unit is None else unit
            sizes = self.sizes.clone()
            rows = self.item_rows(entries)
            added = weighted_sums(rows, unit, self.replicates, self.seed, random_halves=True, sizes=sizes)
            self.weighted, self.sizes = self.weighted + added[..., 0, :], sizes
        for name, column in zip(("entries", *NAMES), (entries, ids, groups), strict=True):
            if column is not None:
                self.append_rows(name, column, room=2 * len(column))
        if len(self.entries) > MAX_ENTRIES:
            self._fold()

    def item_rows(self, entries: Tensor) -> Tensor:
        # entries: (n, ...)  ->  (n, K) float64
        """Return the summands of items."""
        return entries[:, :-1] if self.has_target else entries

    def _numbers(self, count: int, device: torch.device, kept: int = 0) -> Tensor:
        """Assign numbers to items in the order of updates, separately on each rank; a restored metric continues."""
        first, start = self._first_item
        return torch.arange(count, device=device) + (start + kept + (_rank() << 40)) + first + self._num_folded()

    def _num_folded(self) -> Tensor | int:
        return self.folded[:, COUNTS].sum() if len(self.folded) else 0

    @torch.no_grad()
    def _fold(self) -> None:
        """Add the kept rows to those of their units."""
        count = len(self.entries)
        entries = [self.units] if len(self.units) else []
        folded = [self.folded] if len(self.folded) else []
        if count:
            has_ids, has_groups = len(self.ids) > 0, len(self.groups) > 0
            item = self.ids if has_ids else self._numbers(count, self.entries.device)
            names = [item, *[self.groups] * has_groups]
            names += [self.entries[:, -1].view(torch.int64)] if self.has_target else []
            entries.append(entries_of(split_rows(self.item_rows(self.entries)), self.groups if has_groups else item))
            counts = count * _kinds(item, kind_of_units(has_ids, has_groups))
            folded.append(torch.cat([fingerprint(*names)[None], counts])[None])
        if count or len(self.units) > MAX_UNITS:
            self.units = add_up(torch.cat(entries))
        if count or len(self.folded) > 1:
            self.folded = torch.cat(folded).sum(0, keepdim=True)
        for name in ("entries", *NAMES) if count else ():
            setattr(self, name, self._defaults[name].to(item.device))
            self._stores.pop(name, None)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        if self._keeps_items:
            self._fold()  # items without ids are numbered where they were added
        super()._sync_dist(*args, **kwargs)

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
        kind = type(self).__name__
        if type(self).no_interval is not Metric.no_interval:
            raise NotImplementedError(f"{kind}: {self.no_interval}")
        if not self._keeps_items:
            raise ValueError(f"replicates: got 0 for {kind}, which keeps nothing of items; leave it out, update again")
        options = {"replicates": (replicates, self.replicates), "seed": (seed, self.seed)}
        for name, (requested, value) in options.items() if self.replicates else ():
            if requested not in (None, value):
                raise ValueError(f"{name}: got {requested}, but this {kind} was made with {name}={value}; leave it out")
        self._fold()
        items, *kinds, merges = self.folded.sum(0).tolist() if len(self.folded) else [0] * (2 + len(KINDS))
        if sum(number > 0 for number in kinds) > 1:
            raise ValueError(
                f"ids, groups: got items of {kind} that were identified in different ways; give every update the same"
            )
        replicates, seed = check_draws(self.replicates or replicates, self.seed if seed is None else seed)
        sums = self.all_sums()
        units, split, is_grouped = read_entries(
            self.units if len(self.units) else self.folded.new_zeros(0, ROW + len(GRIDS) * len(sums)).long()
        )
        if self.replicates:
            weighted, sizes = self.weighted, self.sizes
        else:
            weighted = weighted_sums(units.rows, units.ids, replicates, seed, random_halves=True, split=split)
            weighted, sizes = weighted[..., 0, :], units.sizes * len(units.sizes) ** 0.5  # of groups by chance
            if not is_grouped:
                sizes = joined(weighted_sums(units.sizes[:, None], units.ids, replicates, seed)[0])[:, 0, 0]
        is_unnamed, number = kinds[NUMBERED] + kinds[WITH_GROUPS] > 0, sum(kinds)
        return Resampled(
            observed=sums,
            weighted=joined(weighted[0]),
            half=joined(weighted[1]),
            read=self.read_sums,
            items=torch.tensor(items, device=weighted.device),
            units=None if is_grouped else units,
            num_items=number,
            sizes=sizes,
            seed=seed,
            bounds=self.item_bounds(),
            range=self.value_range(),
            unit_counts=(number, float(number)) if is_grouped and kinds[NUMBERED] else None,
            pairing=None if not is_unnamed else "merged" if merges else "position",
        )

    def all_sums(self) -> Tensor:
        # ->  (K,)
        """Return the sums of the data."""
        return self.sums

    def _check_mergeable(self, states: list[dict[str, Tensor]]) -> None:
        super()._check_mergeable(states)
        if self.replicates and self._keeps_items and sum(map(_has_numbered, (self.metric_state, *states))) > 1:
            raise ValueError(
                "incoming_state: both metrics numbered their own items, so that items of both would share weights; "
                "give ids= to every update"
            )

    def _add_state(self, state: dict[str, Tensor]) -> None:
        if not self._keeps_items:
            return super()._add_state(state)
        is_merged, is_named = MERGED in state, [[len(x[name]) > 0 for name in NAMES] for x in (state, vars(self))]
        if len(state["units"]) or (len(state["entries"]) and len(self.entries) and is_named[0] != is_named[1]):
            self._fold()
        if is_merged and len(state["units"]):
            shift = self._numbers(1, self.device) - (_rank() << 40)
            is_unnamed = state["folded"].to(self.device)[:, COUNTS].sum(0)[[NUMBERED]] > 0
            state = {**state, "units": renumbered(state["units"].to(self.device), shift * is_unnamed)}
        super()._add_state(state)
        if is_merged:
            row = torch.zeros(1, 2 + len(KINDS), dtype=torch.int64, device=self.device)
            row[:, -1] = 1
            self.folded = torch.cat([self.folded, row]) if len(self.folded) else row
        if len(self.units) > MAX_UNITS:
            self._fold()

    def _number_after(self, state: dict[str, Any]) -> None:
        if self._keeps_items:
            folded = state["folded"]
            self._first_item = folded[:, COUNTS].sum() if len(folded) else 0, len(state["entries"])
            self._kind = state["_kind"]

    def reset(self) -> None:
        """Reset all states and free the memory of stored rows."""
        super().reset()
        self._first_item = 0, 0


def _has_numbered(state: dict[str, Tensor]) -> bool:
    """Return whether a state has items without ids and groups."""
    is_kept = len(state["entries"]) > 0 and not len(state["ids"]) and not len(state["groups"])
    return is_kept or (len(state["folded"]) > 0 and bool(state["folded"][:, COUNTS][:, NUMBERED].any()))


@cached_per_device
def _kinds(device: torch.device, kind: int) -> Tensor:
    return torch.eye(len(KINDS), len(KINDS) + 1, dtype=torch.int64, device=device)[kind]


def _rank() -> int:
    return (
        torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else 0
    )
