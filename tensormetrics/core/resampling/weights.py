"""The weight of every item in every replicate: the Bayesian bootstrap (Rubin 1981, doi:10.1214/aos/1176345338).

A weight is Exp(1) and a function of (seed, item, replicate), drawn by Philox: the same on every device, in any order
and split of the items, on any number of ranks. It is one of 2^16 equally likely numbers, a multiple of FINENESS, from a
table that the CPU writes, so that weighted sums are exact and have no order.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from ..arguments import checks
from ..native import native
from ..native.device_cache import cached_per_device
from ..native.interruptible import interruptible
from ..numbers.exact_sums import index_add, parts, total
from ..numbers.philox import MASK_32, philox4x32, philox_key

REPLICATES = 1000
FINENESS = 2.0**-10
# With weights below 16, sums of up to 2^24 rows that add up to 2^43 or less are exact, except for bits below 2^-41.
GRIDS = (1.0, 2.0**-20, 2.0**-40)
VALUES = 2**16
NUMBERED, WITH_IDS, WITH_GROUPS, WITH_BOTH = range(4)  # how items are identified
KINDS = "neither", "ids", "groups", "ids and groups"
ODD_FACTORS = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9  # of the second and third number of an item's identity
LANES = defaultdict(lambda: 2**22, cpu=2**15)  # weights at a time, eighths of them


class ResamplingUnits(TypedDict, total=False):
    """Identity of the items of an `update`, (B,) each: integers, or names in a list.

    ids: items of one id have equal weights in any order and batch. Without ids, items are numbered in the order of
    updates: weights then depend on that order but not on the batches, and each rank draws its own.
    groups: documents, patients, speakers; items of one group share a weight, which widens intervals as it should.
    """

    ids: Tensor | Sequence[Hashable] | None
    groups: Tensor | Sequence[Hashable] | None


def units(name: str, values: Any, count: int, device: torch.device) -> Tensor:
    # ->  (count,) int64
    """Convert `ids` or `groups` to integers; the integer of a name is its digest."""
    if isinstance(values, str) or not isinstance(values, Tensor | Sequence | np.ndarray):
        raise TypeError(f"{name}: got a {type(values).__name__}, wanted a tensor of integers or a list of names")
    if not isinstance(values, Tensor):
        names = len(values) > 0 and isinstance(values[0], str)
        values = torch.from_numpy(np.asarray([_named(name, value) for value in values] if names else values))
    if not values.numel():
        values = values.long()
    checks.integral(name, values)
    checks.shape(name, values, count)
    return values.to(device, torch.int64)


def identity(count: int, device: torch.device, ids: Any = None, groups: Any = None) -> dict[str, Tensor]:
    """Return `ids` and `groups` as integers, without those that are None; see `ResamplingUnits`."""
    columns = {"ids": ids, "groups": groups}
    return {name: units(name, column, count, device) for name, column in columns.items() if column is not None}


def kind_of_units(has_ids: bool, has_groups: bool) -> int:
    """Return how items are identified: `NUMBERED`, `WITH_IDS`, `WITH_GROUPS` or `WITH_BOTH`."""
    return WITH_IDS * has_ids + WITH_GROUPS * has_groups


def kind_of_rows(count: int, ids: Tensor, groups: Tensor) -> int | None:
    # ids, groups: (count,), or (0,) for none
    """Return how `count` rows are identified, None without items; ValueError if only some have ids or groups."""
    num_ids, num_groups = ids.shape[0], groups.shape[0]
    for name, size in (("ids", num_ids), ("groups", num_groups)):
        if size not in (0, count):
            raise ValueError(f"{name}: got some for a part of the items; give every update the same, or call reset()")
    return kind_of_units(num_ids > 0, num_groups > 0) if count else None


def check_same_kind(kind: int | None, before: int | None) -> None:
    """Raise a ValueError for items that are identified in another way than those before; None is no item."""
    if None not in (kind, before) and kind != before:
        raise ValueError(
            f"ids, groups: got {KINDS[kind or 0]} after updates with {KINDS[before or 0]}; give every update the same, "
            "or call reset()"
        )


@cached_per_device
def _first_positions(device: torch.device) -> Tensor:
    return torch.arange(2**16, device=device)


def _positions(rows: Tensor) -> Tensor:
    # rows: (N, ...)  ->  (N,) int64
    count = len(rows)
    return _first_positions(rows)[:count] if count <= 2**16 else torch.arange(count, device=rows.device)


class ItemNames(NamedTuple):
    """Ids and groups of the items of a metric that stores a row of each."""

    ids: Tensor  # (N,) int64, ids or positions
    groups: Tensor | None = None  # (N,) int64

    @classmethod
    def of_rows(cls, rows: Tensor, ids: Tensor, groups: Tensor) -> "ItemNames":
        # rows: (N, ...)  ids, groups: (N,), or (0,) for none
        """Return the names of stored rows; ValueError if some have ids or groups and others have none."""
        kind_of_rows(len(rows), ids, groups)
        item_ids = ids if len(ids) else _positions(rows)
        return cls(item_ids, groups if len(groups) else None)

    @classmethod
    def of(cls, ids: Any, groups: Any, device: torch.device) -> "ItemNames":
        # ids, groups: (N,) integers or names
        """Return the names of items from `ids` and `groups`, integers or names; `groups` may be None."""
        item_ids = units("ids", ids, len(ids), device)
        return cls(item_ids, None if groups is None else units("groups", groups, len(ids), device))

    @property
    def units(self) -> Tensor:
        """(N,) int64, equal for items that share a weight."""
        return self.ids if self.groups is None else self.groups

    def columns(self, target: Tensor | None = None) -> tuple[Tensor, ...]:
        # target: (N,) integer
        """Return the columns for `fingerprint`; items with different `target` count as different."""
        return tuple(column.long() for column in (self.ids, self.groups, target) if column is not None)


def sums_by_item(rows: Tensor, names: ItemNames) -> tuple[Tensor, ItemNames]:
    # rows: (N, V)  ->  (I, V), and the I distinct items in the order of their ids
    """Return the sums over the rows of each item. ValueError for an item whose rows have two groups."""
    distinct, item = names.ids.unique(return_inverse=True)
    sums = index_add(rows.new_zeros(len(distinct), rows.shape[1]), 0, item, rows)
    if names.groups is None:
        return sums, ItemNames(distinct)
    groups = torch.full_like(distinct, torch.iinfo(torch.int64).max).scatter_reduce_(0, item, names.groups, "amin")
    if not torch.equal(groups[item], names.groups):
        raise ValueError("groups: got two for an item; wanted one for all scores of an id")
    return sums, ItemNames(distinct, groups)


def _named(name: str, value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {value!r:.60} among names, wanted a str")
    return digest(value)


def digest(name: str) -> int:
    """Return the 64-bit hash of a name as an integer."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def check_draws(replicates: int | None, seed: int | None) -> tuple[int, int]:
    """Check both options and replace None by the defaults, 1000 and 0."""
    replicates = REPLICATES if replicates is None else checks.check_int("replicates", replicates, 2)
    return replicates, 0 if seed is None else checks.check_int("seed", seed, 0)


def weighted_sums(
    rows: Tensor,  # (N, K) float64
    units: Tensor,  # (N,) int64
    replicates: int,
    seed: int,
    *,
    random_halves: bool = False,
    cells: Tensor | None = None,  # (N,) int64 in [0, C)
    width: int = 1,  # C
    name: str = "items",  # of the stream of draws
    start: int = 0,  # the first replicate, a multiple of 8
    split: Tensor | None = None,  # (N, 3 K), `split_rows(rows)` if that is known
    sizes: Tensor | None = None,  # (R,), to which the sums of the weights are added
) -> Tensor:  # (1 or 2, 3, R, C, K)
    """Sum the rows of each cell in each replicate, each row times its weight; returns the parts of sums (see `GRIDS`).

    With `random_halves` also sum a random half of the units, which a randomization test swaps.
    """
    K, units = rows.shape[1], units.contiguous()
    sums = rows.new_zeros(1 + random_halves, replicates, width, len(GRIDS) * K)
    split = split_rows(rows) if split is None else split
    used = [k for k, column in enumerate(split.unbind(1)) if rows.device.type != "cpu" or column.any()]
    columns = split if len(used) == split.shape[1] else split[:, used]  # zeros need no product
    index = torch.tensor(used, dtype=torch.int64, device=rows.device)
    key = torch.tensor(philox_key(seed, name, "weights", "exponential"), device=rows.device)
    for is_half, (out, table) in enumerate(zip(sums, _tables(rows), strict=False)):
        for chunk, items in _tiles(len(rows), replicates, rows.device):
            weights = rows.new_empty(chunk.stop - chunk.start, items.stop - items.start)
            draw = item_weights if rows.device.type == "cpu" else _item_weights
            draw(weights, units[items], table, key, (start + chunk.start) // 8)
            if sizes is not None and not is_half:
                sizes[chunk] += weights.sum(1)
            if cells is None:
                out[chunk, 0].index_add_(1, index, weights @ columns[items])
                continue
            for k in used:
                added = weights.new_zeros(len(weights), width)
                out[chunk, :, k] += added.index_add_(1, cells[items], weights * split[items, k])
    return sums.unflatten(-1, (len(GRIDS), K)).movedim(-2, 1)


def split_rows(rows: Tensor) -> Tensor:
    # rows: (N, K) float64  ->  (N, 3 K)
    """Return the parts of the rows, whose sums are exact."""
    return torch.cat(parts(rows, grids=GRIDS), 1)


def replicate_weights(units: Tensor, replicates: int, seed: int) -> Iterator[tuple[slice, Tensor]]:
    # units: (N,) int64  ->  (r, N) float64 for each slice of r replicates
    """Yield the weights of all items, for values that are no function of sums; see `weighted_sums`."""
    units = units.contiguous()
    key = torch.tensor(philox_key(seed, "items", "weights", "exponential"), device=units.device)
    table = _tables(units)[0]
    draw = item_weights if units.device.type == "cpu" else _item_weights
    step = 8 * max(LANES[units.device.type] // max(len(units), 1), 1)
    for start in range(0, replicates, step):
        weights = torch.empty(min(step, replicates - start), len(units), dtype=torch.float64, device=units.device)
        draw(weights, units, table, key, start // 8)
        yield slice(start, start + len(weights)), weights


def joined(sums: Tensor) -> Tensor:
    # sums: (3, ...)  ->  (...)
    return total(list(sums))


def _tiles(items: int, replicates: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    lanes = LANES[device.type]
    for first in range(0, items, lanes):
        last = min(first + lanes, items)
        step = 8 * max(lanes // (last - first), 1)
        for start in range(0, replicates, step):
            yield slice(start, min(start + step, replicates)), slice(first, last)


def _item_weights(out: Tensor, units: Tensor, table: Tensor, key: Tensor, start: int) -> None:
    # out: (R, N) float64  units: (N,) int64  table: (VALUES,) float64  key: (2,)
    """Write the weight of each unit in replicates from 8 * start on: the table entry that 16 random bits select."""
    block = torch.arange(start, start + (len(out) + 7) // 8, device=out.device)[:, None]
    counter = units & MASK_32, units >> 32 & MASK_32, block, torch.zeros_like(block)
    bits = torch.stack(philox4x32(counter, key.unbind()), 1)
    index = torch.stack([bits & VALUES - 1, bits >> 16], 2).flatten(0, 2)
    out.copy_(table[index[: len(out)]])


item_weights = interruptible(
    native.define(
        "item_weights(Tensor(a!) out, Tensor units, Tensor table, Tensor key, int start) -> ()",
        lambda *arguments: None,
        native.Operator("dirichlet", "interval", 20),
    ),
    lambda out, *_: 2 * out.numel(),
)
native.reference("item_weights")(_item_weights)


@cached_per_device
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    # ->  (VALUES,) float64 each: weights, and which half
    index = torch.arange(VALUES, device="cpu")
    weights = (-((index + 0.5) / VALUES).double().log() / FINENESS).round() * FINENESS
    return weights.to(device), (index & 1).double().to(device)


def fingerprint(*columns: Tensor) -> Tensor:
    # columns: (N,) int64 each  ->  () int64
    """Return a hash of a set of items that is independent of their order; an item has an integer in each column."""
    mixed = columns[0]
    for column, factor in zip(columns[1:], ODD_FACTORS, strict=False):
        mixed = mixed + column * factor  # modulo 2^64
    bits = torch.stack(philox4x32((mixed & MASK_32, mixed >> 32 & MASK_32, 0, 1), (0, 0)))
    return (bits[0] + (bits[1] << 32)).sum()
