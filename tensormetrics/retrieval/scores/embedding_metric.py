"""Base class of metrics that keep embeddings as states, in one or several processes."""

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Answer, Metric, Options
from ...core.metric.distributed import all_gather_cat, all_gather_status, common_kind, gather, travel_device
from ...core.resampling.weights import ItemNames, ResamplingUnits, check_same_kind, kind_of_rows, kind_of_units, units
from ..inputs import (
    RetrievalInputs,
    ShardLayout,
    Status,
    as_labeled_rows,
    both_or_neither,
    budget,
    check_finite,
    check_squares,
    comparable_labels,
)
from ..ranking.sharded import gather_ordered_rows

Role = Literal["both", "query", "reference"]
ROLES: tuple[Role, ...] = get_args(Role)
WARN_BYTES = 10**9  # of rows gathered on each process


_COLUMNS = "embeddings", "labels", "ids", "cameras", "groups"
_STATES: dict[str, tuple[str, ...]] = {
    role: tuple(name if role == "both" else f"{role}_{name}" for name in _COLUMNS) for role in ROLES
}


class QueryIds(NamedTuple):
    """Identities of the queries of one `compute`, in its order."""

    names: ItemNames
    rows: Tensor | None  # (Q,) int64, row of the updates for each query; None: no ids, and all rows are in order
    num_rows: int  # of the updates
    reference_names: tuple[Tensor, ...] = ()  # ids and groups of all references, (N,) int64 or (0,) for none

    def names_of_items(self, shared: int, references: Tensor) -> ItemNames:
        # references: (N, ...), the first `shared` of them queries  ->  of V items
        """Return the names of the items of all pairs: the queries, then the references that are no queries.

        Equal ids of a query and a reference are unrelated; equal groups are the same group.
        """
        others = ItemNames.of_rows(references, *self.reference_names)
        ids = torch.cat([self.names.ids, ~others.ids[shared:]])
        groups = [self.names.units if self.names.groups is None else self.names.groups]
        groups.append(~others.ids[shared:] if others.groups is None else others.groups[shared:])
        is_grouped = self.names.groups is not None or others.groups is not None
        return ItemNames(ids, torch.cat(groups) if is_grouped else None)

    def grouped(self, groups: Any) -> "QueryIds":
        # groups: (num_rows,) integers or names, or a mapping from ids
        """Return the queries with other groups, or as they are for None."""
        return self if groups is None else self._replace(names=self.names._replace(groups=self.groups_of(groups)))

    def groups_of(self, groups: Any) -> Tensor:
        # groups: (num_rows,) integers or names, or a mapping from ids  ->  (Q,) int64
        """Return the group of each query."""
        if isinstance(groups, Mapping):
            return self._mapped(groups)
        try:
            codes = units("groups", groups, self.num_rows, self.names.ids.device)
        except ValueError as error:
            hint = "" if self.rows is None else "; of items with ids, pass a mapping from id to group"
            raise ValueError(f"{error}{hint}") from error
        return codes if self.rows is None else codes[self.rows]

    def _mapped(self, groups: Mapping[Any, Any]) -> Tensor:
        if self.rows is None:
            raise ValueError("groups: got a mapping, but the items have no ids; give update some, or pass a sequence")
        ids, device = self.names.ids, self.names.ids.device
        keys = units("groups", list(groups), len(groups), device)
        values = units("groups", list(groups.values()), len(groups), device)
        keys, order = keys.sort()
        index = torch.searchsorted(keys, ids).clamp(max=max(len(keys) - 1, 0))
        has_group = keys[index] == ids if len(keys) else torch.zeros_like(ids, dtype=torch.bool)
        if not bool(has_group.all()):
            raise ValueError(
                f"groups: got none for {int((~has_group).sum())} of {len(ids)} ids, wanted one for each id"
            )
        return values[order[index]]


class _RoleItems(NamedTuple):
    """Items of a role, without repeated ids and in their order."""

    labels: Tensor  # (N,) or (N, L)
    cameras: Tensor  # (N,), or (0,) for none
    ids: Tensor  # (N,), or (0,)
    groups: Tensor  # (N,), or (0,)
    rows: Tensor  # (N,) int64, row of the updates for each item
    embeddings: Tensor  # (n, D), only those of this rank if rows are sharded
    positions: Tensor  # (n,) int64, index of each embedding among the items


class StoreOptions(Options, total=False):
    """Keyword arguments of every metric that keeps embeddings."""

    store_dtype: torch.dtype | None


class EmbeddingOptions(StoreOptions, total=False):
    device: torch.device | str | None


class EmbeddingMetric(Metric[Answer]):
    """Base class of metrics that keep the embeddings and labels of every update, in order.

    `compute` reads them by `stored_inputs`. Subclasses have the same states, so that in a MetricCollection they form
    one compute group and keep one copy. `update` never synchronizes with the device; `compute` and `forward` search,
    and do.

    Args:
        device: Device of the rows, by default that of the first ones.
        store_dtype: Dtype in which embeddings are kept, such as torch.float16; by default their dtype.

    Shape:
        - embeddings, reference: ``(N, D)``
        - labels, reference_labels: ``(N,)``, or ``(N, L)`` with a function of labels
    """

    model_options = (
        *Metric.model_options,
        *("distance", "exact", "knn_func", "kmeans_func", "n_clusters", "store_dtype"),
        *("audit", "audit_seed", "keep", "progress"),
    )

    _rows_hold = "NaN or infinity"  # what embeddings that are not finite say

    def __init__(
        self,
        label_columns: bool = False,
        device: torch.device | str | None = None,
        *,
        store_dtype: torch.dtype | None = None,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        if store_dtype is not None and not store_dtype.is_floating_point:
            raise ValueError(f"store_dtype: got {store_dtype}, wanted a floating dtype such as torch.float16")
        self.label_columns, self.store_dtype = label_columns, store_dtype
        self.placed = None if device is None else torch.device(device)
        if self.placed is not None:
            self.to(self.placed)
        for role in ROLES:
            for name in _STATES[role]:
                self.add_rows(name)
        self._keeps_rows_local = False
        self._lengths: dict[str, list[int]] | None = None  # rows of every rank, while embeddings stay with them

    def rows_of_items(self) -> list[tuple[str, ...]]:
        return [_STATES[role] for role in ROLES]

    def update(
        self,
        embeddings: Tensor | np.ndarray,
        labels: Tensor | np.ndarray,
        reference: Tensor | np.ndarray | None = None,
        reference_labels: Tensor | np.ndarray | None = None,
        *,
        role: Role = "both",
        cameras: Tensor | np.ndarray | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Append a batch of queries, of references, or of items that are both.

        Shapes: embeddings, reference: (N, D); labels, reference_labels: (N,) or (N, 1), or (N, L) with a
        `label_comparison_fn`, a function as `gains` or `label_levels`; cameras, ids, groups: (N,) integer or names.
        NumPy arrays are converted.

        With a `reference` set the embeddings are queries that are scored against it, like separate updates with
        `role="query"` and `"reference"`: `metric(query, labels, reference, reference_labels)` is the score of the
        queries against the references. Pass references once: every update adds to them.

        With `ids`, positions in the dataset, `compute` uses every item once and in their order: samplers repeat items
        to fill the last batch, and a copy would be a perfect neighbor. With `cameras` (or other sources that make the
        task too easy), relevant references of the query's camera are left out. `groups` of queries, such as patients,
        classes or pictures of one scene, are reweighted together by `interval`. NaN and infinity are a ValueError:
        here on a CPU, in `compute` on other devices (no synchronization).
        """
        checks.check_choice("role", role, ROLES)
        both_or_neither(reference=reference, reference_labels=reference_labels)
        if reference is not None and reference_labels is not None:
            if role != "both" or cameras is not None or any(value is not None for value in items.values()):
                raise ValueError(
                    "reference: got some together with role, ids, cameras or groups; write an update for each role"
                )
            self._append(embeddings, labels, "query")
            self._append(reference, reference_labels, "reference", ("reference", "reference_labels"))
        else:
            self._append(embeddings, labels, role, cameras=cameras, **items)

    def _append(
        self,
        embeddings: Tensor | np.ndarray,
        labels: Tensor | np.ndarray,
        role: str,
        names: tuple[str, str] = ("embeddings", "labels"),
        *,
        cameras: Tensor | np.ndarray | None = None,
        ids: Any = None,
        groups: Any = None,
    ) -> None:
        home = self.placed or self._device_of_rows()
        given = embeddings.device if isinstance(embeddings, Tensor) else None
        device = home or given or self.device
        is_on_gpu = given is not None and given.type != "cpu"
        first = device if is_on_gpu else given or torch.device("cpu")  # rows are checked on a CPU, before they move
        given_labels = labels
        embeddings, labels = as_labeled_rows(embeddings, labels, first, names, self.label_columns)
        if self.store_dtype is not None:
            embeddings = embeddings.to(self.store_dtype)
        if first.type == "cpu":
            check_finite(**dict(zip(names, (embeddings, labels), strict=True)))
        elif isinstance(given_labels, Tensor) and given_labels.dtype == torch.uint64:
            # Labels that int64 cannot hold are below 0 now.
            self._rows_hold = "NaN or infinity, or have labels above 2**63 - 1"
            is_wrapped = (labels.view(len(labels), -1) < 0).any(1)
            embeddings = embeddings.masked_fill(is_wrapped[:, None], torch.nan)
        embeddings, labels = embeddings.to(device), labels.to(device)
        count, width = embeddings.shape
        options = {"ids": ids, "cameras": cameras, "groups": groups}
        columns = [None if v is None else units(name, v, count, device) for name, v in options.items()]
        held_rows, held_labels, held_ids, held_cameras, held_groups = self._rows(role)
        before = kind_of_rows(held_labels.shape[0], held_ids, held_groups)
        if count:
            check_same_kind(kind_of_units(ids is not None, groups is not None), before)
            if held_rows.shape[0] and (cameras is None) != (not held_cameras.shape[0]):
                got = "none" if cameras is None else "some"
                raise ValueError(f"cameras: got {got} after updates that differ in this; call reset()")
        for other, (name, *_) in _STATES.items():
            shape = getattr(self, name).shape
            if len(shape) == 2 and shape[1] != width:
                raise ValueError(
                    f"{names[0]}: got shape {tuple(embeddings.shape)} after {tuple(shape)} with role={other!r}, "
                    "wanted the same number of columns; call reset() before changing it"
                )
        for state, rows in zip(_STATES[role], (embeddings, labels, *columns), strict=True):
            if rows is not None:
                self.append_rows(state, rows)

    def update_options(self) -> dict[str, Any]:
        options = {"label_columns": self.label_columns, "device": self.placed, "store_dtype": self.store_dtype}
        return {"update": type(self).update, **options}

    def rows_may_stay(self) -> bool:
        """Return whether `compute` needs only the `stored_inputs` rows of this rank; else all rows are gathered."""
        return False

    def stored_inputs(
        self, leaves_checks: Callable[[RetrievalInputs], bool] = lambda inputs: False
    ) -> tuple[RetrievalInputs, QueryIds]:
        """Return all rows kept, and the identities of the queries.

        `leaves_checks`: whether kernels will find values that are not finite; then the inputs have a status.

        ValueError if rows are not finite, or queries or references are missing.
        """
        both, queries, references = map(self._role_items, ROLES)
        kinds = [kind_of_rows(len(items.labels), items.ids, items.groups) for items in (both, queries)]
        check_same_kind(kinds[1], kinds[0])
        rows_of_both = len(self._rows("both")[1])
        query_items, reference_items = (_join_roles(both, items, rows_of_both) for items in (queries, references))
        query_labels, query_cameras, ids, groups, rows_of_queries, query, query_positions = query_items
        reference_labels, reference_cameras, *reference_names, _, reference, reference_positions = reference_items
        names = ItemNames.of_rows(query_labels, ids, groups)
        num_rows = rows_of_both + len(self._rows("query")[1])
        rows = rows_of_queries if len(ids) else None
        identities = QueryIds(names, rows, num_rows, (reference_names[0], reference_names[1]))
        if bool(len(query_labels)) != bool(len(reference_labels)):
            missing = "reference" if len(query_labels) else "query"
            raise ValueError(
                f"update: got {len(query_labels)} queries and {len(reference_labels)} references, wanted some of each; "
                f"feed rows with role={missing!r} or role='both'"
            )
        layout = None
        if self._lengths:
            group, tables = self.process_group, [(query, query_positions, len(query_labels))]
            if any(map(any, (self._lengths["query"], self._lengths["reference"]))):
                tables.append((reference, reference_positions, len(reference_labels)))
            allowed = budget(getattr(self, "memory_budget", None), query.device)
            with self._of_earlier_update():
                sharded, memory = gather_ordered_rows(tables, allowed, group)
                (query, query_sizes), (reference, reference_sizes) = sharded[0], sharded[-1]
                layout = ShardLayout(query_sizes, reference_sizes, group, memory, {})
                check_squares(**{f"embeddings of rank {dist.get_rank(group)}": query})
                if reference is not query:
                    check_squares(**{f"embeddings of rank {dist.get_rank(group)}": reference})
        if query.ndim == 1:  # no rank had a row
            query = reference = query[:, None]
        query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
        cameras = query_cameras, reference_cameras
        if not any(map(len, cameras)):
            cameras = None
        elif [*map(len, cameras)] != [len(query_labels), len(reference_labels)]:
            raise ValueError("cameras: got some for a part of the rows, wanted them in every update or in none")
        shared = len(both.labels)
        inputs = RetrievalInputs(query, query_labels, reference, reference_labels, shared, cameras, layout=layout)
        tables = [] if self._lengths else [query, references.embeddings]
        check = functools.partial(self._check_values, tables, [query_labels, references.labels])
        if leaves_checks(inputs):
            status = Status(torch.zeros(2, dtype=torch.int32, device=query.device), check)
            return inputs._replace(status=status), identities
        check()
        return inputs, identities

    @contextmanager
    def _of_earlier_update(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            problem, _, wanted = f"{error}".replace("NaN or infinity", self._rows_hold, 1).partition("; wanted ")
            raise self.invalid_error(problem, f"give {wanted}") from error

    def _check_values(self, rows: list[Tensor], labels: list[Tensor]) -> None:
        """Raise a ValueError for values that are not finite, or whose squares leave the range of float64."""
        with self._of_earlier_update():
            for table in filter(len, rows):
                check_finite(embeddings=table)
                check_squares(embeddings=table)
            for column in filter(len, labels):
                check_finite(labels=column)

    def _rows(self, role: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # ->  (N, D), (N,) or (N, L), three times (N,); each (0,) before the first row, the last three also if absent
        embeddings, labels, ids, cameras, groups = _STATES[role]
        of_items = getattr(self, ids), getattr(self, cameras), getattr(self, groups)
        return getattr(self, embeddings), getattr(self, labels), *of_items

    def _kind_of_rows(self, role: str, state: dict[str, Tensor]) -> int | None:
        _, labels, ids, _, groups = (state[name] for name in _STATES[role])
        return kind_of_rows(len(labels), ids, groups)

    def _add_state(self, state: dict[str, Tensor]) -> None:
        for role in ROLES:
            check_same_kind(self._kind_of_rows(role, state), self._kind_of_rows(role, self.metric_state))
        super()._add_state(state)

    def _role_items(self, role: str) -> _RoleItems:
        embeddings, labels, ids, cameras, groups = self._rows(role)
        self._kind_of_rows(role, self.metric_state)  # checks the rows of all ranks
        if len(cameras) not in (0, len(labels)):
            raise ValueError("cameras: got some for a part of the rows, wanted them in every update or in none")
        before = sum(self._lengths[role][: dist.get_rank(self.process_group)]) if self._lengths else 0
        if not len(ids):
            stop = before + len(embeddings) if self._lengths else before  # only sharded rows have a position
            positions = torch.arange(before, stop, device=labels.device)
            return _RoleItems(labels, cameras, ids, groups, positions[:0], embeddings, positions)
        ids, order = ids.sort(stable=True)
        new = torch.cat([torch.ones_like(ids[:1], dtype=torch.bool), ids[1:] != ids[:-1]])
        first = order[new]
        positions = ((first >= before) & (first < before + len(embeddings))).nonzero()[:, 0]
        cameras, groups = (column[first] if len(column) else column for column in (cameras, groups))
        return _RoleItems(
            labels[first], cameras, ids[new], groups, first, embeddings[first[positions] - before], positions
        )

    def _sync_to_compute(self) -> None:
        self._keeps_rows_local = self.rows_may_stay()
        try:
            super()._sync_to_compute()
        finally:
            self._keeps_rows_local = False

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather, process_group: Any = None) -> None:
        # With a user-defined function there may be no process group.
        several = dist_sync_fn is gather and dist.get_world_size(self.process_group) > 1
        if not (self._keeps_rows_local and several):
            if several:
                self._warn_about_gathering()
            return super()._sync_dist(dist_sync_fn, process_group)
        kinds = self._agreed_kinds(self.process_group)
        for role in ROLES:
            common_kind(kinds[_STATES[role][0]])
        names = [name for role in ROLES for name in _STATES[role]]
        travel = travel_device([kind[2] for name in names for kind in kinds[name]], self.process_group)
        if travel is not None:  # `compute` exchanges rows throughout
            for name in names:
                setattr(self, name, getattr(self, name).to(travel))
                kinds[name] = [(shape, dtype, travel.type) for shape, dtype, _ in kinds[name]]
        gathered_names = [name for role in ROLES for name in _STATES[role][1:]]
        gathered = {
            name: all_gather_cat(getattr(self, name), self.process_group, kinds[name]) for name in gathered_names
        }
        for name, state in gathered.items():
            setattr(self, name, state)
        self._lengths = {role: [shape[0] for shape, *_ in kinds[_STATES[role][1]]] for role in ROLES}

    def _warn_about_gathering(self) -> None:
        """Warn if the rows gathered on every rank are large."""
        local = sum(getattr(self, _STATES[role][0]).nbytes for role in ROLES)
        total = sum(all_gather_status(local, self.process_group))
        if total > WARN_BYTES:
            warnings.warn(
                f"{type(self).__name__} gathers all rows, {total / 1e9:.1f} GB, on every process: its options require "
                "it. Scores of ranks, class means and clusters of the default k-means leave rows where they are",
                stacklevel=2,
            )

    def unsync(self, should_unsync: bool = True) -> None:
        super().unsync(should_unsync)
        if not self._is_synced:
            self._lengths = None


def _join_roles(first: _RoleItems, second: _RoleItems, rows: int) -> _RoleItems:
    # rows: of the updates of the first role
    """Return the items of two roles."""
    second = second._replace(rows=second.rows + rows, positions=second.positions + len(first.labels))
    pairs = zip(first, second, strict=True)
    return _RoleItems(*(b if not len(a) else a if not len(b) else torch.cat([a, b]) for a, b in pairs))
