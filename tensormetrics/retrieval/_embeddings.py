"""Embeddings with labels: checks shared by the domain, and the metric base that keeps them."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _checks
from .._metric import Metric


def as_tensor(name: str, values: Any, device: torch.device) -> Tensor:
    """Tensors, numpy arrays and nested lists of numbers as a tensor on `device`. Lists of floats are float64."""
    if isinstance(values, Tensor):
        return values.to(device)
    try:
        array = np.array(values)  # a copy: torch cannot share read-only or reversed arrays
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{name}: got an array of {array.dtype}, wanted numbers")
    return torch.from_numpy(array).to(device)


def as_embeddings(name: str, rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N, D) floating
    _checks.shape(name, rows, "N", "D")
    if rows.is_complex():
        raise ValueError(f"{name}: got {rows.dtype}, wanted real numbers; write torch.view_as_real({name}).flatten(1)")
    if rows.is_floating_point():
        return rows
    return rows.to(torch.float32 if rows.element_size() <= 2 else torch.float64)


def as_labels(name: str, labels: Tensor, columns: bool = False) -> Tensor:
    # labels: (N,) or (N, 1), with columns=True also (N, L)  ->  (N,) or (N, L), int64 or floating
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and not columns:
        raise ValueError(
            f"{name}: got shape {tuple(labels.shape)}, wanted (N,); for more columns give a label_comparison_fn"
        )
    if labels.ndim != 2:
        _checks.shape(name, labels, "N")
    if labels.is_complex() or labels.dtype == torch.uint64:
        raise ValueError(f"{name}: got {labels.dtype}, wanted integers that int64 can hold, or real numbers")
    return labels if labels.is_floating_point() else labels.long()


def labelled(
    rows: Any, labels: Any, device: torch.device, names: tuple[str, str], columns: bool = False
) -> tuple[Tensor, Tensor]:
    # rows: (N, D)  labels: as in as_labels  ->  (N, D) floating, (N,) or (N, L) int64 or floating
    rows = as_embeddings(names[0], as_tensor(names[0], rows, device))
    labels = as_labels(names[1], as_tensor(names[1], labels, device), columns)
    _checks.same_length(**dict(zip(names, (rows, labels), strict=True)))
    return rows, labels


def check_finite(**tensors: Tensor) -> None:
    """Reads the values, and so waits for the device."""
    for name, tensor in tensors.items():
        bad = ~tensor.isfinite()
        bad = bad.any(1) if bad.ndim == 2 else bad
        if bad.any():
            raise ValueError(
                f"{name}: {int(bad.sum())} of {len(bad)} rows hold NaN or infinity, the first is row "
                f"{int(bad.nonzero()[0])}; wanted finite values"
            )


def comparable_labels(query_labels: Tensor, reference_labels: Tensor) -> tuple[Tensor, Tensor]:
    # (Q[, L]), (N[, L])  ->  the same of one dtype, in which equality is exact
    labels = (query_labels, reference_labels)
    if query_labels.shape[1:] != reference_labels.shape[1:]:
        raise ValueError(
            f"query_labels and reference_labels: got shapes {tuple(query_labels.shape)} and "
            f"{tuple(reference_labels.shape)}, wanted the same number of columns"
        )
    dtype = torch.promote_types(*(side.dtype for side in labels))
    if query_labels.is_floating_point() != reference_labels.is_floating_point():
        dtype = torch.float64
        if any((side.double().abs() >= 2**53).any() for side in labels if not side.is_floating_point()):
            raise ValueError(
                f"query_labels and reference_labels: got {query_labels.dtype} and {reference_labels.dtype} with "
                "integers of 2**53 or more, wanted both as integers"
            )
    return query_labels.to(dtype), reference_labels.to(dtype)


def budget(memory_budget: int | None, device: torch.device) -> int:
    """Bytes that temporaries may take: as told, else 256 MiB on a CPU and 1 GiB elsewhere."""
    return memory_budget or (2**28 if device.type == "cpu" else 2**30)


class Sides(NamedTuple):
    """Who is scored against whom.

    query (Q, D), reference (N, D) floating; query_labels (Q,) or (Q, L), reference_labels (N,) or (N, L).
    shared: the first so many queries are the first references, and no neighbours of themselves.
    groups (Q,), (N,) or None: a relevant reference of the query's group is not counted, neither for nor against.
    """

    query: Tensor
    query_labels: Tensor
    reference: Tensor
    reference_labels: Tensor
    shared: int
    groups: tuple[Tensor, Tensor] | None = None

    def self_index(self) -> Tensor:
        # ->  (Q,) int64, the reference that is this query, -1 = none
        rows = torch.arange(len(self.query), device=self.query.device)
        return torch.where(rows < self.shared, rows, -1)


ROLES = ("both", "query", "reference")


class EmbeddingMetric(Metric):
    """Keeps the embeddings and labels of every update, in order, for a `compute` that calls `kept`.

    Subclasses have the same states, so that in a MetricCollection they form one compute group and keep one copy.
    """

    def __init__(self, label_columns: bool = False, device: torch.device | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label_columns = label_columns
        self.placed = None if device is None else torch.device(device)
        if self.placed is not None:
            self.to(self.placed)
        for role in ROLES:
            for name in _states(role):
                self.add_rows(name)

    def update(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        role: str = "both",
        ids: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> None:
        # embeddings: (N, D)  labels: (N,) or (N, 1), or (N, L) where there is a label_comparison_fn
        # ids, groups: (N,) integer
        """Append a batch of queries, of references, or of items that are both.

        With `ids`, positions in the dataset, `compute` takes every item once and in their order: samplers repeat items
        to fill the last batch, and a copy would be a perfect neighbour. With `groups`, such as the camera of a picture,
        relevant references of the query's own group are left out. NaN and infinity are a ValueError: here on a CPU, in
        `compute` elsewhere (no waiting).
        """
        _checks.one_of("role", role, ROLES)
        device = self.placed or (embeddings.device if isinstance(embeddings, Tensor) else self.device)
        embeddings, labels = labelled(embeddings, labels, device, ("embeddings", "labels"), self.label_columns)
        if embeddings.device.type == "cpu":
            check_finite(embeddings=embeddings, labels=labels)
        options = {"ids": ids, "groups": groups}
        options = {name: None if v is None else as_tensor(name, v, device) for name, v in options.items()}
        kept = self._rows(role)
        for (name, option), before in zip(options.items(), kept[2:], strict=True):
            if len(kept[0]) and (option is None) != (not len(before)):
                got = "none" if option is None else "some"
                raise ValueError(f"{name}: got {got} after updates that differ in this; call reset()")
            if option is not None:
                _checks.shape(name, option, len(embeddings))
                _checks.integral(name, option)
                options[name] = option.long()
        for other in ROLES:
            kept = self._rows(other)[0]
            if kept.ndim == 2 and kept.shape[1] != embeddings.shape[1]:
                raise ValueError(
                    f"embeddings: got shape {tuple(embeddings.shape)} after {tuple(kept.shape)} with role={other!r}, "
                    "wanted the same number of columns; call reset() before changing it"
                )
        for state, rows in zip(_states(role), (embeddings, labels, *options.values()), strict=True):
            if rows is not None:
                self.append_rows(state, rows)

    def kept(self) -> Sides:
        """Everything kept; ValueError where it is not finite or lacks queries or references."""
        both, queries, references = (_each_once(*self._rows(role)) for role in ROLES)
        query, query_labels, query_groups = _joined(both, queries)
        reference, reference_labels, reference_groups = _joined(both, references)
        if bool(len(query)) != bool(len(reference)):
            lacking = "reference" if len(query) else "query"
            raise ValueError(
                f"update: got {len(query)} queries and {len(reference)} references, wanted some of each; "
                f"feed rows with role={lacking!r} or role='both'"
            )
        check_finite(embeddings=query, labels=query_labels)
        if len(references[0]):
            check_finite(embeddings=references[0], labels=references[1])
        if query.ndim == 1:  # no rank had a row
            query = reference = query[:, None]
        query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
        groups = query_groups, reference_groups
        if not any(map(len, groups)):
            groups = None
        elif [*map(len, groups)] != [len(query), len(reference)]:
            raise ValueError("groups: got some for a part of the rows, wanted them in every update or in none")
        return Sides(query, query_labels, reference, reference_labels, len(both[0]), groups)

    def _rows(self, role: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # ->  (N, D), (N,) or (N, L), (N,), (N,); each (0,) before the first row, the last two also where not given
        return tuple(getattr(self, name) for name in _states(role))


def _states(role: str) -> tuple[str, str, str, str]:
    prefix = "" if role == "both" else f"{role}_"
    return f"{prefix}embeddings", f"{prefix}labels", f"{prefix}ids", f"{prefix}groups"


def _each_once(rows: Tensor, labels: Tensor, ids: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # rows: (N, D)  labels: (N,) or (N, L)  ids, groups: (N,), or (0,) = not given  ->  the first of each id, by id
    if not len(ids):
        return rows, labels, groups
    if len(ids) != len(rows):
        raise ValueError(f"ids: got {len(ids)} for {len(rows)} rows, wanted one for each row or none")
    ids, order = ids.sort(stable=True)
    first = order[torch.cat([torch.ones_like(ids[:1], dtype=torch.bool), ids[1:] != ids[:-1]])]
    return rows[first], labels[first], groups[first] if len(groups) else groups


def _joined(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if not len(second[0]):
        return first
    return tuple(map(torch.cat, zip(first, second, strict=True))) if len(first[0]) else second
