"""Verification: do two items have the same label? Decided by their distance, for all pairs."""

import itertools
import numbers
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ... import _checks
from ..._checks import takes_arrays
from ..._plots import direction_text, plot_curves, steps_of
from ...uncertainty.engine.resampling import Resampled
from ...uncertainty.engine.weights import check_draws
from ...uncertainty.results.estimates import Estimate
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
from ..ranking.pairs import Condition, Found, Pairs
from ..search.distance import DISTANCES, DistanceName
from .embedding_metric import EmbeddingMetric, EmbeddingOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR = (1e-4, 1e-3, 1e-2, 1e-1)


class OperatingPoints(NamedTuple):
    """Points of the ROC curve of pairs, (..., F) float64 each: accepted are pairs nearer than `threshold`.

    far: the false accept rate there, the share of pairs of different labels that are accepted; at most what was asked.
    tar: the true accept rate, the share of pairs of the same label that are accepted.
    threshold: a distance, or for "ip" a similarity, of which more is nearer; inf (-inf for "ip"): all are accepted.
    """

    far: Tensor
    tar: Tensor
    threshold: Tensor


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
    """The ROC curve of pairs of items, at the largest false accept rates that do not exceed `far` (F of them).

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (..., F)
    each.

    Pairs are those of query (..., Q, D) and reference (..., N, D), or all of two queries; labels (..., Q), (..., N).
    Every pair is counted and no list of pairs is kept: time O(Q N D), memory as budgeted. Pairs at equal distance are
    accepted together. NaN where there is no pair of the same label, or none of different labels. ValueError for
    arguments that do not fit each other, NaN and infinity. Fawcett, An Introduction to ROC Analysis, 2006,
    DOI 10.1016/j.patrec.2005.10.010.

        >>> x, y = torch.tensor([[0.0], [1.0], [3.0], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> pairwise_roc(x, y, far=(0.0, 0.5)).tar
        tensor([1., 1.], dtype=torch.float64)
    """
    asked = _asked(far)

    def points(pairs: Pairs | ListedPairs) -> Tensor:
        return torch.stack(_points(pairs, asked, distance), -2)

    sides = query, query_labels, reference, reference_labels
    return OperatingPoints(*_each(points, *sides, distance, memory_budget, (3, len(asked))).unbind(-2))


@takes_arrays
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
    """True accept rate at a false accept rate of at most `far`: the share of pairs of the same label that are accepted
    by a threshold of distance under which no more than that share of pairs of different labels are.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...), or
    (..., F) for F rates.

    Arguments as in `pairwise_roc`, which also gives the thresholds. In [0, 1], higher is better, float64.

        >>> x, y = torch.tensor([[0.0], [1.0], [3.0], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> tar_at_far(x, y, far=0.1)
        tensor(1., dtype=torch.float64)
    """
    options: dict[str, Any] = {"far": _rates(far), "distance": distance, "memory_budget": memory_budget}
    rates = pairwise_roc(query, query_labels, reference, reference_labels, **options).tar
    return rates[..., 0] if _is_one(far) else rates


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
    """The error of the threshold at which as many pairs of the same label are refused as pairs of different labels are
    accepted, in shares of both; where no threshold has equal ones, on the line between the two next to it.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...).

    Arguments as in `pairwise_roc`. In [0, 1], lower is better, 1/2 by chance, (...) float64.

        >>> x, y = torch.tensor([[0.0], [1.0], [1.5], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> equal_error_rate(x, y)
        tensor(0.5000, dtype=torch.float64)
    """
    return _each(_equal_error, query, query_labels, reference, reference_labels, distance, memory_budget)


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
    """The area under the ROC curve of pairs of items: how probably a pair of the same label is nearer than one of
    different labels, where equal distances count half.

    Shapes: query: (..., Q, D); query_labels: (..., Q); reference: (..., N, D); reference_labels: (..., N) -> (...).

    Exact, of all pairs, in bounded memory: those of different labels are counted among the distances of the others.
    Arguments as in `pairwise_roc`. In [0, 1], higher is better, 1/2 by chance, (...) float64, NaN where there is no
    pair of the same label, or none of different labels.

        >>> x, y = torch.tensor([[0.0], [1.0], [1.5], [3.5]]), torch.tensor([0, 0, 1, 1])
        >>> pairwise_auroc(x, y)
        tensor(0.6250, dtype=torch.float64)
    """

    def area(pairs: Pairs | ListedPairs) -> Tensor:
        return pairs.concordance()

    return _each(area, query, query_labels, reference, reference_labels, distance, memory_budget)


def _points(pairs: Pairs | ListedPairs, far: Sequence[float], distance: DistanceName) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (..., F) each
    is_known, nan = pairs.total.all(-1)[..., None], torch.nan
    if not is_known.any():
        return (pairs.total.new_full((*pairs.total.shape[:-1], len(far)), nan, dtype=torch.float64),) * 3
    found = _accepted(pairs, far)
    accepted = torch.stack([each.below for each in found], -2).double() / pairs.total[..., None, :]
    threshold = DISTANCES[distance].from_canonical(torch.stack([each.at for each in found], -1))
    tar, far_reached = accepted.unbind(-1)
    return far_reached.where(is_known, nan), tar.where(is_known, nan), threshold.where(is_known, nan)


def _accepted(pairs: Pairs | ListedPairs, far: Sequence[float]) -> list[Found]:
    """Where more pairs of different labels begin to be accepted than at each rate."""
    different = pairs.total[..., 1, None].double()

    def exceeds(most: float) -> Condition:
        return lambda _, accepted: accepted.double() / different > most

    return pairs.first([exceeds(most) for most in far])


def _equal_error_point(pairs: Pairs | ListedPairs) -> Found:
    same, different = pairs.total[..., None].double().unbind(-2)
    (found,) = pairs.first([lambda a, b: a.double() / same + b.double() / different >= 1])
    return found


def _equal_error(pairs: Pairs | ListedPairs) -> Tensor:
    # ->  (...)
    if not (is_known := pairs.total.all(-1)).any():
        return torch.full_like(is_known, torch.nan, dtype=torch.float64)
    found = _equal_error_point(pairs)
    before, after = (part.double() / pairs.total for part in (found.below, found.through))
    # By how much more is refused than accepted wrongly, before and after the pairs at this distance.
    gap, left = 1 - before.sum(-1), after.sum(-1) - 1
    rate = before[..., 1] + gap / (gap + left) * (after[..., 1] - before[..., 1])
    return rate.where(is_known, torch.nan)


def _is_one(far: float | Sequence[float]) -> bool:
    return isinstance(far, numbers.Real) or isinstance(far, Tensor) and far.ndim == 0


def _rates(far: float | Sequence[float]) -> Sequence[float]:
    return (cast(float, far),) if _is_one(far) else cast("Sequence[float]", far)


def _asked(far: Sequence[float]) -> tuple[float, ...]:
    for each in far:
        if not 0 <= each <= 1:
            raise ValueError(f"far: got {each!r}, wanted rates in [0, 1]")
    if not len(far):
        raise ValueError("far: got none, wanted at least one rate")
    return tuple(map(float, far))


def _each(
    function: Callable[[Pairs | ListedPairs], Tensor],
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None,
    reference_labels: Tensor | None,
    distance: DistanceName,
    memory_budget: int | None,
    tail: tuple[int, ...] = (),
) -> Tensor:
    """Return the function's answers, of shape `tail`, for each item of the batch.

    The pairs of small items are listed, of as many items at once as the memory allows.
    """
    _checks.check_choice("distance", distance, DISTANCES)
    _checks.shape("query", query, "...", "Q", "D")
    both_or_neither(reference=reference, reference_labels=reference_labels)
    lead, given = query.shape[:-2], {"query": query, "query_labels": query_labels}
    wanted: tuple[tuple[Any, ...], ...] = (("Q", "D"), (query.shape[-2],))
    if reference is not None and reference_labels is not None:
        given |= {"reference": reference, "reference_labels": reference_labels}
        wanted += (("N", query.shape[-1]), reference.shape[-2:-1])
    for (name, side), shape in zip(given.items(), wanted, strict=True):
        _checks.shape(name, side, *lead, *shape)
    _checks.same_device(**given)
    kind, queries = DISTANCES[distance], query.shape[-2]
    number = number_of_pairs(queries, None if reference is None else reference.shape[-2])
    if not lead or not may_be_listed(number, query.device):
        answers = query.new_empty((*lead, *tail), dtype=torch.float64)
        for item in itertools.product(*map(range, lead)):
            answers[item] = function(Pairs(_sides(*(side[item] for side in given.values())), kind, memory_budget))
        return answers
    if not number or not lead.numel():
        return query.new_full((*lead, *tail), torch.nan, dtype=torch.float64)
    sides = _sides(*(side.flatten(0, len(lead)) for side in given.values()))
    rows = [sides.query, sides.query_labels]
    if reference is not None:
        rows += [sides.reference, sides.reference_labels]
    memory = budget(memory_budget, query.device)
    few = max(memory // (PAIR * number), 1)
    parts = zip(*(side.unflatten(0, (lead.numel(), -1)).split(few) for side in rows), strict=True)
    found = [function(ListedPairs(*part, distance=kind, memory=memory // 4)) for part in parts]
    return torch.cat(found).view(*lead, *tail)


def _sides(
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
    """A score of all pairs of the items of all updates, or of queries and references; see `EmbeddingMetric`.

    Where the items are on several ranks, each holds all of them and counts a part of the pairs. `interval` weighs a
    pair by the product of its items' weights, those of references too (Owen & Eckles 2012, doi:10.1214/12-AOAS547);
    `groups` such as persons count on both sides. The curve of a replicate is read in some hundred bins of distance, in
    memory of O(R N); where pairs are many, the product (1 + a)(1 + b) is taken as 1 + a + b. In simulations with 50 to
    500 items it holds the truth in .94 or more of data sets; rates of false acceptance below one pair of the data say
    little.
    """

    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    def __init__(
        self, distance: DistanceName = "l2", *, memory_budget: int | None = None, **kwargs: Unpack[EmbeddingOptions]
    ) -> None:
        super().__init__(**kwargs)
        _checks.check_choice("distance", distance, DISTANCES)
        self.distance, self.memory_budget = distance, memory_budget

    @abstractmethod
    def read(self, curve: Curve) -> Any:
        """The score of a curve, or of a batch of them."""

    def points(self, pairs: Pairs) -> tuple[Sequence[float], list[Found]]:
        """Rates of false acceptance that the score depends on, and where the curve has to be exact."""
        return (), []

    def pairs(self) -> Pairs:
        return self._pairs_of(self.kept()[0])

    def _pairs_of(self, sides: RetrievalInputs) -> Pairs:
        several = self._is_synced and dist.is_initialized() and dist.get_world_size(self.process_group) > 1
        return Pairs(sides, DISTANCES[self.distance], self.memory_budget, several, self.process_group)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        replicates, seed = check_draws(replicates, seed)
        sides, queries = self.kept()
        pairs, names = self._pairs_of(sides), queries.names_of_items(sides.shared, sides.reference_labels)
        return resampled_curve(pairs, names, self.points, self.read, self.value_range(), replicates, seed)


class EqualErrorRate(PairMetric):
    """`equal_error_rate` of the pairs of all items; options as there, and `store_dtype`."""

    higher_is_better = False

    @torch.no_grad()
    def compute(self) -> Tensor:
        return _equal_error(self.pairs())

    def points(self, pairs: Pairs) -> tuple[Sequence[float], list[Found]]:
        found = _equal_error_point(pairs)
        return (float(found.below[1] / pairs.total[1]),), [found]

    def read(self, curve: Curve) -> Tensor:
        return curve.equal_error_rate()


class TARAtFAR(PairMetric):
    """`tar_at_far` of the pairs of all items; options as there, and `store_dtype`.

    `far` may be several rates: values are then (F,).
    """

    higher_is_better = True

    def __init__(
        self,
        far: float | Sequence[float] = 1e-3,
        distance: DistanceName = "l2",
        *,
        memory_budget: int | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        super().__init__(distance, memory_budget=memory_budget, **kwargs)
        self._rates = _asked(_rates(far))
        self.far = self._rates[0] if _is_one(far) else self._rates

    @torch.no_grad()
    def compute(self) -> Tensor:
        rates = _points(self.pairs(), self._rates, self.distance)[1]
        return rates if isinstance(self.far, tuple) else rates[0]

    def points(self, pairs: Pairs) -> tuple[Sequence[float], list[Found]]:
        return self._rates, _accepted(pairs, self._rates)

    def read(self, curve: Curve) -> Tensor:
        rates = curve.at(self._rates)[0]
        return rates if isinstance(self.far, tuple) else rates[..., 0]


class PairwiseAUROC(PairMetric):
    """`pairwise_auroc` of the pairs of all items; options as there, and `store_dtype`."""

    higher_is_better = True

    @torch.no_grad()
    def compute(self) -> Tensor:
        return self.pairs().concordance()

    def read(self, curve: Curve) -> Tensor:
        return curve.area()


class PairwiseROC(PairMetric):
    """`pairwise_roc` of the pairs of all items: (F,) each of `OperatingPoints`; options as there, and `store_dtype`.

    `interval` and `compare` are of "tar" and "threshold" by name; `far` is what was asked of both.
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
        self.far = _asked(far)

    @torch.no_grad()
    def compute(self) -> OperatingPoints:
        return OperatingPoints(*_points(self.pairs(), self.far, self.distance))

    def points(self, pairs: Pairs) -> tuple[Sequence[float], list[Found]]:
        return self.far, _accepted(pairs, self.far)

    def read(self, curve: Curve) -> dict[str, Tensor]:
        tar, threshold = curve.at(self.far)
        return {"tar": tar, "threshold": DISTANCES[self.distance].from_canonical(threshold)}

    def value_range(self) -> tuple[Tensor, Tensor]:
        bounded = torch.zeros(len(self.far), dtype=torch.float64, device=self.device)
        unbounded = torch.full_like(bounded, torch.inf)
        return torch.cat([bounded, -unbounded]), torch.cat([bounded + 1, unbounded])

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the true accept rate over the false accept rate, on a logarithmic axis.

        Args:
            val: What `compute`, `forward` or `interval` returned, or a list of such values, one for each step, of
                which each is a curve; default `compute()`.
            ax: Axes to draw on; default those of a new figure.

        Returns:
            The figure and its axes. A point stands at the rate of `far` that it does not exceed; 0 has no place there.

        Raises:
            ImportError: Without matplotlib.
        """
        steps = steps_of(self.compute() if val is None else val)
        x = np.array(self.far)
        curves = {f"step {i}": (x, _with_ends(step)) for i, step in enumerate(steps)}
        figure, axes = plot_curves(curves, ("FAR at most", f"TAR{direction_text(True)}"), ax)
        axes.set_ylim(-0.03, 1.03)
        return figure, axes

    def _direction(self, name: str) -> bool | None:
        return True if name == "tar" else None


def _with_ends(points: OperatingPoints | Mapping[str, Estimate]) -> np.ndarray:
    # ->  (F, 3) the true accept rates and the ends of their intervals, NaN without
    if isinstance(points, OperatingPoints):
        return np.stack([points.tar.cpu().numpy(), *[np.full(len(points.tar), np.nan)] * 2], 1)
    return np.stack([side.cpu().numpy() for side in points["tar"]], 1)
