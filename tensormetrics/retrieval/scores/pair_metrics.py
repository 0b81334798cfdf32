"""Metrics of verification: scores of all pairs of stored items, with intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Answer
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import check_draws
from ...core.results.estimates import Estimate
from ...core.results.plots import direction_text, plot_curves, steps_of
from ...core.results.score_table import ScoreTable
from ..inputs import RetrievalInputs, check_budget
from ..ranking.pair_curves import Curve, resampled_curve
from ..ranking.pairs import ItemPairs, Threshold
from ..search.distance import DISTANCES, DistanceName
from .embedding_metric import EmbeddingMetric, EmbeddingOptions
from .verification import (
    FAR,
    OperatingPoints,
    check_rates,
    conditions_of,
    curve_of_pairs,
    is_one_rate,
    rates_of,
    split_fields,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class PairMetric(EmbeddingMetric[Answer]):
    """Base class of scores of all pairs of items, or of queries and references; see `EmbeddingMetric`.

    If the items are on several ranks, each holds all of them and counts a part of the pairs. `interval` weights a pair
    by the product of the weights of its items, including references (Owen & Eckles 2012, doi:10.1214/12-AOAS547);
    `groups` such as persons apply to queries and references. The curve of a replicate is evaluated in some hundred bins
    of distance, in memory of O(R N); for many pairs the product (1 + a)(1 + b) is approximated by 1 + a + b. In
    simulations with 50 to 500 items intervals contain the true value in 94 % or more of data sets; false accept rates
    below that of one pair of the data carry little information.

    Args:
        distance: "l2" (default), "sqeuclidean", "ip" (inner product) or "cosine".
        memory_budget: Maximal bytes of temporaries, by default 256 MiB on a CPU, 1 GiB on a GPU.
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
        self.distance, self.memory_budget = distance, check_budget(memory_budget)

    @torch.no_grad()
    def compute(self) -> Any:
        pairs = self._pairs_of(self.stored_inputs()[0])
        columns = curve_of_pairs(pairs, self.rates, self.distance, self.fields)
        values = split_fields(columns, len(self.rates), self.fields)
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

    def points(self, pairs: ItemPairs) -> tuple[Sequence[float], list[Threshold]]:
        """Return the false accept rates that the score depends on, and the points where the curve must be exact."""
        conditions = conditions_of(pairs, self.rates, self.fields)
        thresholds = pairs.first(conditions) if conditions else []
        if "equal_error_rate" not in self.fields:
            return self.rates, thresholds
        return (*self.rates, float(thresholds[-1].below[1] / pairs.total[1])), thresholds

    def _pairs_of(self, inputs: RetrievalInputs) -> ItemPairs:
        several = self._is_synced and dist.is_initialized() and dist.get_world_size(self.process_group) > 1
        return ItemPairs(inputs, DISTANCES[self.distance], self.memory_budget, several, self.process_group)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        replicates, seed = check_draws(replicates, seed)
        inputs, queries = self.stored_inputs()
        pairs, names = self._pairs_of(inputs), queries.names_of_items(inputs.shared, inputs.reference_labels)
        return resampled_curve(pairs, names, self.points, self.read, self.value_range(), replicates, seed)


class EqualErrorRate(PairMetric):
    """Equal error rate (EER): share of pairs of one label rejected where as large a share of other pairs is accepted.

    Pairs of all items are accepted up to a threshold on their distance. In [0, 1], lower is better, 1/2 by chance.

    >>> EqualErrorRate()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.3333, dtype=torch.float64)
    """

    higher_is_better = False
    fields = ("equal_error_rate",)


class PairwiseAUROC(PairMetric):
    """Probability that a pair of items of one label is nearer than a pair of two labels, the area under the ROC curve.

    In [0, 1], 1/2 by chance; see `pairwise_auroc`.

    >>> PairwiseAUROC()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8333, dtype=torch.float64)
    """

    higher_is_better = True
    fields = ("auroc",)


class TARAtFAR(PairMetric):
    """Share of pairs of one label accepted by the threshold on the distance that accepts `far` of the other pairs.

    In [0, 1], higher is better; see `tar_at_far`.

    Args:
        far: False accept rate, in [0, 1], or several, for values of (F,).

    >>> TARAtFAR(0.5)(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(1., dtype=torch.float64)
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
        self.rates = check_rates(rates_of(far))
        self.far = self.rates[0] if is_one_rate(far) else self.rates

    def result(self, values: dict[str, Tensor]) -> Tensor:
        return values["tar"] if isinstance(self.far, tuple) else values["tar"][..., 0]


class PairwiseROC(PairMetric[ScoreTable[Estimate]]):
    """ROC curve of the pairs of all items, `OperatingPoints` of (F,) each; see `pairwise_roc`.

    `interval` and `compare` return "tar", "threshold", "auroc" and "equal_error_rate" by name. `TARAtFAR`,
    `PairwiseAUROC` and `EqualErrorRate` are names of its fields.

    Args:
        far: The F false accept rates, in [0, 1], at which the curve is read.

    >>> curve = PairwiseROC(far=[0.5])(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    >>> curve.tar, curve.threshold
    (tensor([1.], dtype=torch.float64), tensor([5.0000], dtype=torch.float64))
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
        self.far = self.rates = check_rates(far)

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
