"""Verification metrics: decide by distance whether two items have the same label, for all pairs."""

import itertools
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import check_draws
from ...core.results.estimates import Estimate
from ...core.results.plots import direction_text, plot_curves, steps_of
from ..inputs import (
    RetrievalInputs,
    as_embeddings,
    both_or_neither,
    budget,
    check_finite,
    check_squares,
    comparable_labels,
)
from ..ranking.listed_pairs import PAIR, ListedPairs, may_be_listed, number_of_pairs
from ..ranking.pair_curves import Curve, resampled_curve
from ..ranking.pairs import Condition, Pairs, Threshold
from ..search.distance import DISTANCES, DistanceName
from .embedding_metric import EmbeddingMetric, EmbeddingOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    return OperatingPoints(*_curve_of(inputs, _check_rates(far), distance, memory_budget, OperatingPoints._fields))


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
    inputs, rates = (query, query_labels, reference, reference_labels), _check_rates(_rates(far))
    (tar,) = _curve_of(inputs, rates, distance, memory_budget, ("tar",))
    return tar[..., 0] if _is_one(far) else tar


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


def _curve(pairs: Pairs | ListedPairs, far: Sequence[float], distance: DistanceName, fields: Sequence[str]) -> Tensor:
    # ->  (..., K) float64: the fields of `OperatingPoints` side by side, F columns for each of RATES, else one
    columns = {"auroc": pairs.concordance()[..., None]} if "auroc" in fields else {}
    if len(columns) < len(fields):
        is_known = pairs.total.all(-1)[..., None]
        if is_known.any():
            values = _read_points(pairs, pairs.first(_conditions(pairs, far, fields)), distance, fields)
            columns |= {name: value.where(is_known, torch.nan) for name, value in values.items() if name in fields}
        else:
            nan = torch.full_like(is_known, torch.nan, dtype=torch.float64)
            widths = {name: len(far) if name in RATES else 1 for name in fields}
            columns = {name: nan.expand(*nan.shape[:-1], width) for name, width in widths.items()}
    return torch.cat([columns[name] for name in fields], -1) if len(fields) > 1 else columns[fields[0]]


def _read_points(
    pairs: Pairs | ListedPairs, points: list[Threshold], distance: DistanceName, fields: Sequence[str]
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


def _conditions(pairs: Pairs | ListedPairs, far: Sequence[float], fields: Sequence[str]) -> list[Condition]:
    """Return what first holds where each false accept rate is exceeded, then where the two error rates meet."""
    same, different = pairs.total[..., None].double().unbind(-2)

    def exceeds(rate: float) -> Condition:
        return lambda _, accepted: accepted.double() / different > rate

    conditions = [exceeds(rate) for rate in far]
    if "equal_error_rate" in fields:
        conditions.append(lambda a, b: a.double() / same + b.double() / different >= 1)
    return conditions


def _equal_error(pairs: Pairs | ListedPairs, point: Threshold) -> Tensor:
    # ->  (...)
    before, after = (part.double() / pairs.total for part in (point.below, point.through))
    # False reject rate minus false accept rate before the pairs at this distance, and its negative after them.
    gap, left = 1 - before.sum(-1), after.sum(-1) - 1
    return before[..., 1] + gap / (gap + left) * (after[..., 1] - before[..., 1])


def _is_one(far: float | Sequence[float]) -> bool:
    return isinstance(far, numbers.Real) or isinstance(far, Tensor) and far.ndim == 0


def _rates(far: float | Sequence[float]) -> Sequence[float]:
    return (cast(float, far),) if _is_one(far) else cast("Sequence[float]", far)


def _check_rates(far: Sequence[float]) -> tuple[float, ...]:
    if _is_one(far):
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
    num_pairs = number_of_pairs(queries, None if reference is None else reference.shape[-2])
    if not batch_shape or not may_be_listed(num_pairs, query.device):
        values = query.new_empty((*batch_shape, width), dtype=torch.float64)
        for item in itertools.product(*map(range, batch_shape)):
            pairs = Pairs(_as_inputs(*(tensor[item] for tensor in args.values())), kind, memory_budget)
            values[item] = _curve(pairs, far, distance, fields)
        return _split(values, len(far), fields)
    if not num_pairs or not batch_shape.numel():
        return _split(query.new_full((*batch_shape, width), torch.nan, dtype=torch.float64), len(far), fields)
    items = _as_inputs(*(tensor.flatten(0, len(batch_shape)) for tensor in args.values()))
    rows = [items.query, items.query_labels]
    if reference is not None:
        rows += [items.reference, items.reference_labels]
    memory = budget(memory_budget, query.device)
    chunk_size = max(memory // (PAIR * num_pairs), 1)
    chunks = zip(*(tensor.unflatten(0, (batch_shape.numel(), -1)).split(chunk_size) for tensor in rows), strict=True)
    listed = (ListedPairs(*chunk, distance=kind, memory=memory // 4) for chunk in chunks)
    values = torch.cat([_curve(pairs, far, distance, fields) for pairs in listed]).view(*batch_shape, width)
    return _split(values, len(far), fields)


def _split(columns: Tensor, rates: int, fields: Sequence[str]) -> list[Tensor]:
    # columns: (..., K)  ->  (..., F) for each of RATES, else (...)
    parts = columns.split([rates if name in RATES else 1 for name in fields], -1)
    return [part if name in RATES else part[..., 0] for name, part in zip(fields, parts, strict=True)]


def _as_inputs(
    query: Tensor, query_labels: Tensor, reference: Tensor | None = None, labels: Tensor | None = None
) -> RetrievalInputs:
    query = as_embeddings("query", query)
    check_finite(query=query, query_labels=query_labels)
    check_squares(query=query)
    if reference is None or labels is None:
        return RetrievalInputs(query, query_labels, query, query_labels, len(query))
    reference = as_embeddings("reference", reference)
    check_finite(reference=reference, reference_labels=labels)
    check_squares(reference=reference)
    query_labels, labels = comparable_labels(query_labels, labels)
    return RetrievalInputs(query, query_labels, reference, labels, 0)


class PairMetric(EmbeddingMetric):
    """Base class of scores of all pairs of items, or of queries and references; see `EmbeddingMetric`.

    If the items are on several ranks, each holds all of them and counts a part of the pairs. `interval` weights a pair
    by the product of the weights of its items, including references (Owen & Eckles 2012, doi:10.1214/12-AOAS547);
    `groups` such as persons apply to queries and references. The curve of a replicate is evaluated in some hundred bins
    of distance, in memory of O(R N); for many pairs the product (1 + a)(1 + b) is approximated by 1 + a + b. In
    simulations with 50 to 500 items intervals contain the true value in 94 % or more of data sets; false accept rates
    below that of one pair of the data carry little information.
    """

    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0
    fields: tuple[str, ...] = OperatingPoints._fields  # of the curve
    rates: tuple[float, ...] = ()

    def __init__(
        self, distance: DistanceName = "l2", *, memory_budget: int | None = None, **kwargs: Unpack[EmbeddingOptions]
    ) -> None:
        super().__init__(**kwargs)
        checks.check_choice("distance", distance, DISTANCES)
        if memory_budget is not None:
            checks.check_int("memory_budget", memory_budget, 1)
        self.distance, self.memory_budget = distance, memory_budget

    @torch.no_grad()
    def compute(self) -> Any:
        values = _split(_curve(self.pairs(), self.rates, self.distance, self.fields), len(self.rates), self.fields)
        return self.result(dict(zip(self.fields, values, strict=True)))

    def result(self, values: dict[str, Tensor]) -> Any:
        # values: name of a field: (..., F) or (...)
        """Return the one field of the curve that is the score."""
        return values[self.fields[0]]

    def read(self, curve: Curve) -> Any:
        """Compute the score of a curve, or of a batch of curves."""
        tar, threshold = curve.rates_at(self.rates)
        threshold = DISTANCES[self.distance].from_canonical(threshold)
        rest = {"auroc": curve.area(), "equal_error_rate": curve.equal_error_rate()}
        return self.result({"tar": tar, "threshold": threshold, **rest})

    def points(self, pairs: Pairs) -> tuple[Sequence[float], list[Threshold]]:
        """Return the false accept rates that the score depends on, and the points where the curve must be exact."""
        conditions = _conditions(pairs, self.rates, self.fields)
        thresholds = pairs.first(conditions) if conditions else []
        if "equal_error_rate" not in self.fields:
            return self.rates, thresholds
        return (*self.rates, float(thresholds[-1].below[1] / pairs.total[1])), thresholds

    def pairs(self) -> Pairs:
        return self._pairs_of(self.stored_inputs()[0])

    def _pairs_of(self, inputs: RetrievalInputs) -> Pairs:
        several = self._is_synced and dist.is_initialized() and dist.get_world_size(self.process_group) > 1
        return Pairs(inputs, DISTANCES[self.distance], self.memory_budget, several, self.process_group)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        replicates, seed = check_draws(replicates, seed)
        inputs, queries = self.stored_inputs()
        pairs, names = self._pairs_of(inputs), queries.names_of_items(inputs.shared, inputs.reference_labels)
        return resampled_curve(pairs, names, self.points, self.read, self.value_range(), replicates, seed)


class EqualErrorRate(PairMetric):
    """Equal error rate of the pairs of all items; options as in `equal_error_rate`, and `store_dtype`."""

    higher_is_better = False
    fields = ("equal_error_rate",)


class PairwiseAUROC(PairMetric):
    """Area under the ROC curve of the pairs of all items; options as in `pairwise_auroc`, and `store_dtype`."""

    higher_is_better = True
    fields = ("auroc",)


class TARAtFAR(PairMetric):
    """True accept rate of the pairs of all items; options as in `tar_at_far`, and `store_dtype`.

    `far` may be a sequence of rates: values are then (F,).
    """

    higher_is_better = True
    fields = ("tar",)

    def __init__(
        self,
        far: float | Sequence[float] = 1e-3,
        distance: DistanceName = "l2",
        *,
        memory_budget: int | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        super().__init__(distance, memory_budget=memory_budget, **kwargs)
        self.rates = _check_rates(_rates(far))
        self.far = self.rates[0] if _is_one(far) else self.rates

    def result(self, values: dict[str, Tensor]) -> Tensor:
        return values["tar"] if isinstance(self.far, tuple) else values["tar"][..., 0]


class PairwiseROC(PairMetric):
    """ROC curve of the pairs of all items, `OperatingPoints` of (F,) each; options as in `pairwise_roc`.

    `interval` and `compare` return "tar", "threshold", "auroc" and "equal_error_rate" by name; `far` holds the
    requested rates. `TARAtFAR`, `PairwiseAUROC` and `EqualErrorRate` are names of its fields. `store_dtype` as in other
    metrics of embeddings.
    """

    higher_is_better = None
    plot_lower_bound = plot_upper_bound = None

    def __init__(
        self,
        far: Sequence[float] = FAR,
        distance: DistanceName = "l2",
        *,
        memory_budget: int | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        super().__init__(distance, memory_budget=memory_budget, **kwargs)
        self.far = self.rates = _check_rates(far)

    def result(self, values: dict[str, Tensor]) -> Any:
        return OperatingPoints(**values) if "far" in values else values

    def value_range(self) -> tuple[Tensor, Tensor]:
        bounded = torch.zeros(len(self.far), dtype=torch.float64, device=self.device)
        unbounded, rest = torch.full_like(bounded, torch.inf), bounded.new_zeros(2)
        return torch.cat([bounded, -unbounded, rest]), torch.cat([bounded + 1, unbounded, rest + 1])

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the true accept rate over the false accept rate, on a logarithmic axis.

        Args:
            val: Result of `compute`, `forward` or `interval`, or a list of results, one for each step, with a curve
                for each; default `compute()`, with intervals.
            ax: Axes to draw on; default those of a new figure.

        Returns:
            The figure and its axes. The x-coordinate of a point is its rate of `far`; 0 cannot be drawn.

        Raises:
            ImportError: Without matplotlib.
        """
        steps = steps_of(self._shown() if val is None else val)
        x = np.array(self.far)
        curves = {f"step {i}": (x, _with_ends(step)) for i, step in enumerate(steps)}
        figure, axes = plot_curves(curves, ("FAR at most", f"TAR{direction_text(True)}"), ax)
        axes.set_ylim(-0.03, 1.03)
        return figure, axes

    def _direction(self, name: str) -> bool | None:
        return {"tar": True, "auroc": True, "equal_error_rate": False}.get(name)


def _with_ends(points: OperatingPoints | Mapping[str, Estimate]) -> np.ndarray:
    # ->  (F, 3) true accept rates and ends of their intervals, NaN without intervals
    if isinstance(points, OperatingPoints):
        return np.stack([points.tar.cpu().numpy(), *[np.full(len(points.tar), np.nan)] * 2], 1)
    return np.stack([value.cpu().numpy() for value in points["tar"]], 1)
