"""Arguments and results of AccuracyCalculator: queries and references, functions and their values."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ..inputs import (
    RetrievalInputs,
    Stream,
    as_embeddings,
    as_gains,
    as_labeled_rows,
    as_labels,
    as_tensor,
    both_or_neither,
    check_finite,
    check_self_index,
    check_squares,
    comparable_labels,
    rows_per_chunk,
)
from ..sources.source import EmbeddingSource


def default_device(rows: Any) -> torch.device:
    """Return the device of the rows, if that is no CPU, else the current CUDA device if there is one."""
    if isinstance(rows, Tensor) and rows.device.type != "cpu":
        return rows.device
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def as_inputs(
    query: Any,
    query_labels: Any,
    reference: Any,
    reference_labels: Any,
    ref_includes_query: bool,
    device: torch.device,
    columns: bool,
) -> RetrievalInputs:
    # reference: rows, or a Stream of them
    """Check queries and references and convert them to tensors.

    Without references, queries are scored against each other.
    """
    both_or_neither(reference=reference, reference_labels=reference_labels)
    query = query.read(0, len(query)) if isinstance(query, EmbeddingSource) else query
    query, query_labels = as_labeled_rows(query, query_labels, device, ("query", "query_labels"), columns)
    check_finite(query=query, query_labels=query_labels)
    check_squares(query=query)
    if reference is None:
        return RetrievalInputs(query, query_labels, query, query_labels, len(query))
    if isinstance(reference, Stream):
        return _streamed_inputs(query, query_labels, reference, reference_labels, ref_includes_query, columns)
    names = ("reference", "reference_labels")
    reference, reference_labels = as_labeled_rows(reference, reference_labels, device, names, columns)
    checks.shape("reference", reference, "N", query.shape[1])
    check_finite(reference=reference, reference_labels=reference_labels)
    check_squares(reference=reference)
    query_labels, reference_labels = comparable_labels(query_labels, reference_labels)
    if ref_includes_query:
        _check_prefix(query, query_labels, reference, reference_labels)
    return RetrievalInputs(query, query_labels, reference, reference_labels, len(query) if ref_includes_query else 0)


def _streamed_inputs(
    query: Tensor, query_labels: Tensor, stream: Stream, labels: Any, ref_includes_query: bool, columns: bool
) -> RetrievalInputs:
    # query: (Q, D)  query_labels: (Q[, L])
    source = stream.source
    if source.shape[1] != query.shape[1]:
        raise ValueError(f"reference: got shape {tuple(source.shape)}, wanted (N, {query.shape[1]})")
    labels = as_labels("reference_labels", as_tensor("reference_labels", labels, query.device), columns)
    checks.check_consistent_length(reference=source, reference_labels=labels)
    check_finite(reference_labels=labels)
    query_labels, labels = comparable_labels(query_labels, labels)
    if ref_includes_query:
        head = source.read(0, min(len(query), len(source))).to(query.device)
        _check_prefix(query, query_labels, as_embeddings("reference", head), labels)
    shared = len(query) if ref_includes_query else 0
    return RetrievalInputs(query, query_labels, query[:0], labels, shared, stream=stream)


def with_options(
    inputs: RetrievalInputs,
    *,
    cameras: tuple[Any, Any] = (None, None),
    self_index: Any = None,
    gains: Any = None,
    ignore: Any = None,
) -> RetrievalInputs:
    """Add the options that determine candidates and their gains; arrays and lists become tensors."""
    device, references = inputs.query.device, len(inputs.reference_labels)
    if any(group is not None for group in cameras):
        inputs = inputs.ignoring(_as_groups(cameras, (len(inputs.query_labels), references), device))
    if isinstance(ignore, tuple):
        names = ("ignore: query groups", "ignore: reference groups")
        ignore = tuple(as_tensor(name, group, device) for name, group in zip(names, ignore, strict=True))
    elif ignore is not None and not callable(ignore):
        ignore = as_tensor("ignore", ignore, device)
    if self_index is not None:
        self_index = as_tensor("self_index", self_index, device)
        inputs = inputs._replace(shared=0, query_index=check_self_index(self_index, len(inputs.query), references))
    return inputs._replace(gains=as_gains(gains, device)).ignoring(ignore)


def _as_groups(groups: tuple[Any, Any], lengths: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    names = ("query_cameras", "reference_cameras")
    both_or_neither(**dict(zip(names, groups, strict=True)))
    query_groups, reference_groups = (as_tensor(name, group, device) for name, group in zip(names, groups, strict=True))
    for name, group, length in zip(names, (query_groups, reference_groups), lengths, strict=True):
        checks.shape(name, group, length)
    return query_groups, reference_groups


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


def call_functions(functions: dict[str, Callable], args: dict[str, Any]) -> dict[str, Any]:
    """Call each function with the arguments that it names, and return the values."""
    values = {}
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        values[name] = function(**(args if takes_all else {key: args[key] for key in parameters if key in args}))
    return values


def to_floats(values: dict[str, Any]) -> dict[str, Any]:
    """Convert tensors to floats and lists of floats, by one transfer to the host."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    result, flat = dict(values), []
    if tensors:
        device = next(iter(tensors.values())).device
        flat = torch.cat([tensor.to(device, torch.float64).flatten() for tensor in tensors.values()]).tolist()
    for name, tensor in tensors.items():
        result[name], flat = (flat[: tensor.numel()], flat[tensor.numel() :]) if tensor.ndim else (flat[0], flat[1:])
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in result.items()}
