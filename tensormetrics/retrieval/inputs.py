"""Embeddings with labels: checks shared by the domain, and who is scored against whom."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .. import _checks
from .._exact_sums import COARSE, parts
from .relevance import Gains, Ignore, as_int64, triples_of
from .sources.source import RowSource
from .sources.state import State

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def as_gains(gains: Any, device: torch.device) -> Gains | None:
    """Gains as a door was given them: a function, a number for each pair, or a tuple of queries, references, gains."""
    if gains is None or callable(gains):
        return gains
    if are_triples(gains):
        return tuple(as_tensor("gains", column, device) for column in gains)
    return as_tensor("gains", gains, device)


def are_triples(gains: Any) -> bool:
    return isinstance(gains, tuple) and len(gains) == 3


def need_no_table(gains: Any) -> bool:
    """Whether these say for the queries of one rank alone what is relevant: they are no table of all pairs."""
    return gains is None or callable(gains) or are_triples(gains)


def as_tensor(name: str, values: Any, device: torch.device) -> Tensor:
    """Tensors, numpy arrays and nested lists of numbers as a tensor on `device`. Lists of floats are float64."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise ValueError(f"{name}: got layout {values.layout}, wanted a dense tensor; write {name}.to_dense()")
        return values.to(device)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if array.dtype.kind not in "biufc":
        raise ValueError(
            f"{name}: got an array of {array.dtype}, wanted numbers; for names write "
            f"numpy.unique({name}, return_inverse=True)[1]"
        )
    if array.dtype.itemsize > 8 and array.dtype.kind == "f":
        raise ValueError(f"{name}: got an array of {array.dtype}, wanted at most float64; write {name}.astype(float)")
    tensor: Tensor = _checks.array_as_tensor(array)
    return tensor.to(device)


def as_embeddings(name: str, rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N, D) of one of FLOATING
    _checks.shape(name, rows, "N", "D")
    if rows.is_complex():
        raise ValueError(f"{name}: got {rows.dtype}, wanted real numbers; write torch.view_as_real({name}).flatten(1)")
    if rows.dtype in FLOATING:
        return rows
    return rows.to(torch.float32 if rows.element_size() <= 2 else torch.float64)


def as_labels(name: str, labels: Tensor, columns: bool = False) -> Tensor:
    # labels: (N,) or (N, 1), with columns=True also (N, L)  ->  (N,) or (N, L), int64 or floating
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and not columns:
        raise ValueError(
            f"{name}: got shape {tuple(labels.shape)}, wanted (N,); for more columns give a label_comparison_fn, or "
            "to AccuracyCalculator label_levels=True"
        )
    if labels.ndim != 2:
        _checks.shape(name, labels, "N")
    if labels.is_complex():
        raise ValueError(f"{name}: got {labels.dtype}, wanted integers that int64 can hold, or real numbers")
    return labels if labels.is_floating_point() else as_int64(name, labels)


def labelled(
    rows: Any, labels: Any, device: torch.device, names: tuple[str, str], columns: bool = False
) -> tuple[Tensor, Tensor]:
    # rows: (N, D)  labels: as in as_labels  ->  (N, D) floating, (N,) or (N, L) int64 or floating
    rows = as_embeddings(names[0], as_tensor(names[0], rows, device))
    labels = as_labels(names[1], as_tensor(names[1], labels, device), columns)
    _checks.check_consistent_length(**dict(zip(names, (rows, labels), strict=True)))
    return rows, labels


MOST_REFERENCES = 2**31 - 1  # columns and ranks are int32


def check_count(references: int) -> None:
    if references > MOST_REFERENCES:
        raise ValueError(
            f"reference: got {references} rows, wanted at most {MOST_REFERENCES}; search parts of them, or spread them "
            "over processes"
        )


def check_self_index(self_index: Tensor, queries: int, references: int) -> Tensor:
    # self_index: (Q,) integer  ->  (Q,) int64, -1 = none; reads the values
    _checks.shape("self_index", self_index, queries)
    _checks.integral("self_index", self_index)
    if queries and (highest := int(self_index.max())) >= references:
        raise ValueError(f"self_index: got {highest}, wanted -1 to {references - 1}")
    return self_index.long().clamp(min=-1)


def both_or_neither(**sides: Any) -> None:
    """ValueError where one of two is None and the other is not."""
    lacking = [name for name, side in sides.items() if side is None]
    if len(lacking) == 1:
        raise ValueError(f"{lacking[0]}: got None, wanted both {' and '.join(sides)} or neither")


def alike(query: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one dtype, as functions of a user's own want them; the same tensor stays the same."""
    dtype = torch.promote_types(query.dtype, reference.dtype)
    return query.to(dtype), reference.to(dtype)


def check_finite(**tensors: Tensor) -> None:
    """Reads the values, and so waits for the device."""
    for name, tensor in tensors.items():
        _check_rows(name, tensor, lambda rows: ~finite_rows(rows), "NaN or infinity", "finite values")


def finite_rows(rows: Tensor) -> Tensor:
    # rows: (N, ...)  ->  (N,) bool
    """Whether all of a row is finite."""
    rows = rows.flatten(1)
    if not rows.is_floating_point() or not rows.shape[1]:
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    # amax propagates NaN and infinity; a sum of x * 0 does not under torch.compile, and `isfinite` of every entry
    # takes eight times as long.
    return rows.abs().amax(1) < torch.inf


def check_squares(**sides: Tensor) -> None:
    """ValueError where squares leave the range of float64, as those of narrower numbers never do. Reads the values."""
    low, high = 2.0**-400, 2.0**400  # with room for sums, and for differences of nearly equal values

    def beyond(rows: Tensor) -> Tensor:
        largest = rows.abs().amax(1)
        return (largest > 0) & (largest < torch.inf) & ((largest < low) | (largest > high))

    wanted = f"a largest value of {low:.0e} to {high:.0e} in each; multiply all embeddings by one number"
    for name, rows in sides.items():
        if rows.dtype == torch.float64 and rows.shape[1]:
            _check_rows(name, rows, beyond, "values whose squares leave the range of float64", wanted)


def _check_rows(name: str, rows: Tensor, wrong: Callable[[Tensor], Tensor], held: str, wanted: str) -> None:
    # wrong: (n, ...)  ->  (n,) bool
    pieces = rows.unsqueeze(-1).flatten(1).split(few_rows(rows))
    bad = torch.cat([wrong(piece) for piece in pieces])
    if bad.any():
        raise ValueError(
            f"{name}: {int(bad.sum())} of {len(bad)} rows hold {held}, the first is row {int(bad.nonzero()[0])}; "
            f"wanted {wanted}"
        )


def few_rows(tensor: Tensor) -> int:
    """How many rows of a tensor to look at together, so that what is made of them stays small."""
    return max(2**20 // max(tensor.shape[1:].numel(), 1), 1)


def largest_of_columns(rows: Tensor, prepared: Callable[[Tensor], Tensor] = Tensor.double) -> Tensor:
    # rows: (N, D)  ->  (D,) float64, of moduli
    largest = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for piece in rows.split(few_rows(rows)) if len(rows) else ():
        largest = torch.maximum(largest, prepared(piece).abs().amax(0))
    return largest


def class_parts(
    rows: Tensor, codes: Tensor, classes: int, units: Tensor, prepared: Callable[[Tensor], Tensor] = Tensor.double
) -> Tensor:
    # rows: (N, D)  codes: (N,) int64 below `classes`  units: (D,), `unit_of` the largest of each column
    # ->  (parts, classes, D) float64, whose sums over several sets of rows are exact; `total` adds up the parts
    """Sums of the rows of each class, as `prepared` gives them in float64: the same bits for any order of the rows."""
    sums = torch.zeros(len(COARSE), classes, rows.shape[1], dtype=torch.float64, device=rows.device)
    # A piece stays in a CPU's cache; of fewer rows than classes the sums would take longer than the rows.
    step = max(few_rows(rows) // (8 if rows.device.type == "cpu" else 1), classes, 1)
    for piece, here in zip(rows.split(step), codes.split(step), strict=True) if len(rows) else ():
        order = here.argsort(stable=True)
        present, lengths = here[order].unique_consecutive(return_counts=True)
        for of_part, part in zip(sums, parts(prepared(piece[order]), units, COARSE), strict=True):
            of_part[present] += torch.segment_reduce(part, "sum", lengths=lengths)
    return sums


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


class ShardLayout(NamedTuple):
    """Where rows stay on several ranks, one after the other: how many queries and references every rank has.

    group: the ranks, None = all; memory: the budget of the rank with the least; found: neighbours of its own queries
    (n, k), once they are searched for.
    """

    query: list[int]
    reference: list[int]
    group: ProcessGroup | None
    memory: int
    found: dict[str, Tensor]

    def own(self) -> slice:
        """This rank's among the queries of all."""
        rank = torch.distributed.get_rank(self.group)
        return slice(sum(self.query[:rank]), sum(self.query[: rank + 1]))

    def own_references(self) -> slice:
        """The same of the references."""
        rank = torch.distributed.get_rank(self.group)
        return slice(sum(self.reference[:rank]), sum(self.reference[: rank + 1]))


class Stream(NamedTuple):
    """References that are read in blocks, and where what is known of them so far is kept.

    group: processes each of which reads a part of them and is told what all have found; None = this one reads all.
    """

    source: RowSource
    state: State | None
    group: ProcessGroup | None = None


class RetrievalInputs(NamedTuple):
    """Who is scored against whom.

    query (Q, D), reference (N, D) floating; query_labels (Q,) or (Q, L), reference_labels (N,) or (N, L).
    shared: the first so many queries are the first references, and no neighbours of themselves.
    own (Q,) int64: the same for any arrangement, in place of `shared`: the reference that is this query, -1 = none.
    ignore, gains: as in `positive_ranks`.
    spread: query and reference are the rows of this rank alone; all else is of all ranks.
    stream: the references, in place of `reference`, which then holds none.
    """

    query: Tensor
    query_labels: Tensor
    reference: Tensor
    reference_labels: Tensor
    shared: int
    ignore: Ignore | None = None
    gains: Gains | None = None
    own: Tensor | None = None
    spread: ShardLayout | None = None
    stream: Stream | None = None

    def self_index(self) -> Tensor:
        # ->  (Q,) int64, the reference that is this query, -1 = none
        if self.own is not None:
            return self.own
        rows = torch.arange(len(self.query_labels), device=self.query_labels.device)
        return torch.where(rows < self.shared, rows, -1)

    def without(self, ignore: Ignore | None) -> "RetrievalInputs":
        """The same, with these references ignored."""
        if ignore is None:
            return self
        if self.ignore is not None:
            raise ValueError("ignore: got some together with cameras, wanted one of them")
        return self._replace(ignore=ignore)

    def of_queries(self, queries: Tensor) -> "RetrievalInputs":
        # queries: (q,) int64, whose rows are here
        """The same for some of the queries."""
        ignore, gains = self.ignore, self.gains
        if isinstance(ignore, tuple):
            ignore = ignore[0][queries], ignore[1]
        elif isinstance(ignore, Tensor):
            ignore = ignore[queries]
        elif ignore is not None:
            of_slice, numbers = ignore, queries.tolist()
            ignore = lambda rows: torch.cat([of_slice(slice(n, n + 1)) for n in numbers[rows]])  # noqa: E731
        if isinstance(gains, Tensor):
            gains = gains[queries]
        elif isinstance(gains, tuple):
            gains = triples_of(gains, queries, (len(self.query_labels), len(self.reference_labels)))
        return self._replace(
            query=self.query[queries],
            query_labels=self.query_labels[queries],
            shared=0,
            ignore=ignore,
            gains=gains,
            own=self.self_index()[queries],
        )

    def all_shared(self) -> bool:
        """Whether all queries are the first references."""
        return self.own is None and self.shared == len(self.query_labels)
