"""Verification metrics: decide by distance whether two items have the same label, for all pairs."""

import itertools
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ..inputs import as_inputs, both_or_neither, budget
from ..ranking.listed_pairs import MAX_PAIRS, MAX_PAIRS_ON_GPU, PAIR, ListedPairs
from ..ranking.pairs import Condition, ItemPairs, Threshold
from ..search.distance import DISTANCES, DistanceName

FAR = (1e-4, 1e-3, 1e-2, 1e-1)


class OperatingPoints(NamedTuple):
    """ROC curve of pairs, float64: pairs nearer than `threshold` are accepted.

    far (..., F): the false accept rate, the fraction of pairs of different labels that are accepted; at most the
        requested one.
    tar (..., F): the true accept rate, the fraction of pairs of the same label that are accepted.
    threshold (..., F): a distance, or for "ip" a similarity, higher for nearer pairs; inf (-inf for "ip") accepts all.
    auroc (...): the area under the curve.
    equal_error_rate (...): the false accept rate at which as many pairs of the same label are rejected.
    """

    far: Tensor
    tar: Tensor
    threshold: Tensor
    auroc: Tensor
    equal_error_rate: Tensor


RATES = ("far", "tar", "threshold")  # fields with a value for each requested rate


@takes_arrays
@torch.no_grad()
def pairwise_roc(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    far: Sequence[float] = FAR,
    distance: DistanceName = "l2",
    memory_budget: int | None = None,
) -> OperatingPoints:
    """Compute the ROC curve of pairs of items, its area and its equal error rate.

    Its points are those of the largest false accept rates that do not exceed `far` (F of them).

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (..., F)
    each, (...) for `auroc` and `equal_error_rate`.

    Pairs consist of a query and a reference, or, without references, of two queries. Every pair is counted and no list
    of pairs is kept: time O(Q N D), memory within the budget. Pairs at equal distance are accepted together. NaN
    without pairs of the same label or of different labels. `distance`: "l2", "sqeuclidean", "ip" or "cosine";
    `memory_budget` as in `TorchKNN`. ValueError for incompatible arguments, NaN and infinity. Fawcett,
    An Introduction to ROC Analysis, 2006, DOI 10.1016/j.patrec.2005.10.010.

        >>> x, y = torch.tensor([[0.0], [1.0], [3.0], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> pairwise_roc(x, y, far=(0.0, 0.5)).tar
        tensor([1., 1.], dtype=torch.float64)
    """
    inputs = query, query_labels, reference, reference_labels
    return OperatingPoints(*_curve_of(inputs, check_rates(far), distance, memory_budget, OperatingPoints._fields))


@takes_arrays
@torch.no_grad()
def tar_at_far(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    far: float | Sequence[float] = 1e-3,
    distance: DistanceName = "l2",
    memory_budget: int | None = None,
) -> Tensor:
    """Compute the true accept rate at a false accept rate of at most `far`.

    It is the fraction of pairs of the same label that are accepted by the largest threshold of distance that accepts at
    most the fraction `far` of pairs of different labels.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...), or
    (..., F) for F rates.

    Arguments as in `pairwise_roc`, which also gives the thresholds. In [0, 1], higher is better, float64.

        >>> x, y = torch.tensor([[0.0], [1.0], [3.0], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> tar_at_far(x, y, far=0.1)
        tensor(1., dtype=torch.float64)
    """
    inputs, rates = (query, query_labels, reference, reference_labels), check_rates(rates_of(far))
    (tar,) = _curve_of(inputs, rates, distance, memory_budget, ("tar",))
    return tar[..., 0] if is_one_rate(far) else tar


@takes_arrays
@torch.no_grad()
def equal_error_rate(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    distance: DistanceName = "l2",
    memory_budget: int | None = None,
) -> Tensor:
    """Compute the error rate of the threshold with equal false reject and false accept rates.

    If no threshold has equal rates, the value is interpolated linearly between the two adjacent thresholds.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...).

    Arguments as in `pairwise_roc`. In [0, 1], lower is better, 1/2 by chance, (...) float64.

        >>> x, y = torch.tensor([[0.0], [1.0], [1.5], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> equal_error_rate(x, y)
        tensor(0.5000, dtype=torch.float64)
    """
    inputs = query, query_labels, reference, reference_labels
    return _curve_of(inputs, (), distance, memory_budget, ("equal_error_rate",))[0]


@takes_arrays
@torch.no_grad()
def pairwise_auroc(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    distance: DistanceName = "l2",
    memory_budget: int | None = None,
) -> Tensor:
    """Compute the area under the ROC curve of pairs of items.

    It is the probability that a pair of the same label is nearer than one of different labels, plus half the
    probability of equal distances.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...).

    The value is exact for all pairs, in bounded memory: pairs of different labels are counted between the sorted
    distances of the others. Arguments as in `pairwise_roc`. In [0, 1], higher is better, 1/2 by chance, (...) float64,
    NaN without pairs of the same label or of different labels.

        >>> x, y = torch.tensor([[0.0], [1.0], [1.5], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> pairwise_auroc(x, y)
        tensor(0.6250, dtype=torch.float64)
    """
    inputs = query, query_labels, reference, reference_labels
    return _curve_of(inputs, (), distance, memory_budget, ("auroc",))[0]


def curve_of_pairs(
    pairs: ItemPairs | ListedPairs, far: Sequence[float], distance: DistanceName, fields: Sequence[str]
) -> Tensor:
    # ->  (..., K) float64: the fields of `OperatingPoints` side by side, F columns for each of RATES, else one
    columns = {"auroc": pairs.concordance()[..., None]} if "auroc" in fields else {}
    if len(columns) < len(fields):
        is_known = pairs.total.all(-1)[..., None]
        if is_known.any():
            values = _read_points(pairs, pairs.first(conditions_of(pairs, far, fields)), distance, fields)
            columns |= {name: value.where(is_known, torch.nan) for name, value in values.items() if name in fields}
        else:
            nan = torch.full_like(is_known, torch.nan, dtype=torch.float64)
            widths = {name: len(far) if name in RATES else 1 for name in fields}
            columns = {name: nan.expand(*nan.shape[:-1], width) for name, width in widths.items()}
    return torch.cat([columns[name] for name in fields], -1) if len(fields) > 1 else columns[fields[0]]


def _read_points(
    pairs: ItemPairs | ListedPairs, points: list[Threshold], distance: DistanceName, fields: Sequence[str]
) -> dict[str, Tensor]:
    # ->  name: (..., F) or (..., 1)
    """Read scores off the points of `_conditions`."""
    columns = {"equal_error_rate": _equal_error(pairs, points.pop())[..., None]} if "equal_error_rate" in fields else {}
    if points:
        below = torch.stack([point.below for point in points], -2).double() / pairs.total[..., None, :]
        columns["far"], columns["tar"] = below[..., 1], below[..., 0]
        reached = torch.stack([point.distance for point in points], -1)
        columns["threshold"] = DISTANCES[distance].from_canonical(reached)
    return columns


def conditions_of(pairs: ItemPairs | ListedPairs, far: Sequence[float], fields: Sequence[str]) -> list[Condition]:
    """Return what first holds where each false accept rate is exceeded, then where the two error rates meet."""
    same, different = pairs.total[..., None].double().unbind(-2)

    def exceeds(rate: float) -> Condition:
        return lambda _, accepted: accepted.double() / different > rate

    conditions = [exceeds(rate) for rate in far]
    if "equal_error_rate" in fields:
        conditions.append(lambda a, b: a.double() / same + b.double() / different >= 1)
    return conditions


def _equal_error(pairs: ItemPairs | ListedPairs, point: Threshold) -> Tensor:
    # ->  (...)
    before, after = (part.double() / pairs.total for part in (point.below, point.through))
    # False reject rate minus false accept rate before the pairs at this distance, and its negative after them.
    gap, left = 1 - before.sum(-1), after.sum(-1) - 1
    return before[..., 1] + gap / (gap + left) * (after[..., 1] - before[..., 1])


def is_one_rate(far: float | Sequence[float]) -> bool:
    return isinstance(far, numbers.Real) or isinstance(far, Tensor) and far.ndim == 0


def rates_of(far: float | Sequence[float]) -> Sequence[float]:
    return (cast(float, far),) if is_one_rate(far) else cast("Sequence[float]", far)


def check_rates(far: Sequence[float]) -> tuple[float, ...]:
    if is_one_rate(far):
        rate = float(cast(float, far))
        raise TypeError(f"far: got {rate}, wanted a sequence of rates; write [{rate}]")
    for rate in far:
        if not 0 <= rate <= 1:
            raise ValueError(f"far: got {rate!r}, wanted rates in [0, 1]")
    if not len(far):
        raise ValueError("far: got none, wanted at least one rate")
    return tuple(map(float, far))


def _curve_of(
    inputs: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    far: tuple[float, ...],
    distance: DistanceName,
    memory_budget: int | None,
    fields: tuple[str, ...],
) -> list[Tensor]:
    """Return fields of the curve of each item of the batch.

    The pairs of small items are listed, in chunks of items within the memory budget.
    """
    query, query_labels, reference, reference_labels = inputs
    checks.check_choice("distance", distance, DISTANCES)
    checks.shape("query", query, "...", "Q", "D")
    both_or_neither(reference=reference, reference_labels=reference_labels)
    batch_shape, args = query.shape[:-2], {"query": query, "query_labels": query_labels}
    expected: tuple[tuple[Any, ...], ...] = (("Q", "D"), (query.shape[-2],))
    if reference is not None and reference_labels is not None:
        args |= {"reference": reference, "reference_labels": reference_labels}
        expected += (("N", query.shape[-1]), reference.shape[-2:-1])
    for (name, tensor), shape in zip(args.items(), expected, strict=True):
        checks.shape(name, tensor, *batch_shape, *shape)
    checks.same_device(**args)
    kind, queries = DISTANCES[distance], query.shape[-2]
    width = sum(len(far) if name in RATES else 1 for name in fields)
    num_pairs = queries * (queries - 1) // 2 if reference is None else queries * reference.shape[-2]
    if not batch_shape or num_pairs > MAX_PAIRS.get(query.device.type, MAX_PAIRS_ON_GPU):
        values = query.new_empty((*batch_shape, width), dtype=torch.float64)
        for item in itertools.product(*map(range, batch_shape)):
            pairs = ItemPairs(as_inputs(*(tensor[item] for tensor in args.values())), kind, memory_budget)
            values[item] = curve_of_pairs(pairs, far, distance, fields)
        return split_fields(values, len(far), fields)
    if not num_pairs or not batch_shape.numel():
        return split_fields(query.new_full((*batch_shape, width), torch.nan, dtype=torch.float64), len(far), fields)
    items = as_inputs(*(tensor.flatten(0, len(batch_shape)) for tensor in args.values()))
    rows = [items.query, items.query_labels]
    if reference is not None:
        rows += [items.reference, items.reference_labels]
    memory = budget(memory_budget, query.device)
    chunk_size = max(memory // (PAIR * num_pairs), 1)
    chunks = zip(*(tensor.unflatten(0, (batch_shape.numel(), -1)).split(chunk_size) for tensor in rows), strict=True)
    listed = (ListedPairs(*chunk, distance=kind, memory=memory // 4) for chunk in chunks)
    values = torch.cat([curve_of_pairs(pairs, far, distance, fields) for pairs in listed]).view(*batch_shape, width)
    return split_fields(values, len(far), fields)


def split_fields(columns: Tensor, rates: int, fields: Sequence[str]) -> list[Tensor]:
    # columns: (..., K)  ->  (..., F) for each of RATES, else (...)
    parts = columns.split([rates if name in RATES else 1 for name in fields], -1)
    return [part if name in RATES else part[..., 0] for name, part in zip(fields, parts, strict=True)]
