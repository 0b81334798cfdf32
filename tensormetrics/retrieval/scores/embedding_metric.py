"""The base of metrics that keep embeddings: their states, in one process or spread over several."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ... import _checks
from ..._distributed import all_gather_cat, all_gather_status, common_kind, gather, travel_device
from ..._metric import Metric, Options
from ...uncertainty.engine.weights import (
    ItemNames,
    ResamplingUnits,
    check_same_kind,
    kind_of_rows,
    kind_of_units,
    units,
)
from ..inputs import (
    RetrievalInputs,
    ShardLayout,
    as_labeled_rows,
    both_or_neither,
    budget,
    check_finite,
    check_squares,
    comparable_labels,
)
from ..ranking.sharded import rows_in_places

Role = Literal["both", "query", "reference"]
ROLES: tuple[Role, ...] = get_args(Role)
MUCH = 10**9  # bytes of rows that each process is to hold


class Queries(NamedTuple):
    """Who the queries of one `compute` are, in its order."""

    names: ItemNames
    rows: Tensor | None  # (Q,) int64, which row of the updates a query is; None: it has no id, and all are in order
    num_rows: int  # of the updates
    reference_names: tuple[Tensor, ...] = ()  # ids and groups of all references, (N,) int64 or (0,) for none

    def names_of_items(self, shared: int, references: Tensor) -> ItemNames:
        # references: (N, ...), the first `shared` of them queries  ->  of V items
        """Return who the items of all pairs are: the queries, then the references that are no queries.

        An id of a query says nothing of an equal id of a reference; a group is the same on both sides.
        """
        others = ItemNames.of_rows(references, *self.reference_names)
        numbers = torch.cat([self.names.numbers, ~others.numbers[shared:]])
        groups = [self.names.units if self.names.groups is None else self.names.groups]
        groups.append(~others.numbers[shared:] if others.groups is None else others.groups[shared:])
        is_grouped = self.names.groups is not None or others.groups is not None
        return ItemNames(numbers, torch.cat(groups) if is_grouped else None)

    def grouped(self, groups: Any) -> "Queries":
        # groups: (num_rows,) integers or names, or a mapping from ids
        """Return the queries with other groups, or as they are for None."""
        return self if groups is None else self._replace(names=self.names._replace(groups=self.groups_of(groups)))

    def groups_of(self, groups: Any) -> Tensor:
        # groups: (num_rows,) integers or names, or a mapping from ids  ->  (Q,) int64
        """Return the group of each query."""
        if isinstance(groups, Mapping):
            return self._mapped(groups)
        try:
            numbers = units("groups", groups, self.num_rows, self.names.numbers.device)
        except ValueError as error:
            hint = "" if self.rows is None else "; of items with ids, pass a mapping from id to group"
            raise ValueError(f"{error}{hint}") from error
        return numbers if self.rows is None else numbers[self.rows]

    def _mapped(self, groups: Mapping[Any, Any]) -> Tensor:
        if self.rows is None:
            raise ValueError("groups: got a mapping, but the items have no ids; give update some, or pass a sequence")
        ids, device = self.names.numbers, self.names.numbers.device
        keys = units("groups", list(groups), len(groups), device)
        values = units("groups", list(groups.values()), len(groups), device)
        keys, order = keys.sort()
        index = torch.searchsorted(keys, ids).clamp(max=max(len(keys) - 1, 0))
        known = keys[index] == ids if len(keys) else torch.zeros_like(ids, dtype=torch.bool)
        if not bool(known.all()):
            raise ValueError(f"groups: got none for {int((~known).sum())} of {len(ids)} ids, wanted one for each id")
        return values[order[index]]


class _Chosen(NamedTuple):
    """The items of a role, without repeated ids and in their order."""

    labels: Tensor  # (N,) or (N, L)
    cameras: Tensor  # (N,), or (0,) for none
    ids: Tensor  # (N,), or (0,)
    groups: Tensor  # (N,), or (0,)
    rows: Tensor  # (N,) int64, which row of the updates an item is
    embeddings: Tensor  # (n, D), where rows stay on their ranks those of this one alone
    places: Tensor  # (n,) int64, of the embeddings among the items


class StoreOptions(Options, total=False):
    """What every metric that keeps embeddings takes by keyword, too."""

    store_dtype: torch.dtype | None


class EmbeddingOptions(StoreOptions, total=False):
    device: torch.device | str | None


class EmbeddingMetric(Metric):
    """Keeps the embeddings and labels of every update, in order, for a `compute` that calls `kept`.

    Subclasses have the same states, so that in a MetricCollection they form one compute group and keep one copy.
    `store_dtype`, for example torch.float16, is the dtype in which embeddings are kept; default their own. `update`
    never waits for the device; `compute` searches and does, and so does `forward`, `metric(x, labels)`, at every call.
    """

    model_options = (
        *Metric.model_options,
        *("distance", "exact", "knn_func", "kmeans_func", "n_clusters", "store_dtype"),
        *("audit", "audit_seed", "keep", "progress"),
    )

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
            for name in _states(role):
                self.add_rows(name)
        self._to_be_spread = False
        self._lengths: dict[str, list[int]] | None = None  # rows of every rank, while embeddings stay with them

    def rows_of_items(self) -> list[tuple[str, ...]]:
        return [_states(role) for role in ROLES]

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

        Shapes: embeddings, reference: (N, D); labels, reference_labels: (N,) or (N, 1), or (N, L) where there is a
        `label_comparison_fn`; cameras: (N,) integer; ids, groups: (N,) integer or names. Arrays of numpy are taken too.

        With a `reference` set the embeddings are queries and score against it, as `role="query"` and `"reference"` say
        in updates of their own: `metric(query, labels, reference, reference_labels)` is the score of one against the
        other. Give references once: every update adds to them.

        With `ids`, positions in the dataset, `compute` takes every item once and in their order: samplers repeat items
        to fill the last batch, and a copy would be a perfect neighbour. Relevant references of the query's own camera
        are left out, where there are `cameras` (or other sources that make the task too easy). `groups` of queries,
        such as patients, classes or pictures of one scene, are weighed together by `interval`. NaN and infinity are
        a ValueError: here on a CPU, in `compute` elsewhere (no waiting).
        """
        _checks.check_choice("role", role, ROLES)
        both_or_neither(reference=reference, reference_labels=reference_labels)
        if reference is not None and reference_labels is not None:
            if role != "both" or cameras is not None or any(each is not None for each in items.values()):
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
        device = home or (embeddings.device if isinstance(embeddings, Tensor) else self.device)
        embeddings, labels = as_labeled_rows(embeddings, labels, device, names, self.label_columns)
        embeddings = embeddings.to(self.store_dtype or embeddings.dtype)
        if embeddings.device.type == "cpu":
            check_finite(**dict(zip(names, (embeddings, labels), strict=True)))
        options = {"ids": ids, "cameras": cameras, "groups": groups}
        options = {name: None if v is None else units(name, v, len(embeddings), device) for name, v in options.items()}
        kept, before = self._rows(role), self._kind_of_rows(role, self.metric_state)
        if len(embeddings):
            check_same_kind(kind_of_units(ids is not None, groups is not None), before)
            if len(kept[0]) and (cameras is None) != (not len(kept[3])):
                got = "none" if cameras is None else "some"
                raise ValueError(f"cameras: got {got} after updates that differ in this; call reset()")
        for other in ROLES:
            kept = self._rows(other)[0]
            if kept.ndim == 2 and kept.shape[1] != embeddings.shape[1]:
                raise ValueError(
                    f"{names[0]}: got shape {tuple(embeddings.shape)} after {tuple(kept.shape)} with role={other!r}, "
                    "wanted the same number of columns; call reset() before changing it"
                )
        for state, rows in zip(_states(role), (embeddings, labels, *options.values()), strict=True):
            if rows is not None:
                self.append_rows(state, rows)

    def update_options(self) -> dict[str, Any]:
        options = {"label_columns": self.label_columns, "device": self.placed, "store_dtype": self.store_dtype}
        return {"update": type(self).update, **options}

    def rows_may_stay(self) -> bool:
        """Whether `compute` can do with the `kept` rows of this rank alone; else it is given those of all ranks."""
        return False

    def kept(self) -> tuple[RetrievalInputs, Queries]:
        """Return everything kept, and who the queries are.

        ValueError where it is not finite or lacks queries or references.
        """
        both, queries, references = map(self._chosen, ROLES)
        kinds = [kind_of_rows(len(chosen.labels), chosen.ids, chosen.groups) for chosen in (both, queries)]
        check_same_kind(kinds[1], kinds[0])
        rows_of_both = len(self._rows("both")[1])
        query_side, reference_side = _joined(both, queries, rows_of_both), _joined(both, references, rows_of_both)
        query_labels, query_cameras, ids, groups, rows_of_queries, query, query_places = query_side
        reference_labels, reference_cameras, *reference_names, _, reference, reference_places = reference_side
        names = ItemNames.of_rows(query_labels, ids, groups)
        num_rows = rows_of_both + len(self._rows("query")[1])
        rows = rows_of_queries if len(ids) else None
        identities = Queries(names, rows, num_rows, (reference_names[0], reference_names[1]))
        if bool(len(query_labels)) != bool(len(reference_labels)):
            lacking = "reference" if len(query_labels) else "query"
            raise ValueError(
                f"update: got {len(query_labels)} queries and {len(reference_labels)} references, wanted some of each; "
                f"feed rows with role={lacking!r} or role='both'"
            )
        spread = None
        if self._lengths:
            group, sides = self.process_group, [(query, query_places, len(query_labels))]
            if any(map(any, (self._lengths["query"], self._lengths["reference"]))):
                sides.append((reference, reference_places, len(reference_labels)))
            allowed = budget(getattr(self, "memory_budget", None), query.device)
            settled, memory = rows_in_places(sides, allowed, group)
            (query, query_sizes), (reference, reference_sizes) = settled[0], settled[-1]
            spread = ShardLayout(query_sizes, reference_sizes, group, memory, {})
            check_squares(**{f"embeddings of rank {dist.get_rank(group)}": query})
            if reference is not query:
                check_squares(**{f"embeddings of rank {dist.get_rank(group)}": reference})
        else:
            for rows in (query, *((references.embeddings,) if len(references.labels) else ())):
                check_finite(embeddings=rows)
                check_squares(embeddings=rows)
        check_finite(labels=query_labels)
        if len(references.labels):
            check_finite(labels=references.labels)
        if query.ndim == 1:  # no rank had a row
            query = reference = query[:, None]
        query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
        cameras = query_cameras, reference_cameras
        if not any(map(len, cameras)):
            cameras = None
        elif [*map(len, cameras)] != [len(query_labels), len(reference_labels)]:
            raise ValueError("cameras: got some for a part of the rows, wanted them in every update or in none")
        shared = len(both.labels)
        return RetrievalInputs(
            query, query_labels, reference, reference_labels, shared, cameras, spread=spread
        ), identities

    def _rows(self, role: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # ->  (N, D), (N,) or (N, L), (N,) thrice; each (0,) before the first row, the last three also where not given
        return tuple(getattr(self, name) for name in _states(role))

    def _kind_of_rows(self, role: str, state: dict[str, Tensor]) -> int | None:
        _, labels, ids, _, groups = (state[name] for name in _states(role))
        return kind_of_rows(len(labels), ids, groups)

    def _add_state(self, state: dict[str, Tensor]) -> None:
        for role in ROLES:
            check_same_kind(self._kind_of_rows(role, state), self._kind_of_rows(role, self.metric_state))
        super()._add_state(state)

    def _chosen(self, role: str) -> _Chosen:
        embeddings, labels, ids, cameras, groups = self._rows(role)
        self._kind_of_rows(role, self.metric_state)  # those of all ranks
        if len(cameras) not in (0, len(labels)):
            raise ValueError("cameras: got some for a part of the rows, wanted them in every update or in none")
        before = sum(self._lengths[role][: dist.get_rank(self.process_group)]) if self._lengths else 0
        if not len(ids):
            places = torch.arange(before, before + len(embeddings), device=labels.device)
            rows = torch.arange(len(labels), device=labels.device)
            return _Chosen(labels, cameras, ids, groups, rows, embeddings, places)
        ids, order = ids.sort(stable=True)
        new = torch.cat([torch.ones_like(ids[:1], dtype=torch.bool), ids[1:] != ids[:-1]])
        first = order[new]
        places = ((first >= before) & (first < before + len(embeddings))).nonzero()[:, 0]
        cameras, groups = (column[first] if len(column) else column for column in (cameras, groups))
        return _Chosen(labels[first], cameras, ids[new], groups, first, embeddings[first[places] - before], places)

    def _sync_to_compute(self) -> None:
        self._to_be_spread = self.rows_may_stay()
        try:
            super()._sync_to_compute()
        finally:
            self._to_be_spread = False

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather, process_group: Any = None) -> None:
        # With a function of the user's own there may be no group to talk to.
        several = dist_sync_fn is gather and dist.get_world_size(self.process_group) > 1
        if not (self._to_be_spread and several):
            if several:
                self._warn_of_all_rows()
            return super()._sync_dist(dist_sync_fn, process_group)
        kinds = self._agreed_kinds(self.process_group)
        for role in ROLES:
            common_kind(kinds[_states(role)[0]])
        names = [name for role in ROLES for name in _states(role)]
        travel = travel_device([kind[2] for name in names for kind in kinds[name]], self.process_group)
        if travel is not None:  # rows are sent all through `compute`
            for name in names:
                setattr(self, name, getattr(self, name).to(travel))
                kinds[name] = [(shape, dtype, travel.type) for shape, dtype, _ in kinds[name]]
        of_all = [name for role in ROLES for name in _states(role)[1:]]
        whole = {name: all_gather_cat(getattr(self, name), self.process_group, kinds[name]) for name in of_all}
        for name, state in whole.items():
            setattr(self, name, state)
        self._lengths = {role: [shape[0] for shape, *_ in kinds[_states(role)[1]]] for role in ROLES}

    def _warn_of_all_rows(self) -> None:
        """Where what every rank is to hold is large."""
        held = sum(getattr(self, _states(role)[0]).nbytes for role in ROLES)
        whole = sum(all_gather_status(held, self.process_group))
        if whole > MUCH:
            warnings.warn(
                f"{type(self).__name__} brings all rows, {whole / 1e9:.1f} GB, to every process: its options want them "
                "together. Scores of ranks, class means and clusters of the default k-means leave rows where they are",
                stacklevel=2,
            )

    def unsync(self, should_unsync: bool = True) -> None:
        super().unsync(should_unsync)
        if not self._is_synced:
            self._lengths = None


def _states(role: str) -> tuple[str, str, str, str, str]:
    prefix = "" if role == "both" else f"{role}_"
    return f"{prefix}embeddings", f"{prefix}labels", f"{prefix}ids", f"{prefix}cameras", f"{prefix}groups"


def _joined(first: _Chosen, second: _Chosen, rows: int) -> _Chosen:
    # rows: of the updates of the first role
    """Return the items of two roles."""
    second = second._replace(rows=second.rows + rows, places=second.places + len(first.labels))
    pairs = zip(first, second, strict=True)
    return _Chosen(*(b if not len(a) else a if not len(b) else torch.cat([a, b]) for a, b in pairs))
