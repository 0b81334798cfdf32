"""Are probabilities what they say? The Brier score and the expected calibration error."""

import torch
from torch import Tensor
from typing_extensions import Unpack

from ... import _checks
from ..._checks import takes_arrays
from ..._metric import Options
from ..._sum_metric import SumMetric
from ..engine.draws import Bounds, mean_bounds
from ..engine.weights import Identity

GRID = 2.0**30  # values of items are its multiples: sums of 2^22 of them are exact, whatever their order


@takes_arrays
def brier_score(preds: Tensor, target: Tensor) -> Tensor:
    """The mean square of probability minus truth: (p - y)^2 of two classes, summed over the classes for (..., N, C).

    Shapes: preds: (..., N) probabilities of 1, or (..., N, C); target: (..., N) integer -> (...) float64.

    In [0, 1], or [0, 2] for C classes; lower is better. NaN without items, and where a probability is outside [0, 1] or
    a label is no class. ValueError for shapes and dtypes. Brier 1950.

    >>> brier_score(torch.tensor([0.9, 0.2]), torch.tensor([1, 0]))
    tensor(0.0250, dtype=torch.float64)
    """
    return _squares(preds, target).mean(-1)


@takes_arrays
def calibration_error(preds: Tensor, target: Tensor, bins: int = 15) -> Tensor:
    """The expected calibration error: in `bins` of equal width, |share that is right - mean probability|, averaged.

    Shapes: preds: (..., N) probabilities of 1, or (..., N, C); target: (..., N) integer -> (...) float64.

    Of two classes the probability is that of 1 and "right" is 1; with (..., N, C) they are those of the largest one. In
    [0, 1], lower is better; few items make it too large, and so its interval. NaN and errors as in `brier_score`.
    Guo et al. 2017, arXiv:1706.04599.

    >>> calibration_error(torch.tensor([0.9, 0.8]), torch.tensor([1, 1]))
    tensor(0.1500, dtype=torch.float64)
    """
    gaps = _gaps(preds, target, _checks.integer_at_least("bins", bins, 1))
    return gaps.sum(-2).abs().sum(-1) / gaps.shape[-2]


def _read(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    # ->  preds in float64, NaN where an item is none; target
    _checks.floating("preds", preds)
    _checks.integral("target", target)
    _checks.shape("target", target, "...", "N")
    _checks.same_device(preds=preds, target=target)
    if preds.shape != target.shape and (preds.shape[:-1] != target.shape or preds.shape[-1] < 2):
        wanted = f"{tuple(target.shape)} or {(*target.shape, 'C')}".replace("'", "")
        raise ValueError(f"preds: got shape {tuple(preds.shape)}, wanted {wanted} for this target")
    several = preds.ndim > target.ndim
    preds = preds.double()
    wrong, classes = ~((preds >= 0) & (preds <= 1)), preds.shape[-1] if several else 2
    wrong = (wrong.any(-1) if several else wrong) | (target < 0) | (target >= classes)
    preds = preds.masked_fill(wrong.unsqueeze(-1) if several else wrong, torch.nan)
    return preds, target.long().clamp(0, classes - 1)


def _squares(preds: Tensor, target: Tensor) -> Tensor:
    # ->  (..., N)
    preds, target = _read(preds, target)
    if preds.ndim == target.ndim:
        return (preds - target).square()
    truth = torch.nn.functional.one_hot(target, preds.shape[-1])
    return (preds - truth).square().sum(-1)


def _gaps(preds: Tensor, target: Tensor, bins: int) -> Tensor:
    # ->  (..., N, bins): right or not minus the probability, in the bin of the item
    preds, target = _read(preds, target)
    if preds.ndim > target.ndim:
        preds, best = preds.max(-1)
        target = (best == target).long()
    place = (preds * bins).nan_to_num(0).long().clamp(max=bins - 1)
    gaps = preds.new_zeros(*preds.shape, bins)
    return gaps.scatter_(-1, place.unsqueeze(-1), (target - preds).unsqueeze(-1))


class _Calibration(SumMetric):
    """Sums over items, and how many these are."""

    higher_is_better = False
    plot_lower_bound: float | None = 0.0

    def __init__(self, width: int, *, replicates: int = 0, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        self.add_sums(width + 1)

    def add_values(self, values: Tensor, target: Tensor, **items: Unpack[Identity]) -> None:
        # values: (N, width)  target: (N,)
        values = (values.detach() * GRID).round() / GRID
        rows = torch.cat([values, torch.ones_like(values[:, :1])], 1)
        self.add_items(rows, **items, target=target.long())

    def compute(self) -> Tensor:
        # ->  () float64
        return self.read_sums(self.sums)


class BrierScore(_Calibration):
    """The mean square of probability minus truth; see `brier_score`. `interval` wants `replicates`.

    metric = BrierScore(replicates=1000)
    metric.update(torch.rand(100), torch.arange(100) % 2)
    value, low, high = metric.interval()
    """

    multiclass: Tensor

    def __init__(self, *, replicates: int = 0, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(1, replicates=replicates, seed=seed, **kwargs)

        if self.replicates:
            self.add_state("multiclass", torch.zeros((), dtype=torch.int64), "sum")  # items with several probabilities

    def update(self, preds: Tensor, target: Tensor, **items: Unpack[Identity]) -> None:
        """Add a batch.

        Shapes: preds: (N,) probabilities of 1, or (N, C); target: (N,) integer; ids, groups: (N,) integers or names.
        """
        _checks.shape("target", target, "N")
        self.add_values(_squares(preds, target)[:, None], target, **items)
        if self.replicates and preds.ndim > target.ndim:
            self.multiclass = self.multiclass + len(target)

    def value_range(self) -> tuple[float, float]:
        return 0.0, 2.0 if self.replicates and bool(self.multiclass) else 1.0

    def item_bounds(self) -> Bounds:
        return mean_bounds(1, *self.value_range())

    def read_sums(self, sums: Tensor) -> Tensor:
        # sums: (..., 2)  ->  (...)
        return sums[..., 0] / sums[..., 1]


class CalibrationError(_Calibration):
    """The expected calibration error; see `calibration_error`. `interval` wants `replicates`."""

    plot_upper_bound: float | None = 1.0

    def __init__(self, bins: int = 15, *, replicates: int = 0, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        self.bins = _checks.integer_at_least("bins", bins, 1)
        super().__init__(self.bins, replicates=replicates, seed=seed, **kwargs)

    def update(self, preds: Tensor, target: Tensor, **items: Unpack[Identity]) -> None:
        """Add a batch.

        Shapes: preds: (N,) probabilities of 1, or (N, C); target: (N,) integer; ids, groups: (N,) integers or names.
        """
        _checks.shape("target", target, "N")
        self.add_values(_gaps(preds, target, self.bins), target, **items)

    def read_sums(self, sums: Tensor) -> Tensor:
        # sums: (..., bins + 1)  ->  (...)
        return sums[..., :-1].abs().sum(-1) / sums[..., -1]
