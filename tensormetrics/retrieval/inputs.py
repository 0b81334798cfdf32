"""Embeddings with labels: checks shared by the domain, and the queries and references of one evaluation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ..core.arguments import checks
from .deterministic import rows_per_chunk
from .relevance import Gains, Ignore, as_int64, triples_of
from .sources.source import EmbeddingSource
from .sources.state import State

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def are_triples(gains: Any) -> bool:
    return isinstance(gains, tuple) and len(gains) == 3


def is_rank_local(gains: Any) -> bool:
    """Return whether a rank can evaluate the gains of its queries alone, because they are no table of all pairs."""
    return gains is None or callable(gains) or are_triples(gains)


def as_tensor(name: str, values: Any, device: torch.device | None) -> Tensor:
    """Convert a tensor, NumPy array or nested list of numbers to a tensor on `device`, None: where it is.

    Lists of floats are float64.
    """
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise ValueError(f"{name}: got layout {values.layout}, wanted a dense tensor; write {name}.to_dense()")
        return values if device is None else values.to(device)
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
    tensor: Tensor = checks.array_as_tensor(array)
    return tensor if device is None else tensor.to(device)


def as_embeddings(name: str, rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N, D) of one of FLOATING
    if not isinstance(rows, Tensor) or rows.ndim != 2:
        checks.shape(name, rows, "N", "D")
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
        checks.shape(name, labels, "N")
    if labels.is_complex():
        raise ValueError(f"{name}: got {labels.dtype}, wanted integers that int64 can hold, or real numbers")
    return labels if labels.is_floating_point() else as_int64(name, labels)


def as_labeled_rows(
    rows: Any, labels: Any, device: torch.device | None, names: tuple[str, str], columns: bool = False
) -> tuple[Tensor, Tensor]:
    # rows: (N, D)  labels: as in as_labels  ->  (N, D) floating, (N,) or (N, L) int64 or floating
    rows = as_embeddings(names[0], as_tensor(names[0], rows, device))
    labels = as_labels(names[1], as_tensor(names[1], labels, device), columns)
    if rows.shape[0] != labels.shape[0]:
        checks.check_consistent_length(**dict(zip(names, (rows, labels), strict=True)))
    return rows, labels


MAX_REFERENCES = 2**31 - 1  # columns and ranks are int32


def check_count(references: int) -> None:
    if references > MAX_REFERENCES:
        raise ValueError(
            f"reference: got {references} rows, wanted at most {MAX_REFERENCES}; search subsets, or distribute them "
            "over processes"
        )


def check_self_index(self_index: Tensor, queries: int, references: int) -> Tensor:
    # self_index: (Q,) integer  ->  (Q,) int64, -1 = none; reads the values
    checks.shape("self_index", self_index, queries)
    checks.integral("self_index", self_index)
    if queries and (highest := int(self_index.max())) >= references:
        raise ValueError(f"self_index: got {highest}, wanted -1 to {references - 1}")
    return self_index.long().clamp(min=-1)


def both_or_neither(**pair: Any) -> None:
    """Raise a ValueError if one of two arguments is None and the other is not."""
    missing = [name for name, value in pair.items() if value is None]
    if len(missing) == 1:
        raise ValueError(f"{missing[0]}: got None, wanted both {' and '.join(pair)} or neither")


def promote_dtypes(query: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both tensors to one dtype, as user-defined functions expect; equal inputs stay one tensor."""
    dtype = torch.promote_types(query.dtype, reference.dtype)
    return query.to(dtype), reference.to(dtype)


def check_finite(**tensors: Tensor) -> None:
    """Raise a ValueError for NaN and infinity. Synchronizes with the device."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not _is_finite(tensor):
            _check_rows(name, tensor, lambda rows: ~finite_rows(rows), "NaN or infinity", "finite values")


def _is_finite(rows: Tensor) -> bool:
    if not rows.numel():
        return True
    return all(bool(chunk.abs().amax() < torch.inf) for chunk in rows.split(rows_per_chunk(rows)))


def finite_rows(rows: Tensor) -> Tensor:
    # rows: (N, ...)  ->  (N,) bool
    """Return whether all values of a row are finite."""
    rows = rows.flatten(1)
    if not rows.is_floating_point() or not rows.shape[1]:
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    # amax propagates NaN and infinity; a sum of x * 0 does not under torch.compile, and `isfinite` of every entry
    # takes eight times as long.
    return rows.abs().amax(1) < torch.inf


def check_squares(**tensors: Tensor) -> None:
    """Raise a ValueError if squares of float64 values over- or underflow. Synchronizes with the device."""
    low, high = 2.0**-400, 2.0**400  # with a margin for sums, and for differences of nearly equal values

    def out_of_range(rows: Tensor) -> Tensor:
        largest = rows.abs().amax(1)
        return (largest > 0) & (largest < torch.inf) & ((largest < low) | (largest > high))

    expected = f"a largest value of {low:.0e} to {high:.0e} in each; multiply all embeddings by one number"
    for name, rows in tensors.items():
        if rows.dtype == torch.float64 and rows.shape[1]:
            _check_rows(name, rows, out_of_range, "values whose squares leave the range of float64", expected)


def _check_rows(name: str, rows: Tensor, is_invalid: Callable[[Tensor], Tensor], problem: str, expected: str) -> None:
    # is_invalid: (n, ...)  ->  (n,) bool
    chunks = rows.unsqueeze(-1).flatten(1).split(rows_per_chunk(rows))
    invalid = torch.cat([is_invalid(chunk) for chunk in chunks])
    if invalid.any():
        raise ValueError(
            f"{name}: {int(invalid.sum())} of {len(invalid)} rows hold {problem}, the first is row "
            f"{int(invalid.nonzero()[0])}; wanted {expected}"
        )


def comparable_labels(query_labels: Tensor, reference_labels: Tensor) -> tuple[Tensor, Tensor]:
    # (Q[, L]), (N[, L])  ->  labels of a common dtype with exact equality
    labels = (query_labels, reference_labels)
    if query_labels.shape[1:] != reference_labels.shape[1:]:
        raise ValueError(
            f"query_labels and reference_labels: got shapes {tuple(query_labels.shape)} and "
            f"{tuple(reference_labels.shape)}, wanted the same number of columns"
        )
    dtype = torch.promote_types(*(values.dtype for values in labels))
    if query_labels.is_floating_point() != reference_labels.is_floating_point():
        dtype = torch.float64
        if any((values.double().abs() >= 2**53).any() for values in labels if not values.is_floating_point()):
            raise ValueError(
                f"query_labels and reference_labels: got {query_labels.dtype} and {reference_labels.dtype} with "
                "integers of 2**53 or more, wanted both as integers"
            )
    return query_labels.to(dtype), reference_labels.to(dtype)


def check_budget(memory_budget: int | None) -> int | None:
    return None if memory_budget is None else checks.check_int("memory_budget", memory_budget, 1)


def budget(memory_budget: int | None, device: torch.device) -> int:
    """Return the bytes that temporary tensors may take, by default 256 MiB on a CPU and 1 GiB elsewhere."""
    return check_budget(memory_budget) or (2**28 if device.type == "cpu" else 2**30)


class ShardLayout(NamedTuple):
    """Numbers of queries and references of each rank, if rows stay on several ranks, in the order of ranks.

    group: the ranks, None = all; memory: the smallest memory budget of all ranks; cache: neighbors of the local
    queries, (n, k), after the search.
    """

    query: list[int]
    reference: list[int]
    group: ProcessGroup | None
    memory: int
    cache: dict[str, Tensor]

    def local(self, sizes: list[int]) -> slice:
        # sizes: `query` or `reference`
        """Return the slice of all queries or references that are on this rank."""
        rank = torch.distributed.get_rank(self.group)
        return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


class Status(NamedTuple):
    """Word in which kernels note facts about values, for the host to read once, at the end of a `compute`.

    check: raises the ValueError for values that are not finite.
    """

    word: Tensor  # (2,) int32: bits, and the largest number of relevant references
    check: Callable[[], None]


class Stream(NamedTuple):
    """References that are read in blocks, and the file that keeps partial results.

    group: processes that each read a part and exchange their results; None = this process reads all references.
    """

    source: EmbeddingSource
    state: State | None
    group: ProcessGroup | None = None


class RetrievalInputs(NamedTuple):
    """Queries and references of one evaluation.

    query (Q, D), reference (N, D) floating; query_labels (Q,) or (Q, L), reference_labels (N,) or (N, L).
    shared: number of leading queries that are also the leading references, and no neighbors of themselves.
    query_index (Q,) int64: the reference that is the query itself, -1 = none; replaces `shared` for other orders.
    ignore, gains: as in `positive_ranks`.
    layout: if given, query and reference hold only the rows of this rank; all other fields cover all ranks.
    stream: the references, if they are read in blocks; `reference` is then empty.
    status: for checks that are left to kernels.
    """

    query: Tensor
    query_labels: Tensor
    reference: Tensor
    reference_labels: Tensor
    shared: int
    ignore: Ignore | None = None
    gains: Gains | None = None
    query_index: Tensor | None = None
    layout: ShardLayout | None = None
    stream: Stream | None = None
    status: Status | None = None

    def self_index(self) -> Tensor:
        # ->  (Q,) int64, index of the reference that is the query itself, -1 = none
        if self.query_index is not None:
            return self.query_index
        rows = torch.arange(len(self.query_labels), device=self.query_labels.device)
        return torch.where(rows < self.shared, rows, -1)

    def with_options(
        self,
        *,
        cameras: tuple[Any, Any] = (None, None),
        self_index: Any = None,
        gains: Any = None,
        ignore: Any = None,
    ) -> "RetrievalInputs":
        """Add the options that determine candidates and their gains; arrays and lists become tensors."""
        device, shape, inputs = self.query.device, (len(self.query_labels), len(self.reference_labels)), self
        if any(group is not None for group in cameras):
            names = "query_cameras", "reference_cameras"
            both_or_neither(**dict(zip(names, cameras, strict=True)))
            groups = as_tensor(names[0], cameras[0], device), as_tensor(names[1], cameras[1], device)
            for name, group, length in zip(names, groups, shape, strict=True):
                checks.shape(name, group, length)
            inputs = inputs._replace(ignore=groups)
        if ignore is not None and inputs.ignore is not None:
            raise ValueError("ignore: got some together with cameras, wanted one of them")
        if isinstance(ignore, tuple):
            names = ("ignore: query groups", "ignore: reference groups")
            ignore = tuple(as_tensor(name, group, device) for name, group in zip(names, ignore, strict=True))
        elif ignore is not None and not callable(ignore):
            ignore = as_tensor("ignore", ignore, device)
        if self_index is not None:
            self_index = check_self_index(as_tensor("self_index", self_index, device), len(self.query), shape[1])
            inputs = inputs._replace(shared=0, query_index=self_index)
        if are_triples(gains):
            gains = tuple(as_tensor("gains", column, device) for column in gains)
        elif gains is not None and not callable(gains):
            gains = as_tensor("gains", gains, device)
        return inputs._replace(gains=gains, ignore=inputs.ignore if ignore is None else ignore)

    def select_queries(self, queries: Tensor) -> "RetrievalInputs":
        # queries: (q,) int64, rows of this rank
        """Return the inputs restricted to a subset of the queries."""
        ignore, gains = self.ignore, self.gains
        if isinstance(ignore, tuple):
            ignore = ignore[0][queries], ignore[1]
        elif isinstance(ignore, Tensor):
            ignore = ignore[queries]
        elif ignore is not None:
            ignore_fn, indices = ignore, queries.tolist()
            ignore = lambda rows: torch.cat([ignore_fn(slice(i, i + 1)) for i in indices[rows]])  # noqa: E731
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
            query_index=self.self_index()[queries],
        )

    def all_shared(self) -> bool:
        """Return whether the leading references are the queries, in order."""
        return self.query_index is None and self.shared == len(self.query_labels)


def as_inputs(
    query: Any,
    query_labels: Any,
    reference: Any = None,
    reference_labels: Any = None,
    *,
    ref_includes_query: bool = False,
    device: torch.device | None = None,
    columns: bool = False,
    is_finite: bool = True,
) -> RetrievalInputs:
    # reference: rows, or a Stream of them
    """Check queries and references and convert them to tensors.

    Without references, queries are scored against each other. device: of the results, None: that of the arguments.
    columns: labels may have several. is_finite: NaN and infinity are a ValueError.
    """
    both_or_neither(reference=reference, reference_labels=reference_labels)
    given, query = query, query.read(0, len(query)) if isinstance(query, EmbeddingSource) else query
    query, query_labels = as_labeled_rows(query, query_labels, device, ("query", "query_labels"), columns)
    if is_finite:
        check_finite(query=query, query_labels=query_labels)
    check_squares(query=query)
    if reference is None:
        return RetrievalInputs(query, query_labels, query, query_labels, len(query))
    if isinstance(reference, Stream):
        stream, rows = reference, query[:0]
        labels = _labels_of_stream(stream.source, query, reference_labels, columns)
    else:
        stream, names = None, ("reference", "reference_labels")
        rows = query if reference is given else reference
        rows, labels = as_labeled_rows(rows, reference_labels, device, names, columns)
        checks.shape("reference", rows, "N", query.shape[1])
    if is_finite:
        check_finite(reference=rows, reference_labels=labels)
    if rows is not query:
        check_squares(reference=rows)
    query_labels, labels = comparable_labels(query_labels, labels)
    if ref_includes_query:
        head = rows if stream is None else stream.source.read(0, min(len(query), len(labels))).to(query.device)
        _check_prefix(query, query_labels, as_embeddings("reference", head), labels)
    shared = len(query) if ref_includes_query else 0
    return RetrievalInputs(query, query_labels, rows, labels, shared, stream=stream)


def _labels_of_stream(source: EmbeddingSource, query: Tensor, labels: Any, columns: bool) -> Tensor:
    # query: (Q, D)  ->  (N[, L])
    if source.shape[1] != query.shape[1]:
        raise ValueError(f"reference: got shape {tuple(source.shape)}, wanted (N, {query.shape[1]})")
    labels = as_labels("reference_labels", as_tensor("reference_labels", labels, query.device), columns)
    checks.check_consistent_length(reference=source, reference_labels=labels)
    return labels


def _check_prefix(query: Tensor, query_labels: Tensor, reference: Tensor, reference_labels: Tensor) -> None:
    # query: (Q, D)  query_labels: (Q[, L])  reference: (N, D)  reference_labels: (N[, L])
    head, head_labels = reference[: len(query)], reference_labels[: len(query)]
    if len(head) < len(query):
        raise ValueError(
            f"ref_includes_query: got {len(query)} queries and {len(reference)} references, wanted references that "
            "begin with the queries"
        )
    is_equal = (head_labels == query_labels).unsqueeze(-1).flatten(1).all(1)
    for rows, *chunks in zip(*(tensor.split(rows_per_chunk(head)) for tensor in (is_equal, head, query)), strict=True):
        rows &= torch.isclose(chunks[0], chunks[1].to(head.dtype)).all(1)
    if not is_equal.all():
        raise ValueError(
            f"ref_includes_query: row {int((~is_equal).nonzero()[0])} of reference or reference_labels differs from "
            "the query's, wanted references that begin with the queries"
        )
