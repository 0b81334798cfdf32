"""The base of metrics that keep embeddings: their states, in one process or spread over several."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ... import _checks
from ..._distributed import common_kind, exchange, gather, gathered
from ..._metric import Metric, Options
from ...uncertainty.engine.weights import Identity, units
from ..inputs import Sides, Spread, both_or_neither, budget, check_finite, check_squares, comparable_labels, labelled
from ..ranking.sharded import rows_in_places

Role = Literal["both", "query", "reference"]
ROLES: tuple[Role, ...] = get_args(Role)
MUCH = 10**9  # bytes of rows that each process is to hold


class StoreOptions(Options, total=False):
    """What every metric that keeps embeddings takes by keyword, too."""

    store_dtype: torch.dtype | None


class EmbeddingOptions(StoreOptions, total=False):
    device: torch.device | str | None


class EmbeddingMetric(Metric):
    """Keeps the embeddings and labels of every update, in order, for a `compute` that calls `kept`.

    Subclasses have the same states, so that in a MetricCollection they form one compute group and keep one copy.
    `store_dtype`, for example torch.float16, is the dtype in which embeddings are kept; default their own.
    """

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

    def update(
        self,
        embeddings: Tensor | np.ndarray,
        labels: Tensor | np.ndarray,
        reference: Tensor | np.ndarray | None = None,
        reference_labels: Tensor | np.ndarray | None = None,
        *,
        role: Role = "both",
        cameras: Tensor | np.ndarray | None = None,
        **items: Unpack[Identity],
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
        _checks.one_of("role", role, ROLES)
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
        embeddings, labels = labelled(embeddings, labels, device, names, self.label_columns)
        embeddings = embeddings.to(self.store_dtype or embeddings.dtype)
        if embeddings.device.type == "cpu":
            check_finite(**dict(zip(names, (embeddings, labels), strict=True)))
        options = {"ids": ids, "cameras": cameras, "groups": groups}
        options = {name: None if v is None else units(name, v, len(embeddings), device) for name, v in options.items()}
        kept = self._rows(role)
        for (name, option), before in zip(options.items(), kept[2:], strict=True):
            if len(kept[0]) and (option is None) != (not len(before)):
                got = "none" if option is None else "some"
                raise ValueError(f"{name}: got {got} after updates that differ in this; call reset()")
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

    def rows_may_stay(self) -> bool:
        """Whether `compute` can do with the `kept` rows of this rank alone; else it is given those of all ranks."""
        return False

    def kept(self) -> Sides:
        """Everything kept; ValueError where it is not finite or lacks queries or references."""
        both, queries, references = map(self._chosen, ROLES)
        query, query_labels, query_cameras, self.query_units, query_places = _joined(both, queries)
        reference, reference_labels, reference_cameras, _, reference_places = _joined(both, references)
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
            spread = Spread(query_sizes, reference_sizes, group, memory, {})
            check_squares(**{f"embeddings of rank {dist.get_rank(group)}": query})
            if reference is not query:
                check_squares(**{f"embeddings of rank {dist.get_rank(group)}": reference})
        else:
            for rows in (query, *(references[:1] if len(references[1]) else ())):
                check_finite(embeddings=rows)
                check_squares(embeddings=rows)
        check_finite(labels=query_labels)
        if len(references[1]):
            check_finite(labels=references[1])
        if query.ndim == 1:  # no rank had a row
            query = reference = query[:, None]
        query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
        if len(self.query_units) not in (0, len(query_labels)):
            raise ValueError("ids, groups: got some for a part of the queries, wanted them in every update or in none")
        cameras = query_cameras, reference_cameras
        if not any(map(len, cameras)):
            cameras = None
        elif [*map(len, cameras)] != [len(query_labels), len(reference_labels)]:
            raise ValueError("cameras: got some for a part of the rows, wanted them in every update or in none")
        shared = len(both[1])
        return Sides(query, query_labels, reference, reference_labels, shared, cameras, spread=spread)

    def _rows(self, role: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # ->  (N, D), (N,) or (N, L), (N,) thrice; each (0,) before the first row, the last three also where not given
        return tuple(getattr(self, name) for name in _states(role))

    def _chosen(self, role: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # ->  embeddings (n, D), labels (N,) or (N, L), cameras and units (N,) or (0,), places (n,) of the embeddings
        # among labels
        """Without repeated ids, in their order; where rows stay on their ranks, the embeddings of this one alone."""
        rows, labels, ids, cameras, groups = self._rows(role)
        before = sum(self._lengths[role][: dist.get_rank(self.process_group)]) if self._lengths else 0
        if not len(ids):
            places = torch.arange(before, before + len(rows), device=labels.device)
            return rows, labels, cameras, groups, places
        if len(ids) != len(labels):
            raise ValueError(f"ids: got {len(ids)} for {len(labels)} rows, wanted one for each row or none")
        ids, order = ids.sort(stable=True)
        new = torch.cat([torch.ones_like(ids[:1], dtype=torch.bool), ids[1:] != ids[:-1]])
        first = order[new]
        places = ((first >= before) & (first < before + len(rows))).nonzero()[:, 0]
        if len(cameras):
            cameras = cameras[first]
        units = groups[first] if len(groups) else ids[new]
        return rows[first[places] - before], labels[first], cameras, units, places

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
        of_all = [name for role in ROLES for name in _states(role)[1:]]
        whole = {name: gathered(getattr(self, name), self.process_group, kinds[name]) for name in of_all}
        for name, state in whole.items():
            setattr(self, name, state)
        self._lengths = {role: [shape[0] for shape, _ in kinds[_states(role)[1]]] for role in ROLES}

    def _warn_of_all_rows(self) -> None:
        """Where what every rank is to hold is large."""
        held = sum(getattr(self, _states(role)[0]).nbytes for role in ROLES)
        whole = sum(exchange(held, self.process_group))
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


def _joined(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # rows, labels, cameras, units and places of two roles  ->  the same of both
    (*first, first_places), (*second, second_places) = first, second
    places = torch.cat([first_places, second_places + len(first[1])])
    pairs = zip(first, second, strict=True)
    return *(b if not len(a) else a if not len(b) else torch.cat([a, b]) for a, b in pairs), places
