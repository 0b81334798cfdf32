"""Quality of predicted probabilities: the Brier score and the expected calibration error."""

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import Options
from ...core.metric.sum_metric import SumMetric
from ...core.native.device_cache import cached_per_device
from ...core.resampling.draws import Bounds, mean_bounds
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ResamplingUnits
from ._labels import check_labels, wrong_labels

GRID = 2.0**30  # values of items are its multiples: sums of 2^22 of them are exact, whatever their order


@takes_arrays
def brier_score(preds: Tensor, target: Tensor) -> Tensor:
    """Compute the mean square of probability minus truth: (p - y)^2, summed over the classes for (..., N, C).

    Shapes: preds: (..., N) probabilities of 1, or (..., N, C); target: (..., N) integer -> (...) float64.

    In [0, 1], or [0, 2] for C classes; lower is better. NaN without items, and for NaN and infinity. ValueError for
    shapes and dtypes, and for labels that are no class and numbers outside [0, 1]; on a GPU and compiled these make it
    NaN. Brier 1950.

    >>> brier_score(torch.tensor([0.9, 0.2]), torch.tensor([1, 0]))
    tensor(0.0250, dtype=torch.float64)
    """
    return _squares(preds, target)[0].mean(-1)


@takes_arrays
def calibration_error(preds: Tensor, target: Tensor, bins: int = 15, norm: str = "l1") -> Tensor:
    """Compute the expected calibration error: in `bins` of equal width, |fraction of right - mean probability|.

    Shapes: preds: (..., N) probabilities of 1, or (..., N, C); target: (..., N) integer -> (...) float64.

    For two classes the probability is that of 1 and "right" is 1; with (..., N, C) both refer to the most probable
    class. `norm` "l1" averages over the items; it is biased upwards for few items. "rms" is the root mean square
    without the part that chance alone explains: 0 where chance explains all of it; bins of one item do not count. In
    [0, 1], lower is better. NaN and errors as in `brier_score`; ValueError for another norm. Guo et al. 2017,
    arXiv:1706.04599; Kumar, Liang & Ma 2019, arXiv:1909.10155.

    >>> calibration_error(torch.tensor([0.9, 0.8]), torch.tensor([1, 1]))
    tensor(0.1500, dtype=torch.float64)
    """
    bins = checks.check_int("bins", bins, 1)
    checks.check_choice("norm", norm, NORMS)
    gap, bin_index, _ = _gaps(preds, target, bins)
    bin_index = bin_index.unsqueeze(-1)
    rows = gap.new_zeros(*gap.shape, bins).scatter_(-1, bin_index, gap.unsqueeze(-1))
    if norm == "rms":
        rows = torch.cat([rows, rows.square(), torch.zeros_like(rows).scatter_(-1, bin_index, 1.0)], -1)
    return READERS[norm](rows.sum(-2), rows.shape[-2], bins)


def _read(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # ->  preds in float64, NaN for invalid items; target; the invalid items with finite numbers
    checks.floating("preds", preds)
    checks.integral("target", target)
    checks.shape("target", target, "...", "N")
    checks.same_device(preds=preds, target=target)
    if preds.shape != target.shape and (preds.shape[:-1] != target.shape or preds.shape[-1] < 2):
        expected = f"{tuple(target.shape)} or {(*target.shape, 'C')}".replace("'", "")
        raise ValueError(f"preds: got shape {tuple(preds.shape)}, wanted {expected} for this target")
    several = preds.ndim > target.ndim
    preds = preds.double()
    wrong, classes = ~((preds >= 0) & (preds <= 1)), preds.shape[-1] if several else 2
    wrong, is_finite = (wrong.any(-1), (preds - preds == 0).all(-1)) if several else (wrong, preds - preds == 0)
    wrong = wrong | wrong_labels(target, classes)
    check_labels(target, classes, preds, refused := wrong & is_finite)
    preds = preds.masked_fill(wrong.unsqueeze(-1) if several else wrong, torch.nan)
    return preds, target.long().clamp(0, classes - 1), refused


def _squares(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    # ->  (..., N) each: the squares, and the items that `_read` refuses
    preds, target, refused = _read(preds, target)
    if preds.ndim == target.ndim:
        return (preds - target).square(), refused
    truth = torch.nn.functional.one_hot(target, preds.shape[-1])
    return (preds - truth).square().sum(-1), refused


def _gaps(preds: Tensor, target: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (..., N) each: right or not minus the probability, the bin, and the items that `_read` refuses
    preds, target, refused = _read(preds, target)
    if preds.ndim > target.ndim:
        preds, best = preds.max(-1)
        target = (best == target).long()
    return target - preds, (preds * bins).nan_to_num(0).long().clamp(max=bins - 1), refused


def _mean_gap(sums: Tensor, items: Tensor | int, bins: int) -> Tensor:
    # sums: (..., bins or 3 bins)  items: (...)  ->  (...)
    return sums[..., :bins].abs().sum(-1) / items


def _debiased_rms(sums: Tensor, items: Tensor | int, bins: int) -> Tensor:
    # sums: (..., 3 bins)  items: (...)  ->  (...)
    return _mean_square(sums, items, _variances(sums, bins), 1).clamp(min=0).sqrt()


def _variances(sums: Tensor, bins: int) -> Tensor:
    # sums: (..., 3 bins)  ->  (..., bins), of the mean gap; NaN with fewer than two items
    gaps, squares, counts = sums.unflatten(-1, (3, bins)).unbind(-2)
    variances = (squares - gaps.square() / counts) / (counts - 1) / counts
    return variances.where(counts.isnan() | (counts > 1), torch.nan)


def _mean_square(sums: Tensor, items: Tensor | int, variances: Tensor, times: int) -> Tensor:
    # sums: (..., 3 bins)  items: (...)  variances: (..., bins)  ->  (...)
    """Return the mean square of the gaps less `times` their variances, of the bins that have one."""
    gaps, _, counts = sums.unflatten(-1, (3, variances.shape[-1])).unbind(-2)
    squares = gaps.square() / counts - times * counts * variances
    is_counted = ~variances.isnan() & (counts > 0) | gaps.isnan()
    return squares.where(is_counted, 0).sum(-1) / items


@cached_per_device
def _one(device: torch.device) -> Tensor:
    return torch.ones(1, dtype=torch.float64, device=device)


READERS = {"l1": _mean_gap, "rms": _debiased_rms}
NORMS = tuple(READERS)


class _Calibration(SumMetric):
    """Base of metrics that store sums over items."""

    higher_is_better = False
    plot_lower_bound: float | None = 0.0
    has_target = True

    def __init__(self, width: int, *, replicates: int | None = None, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        self.add_sums(width)
        self.add_invalid("labels that are no class, or probabilities outside [0, 1]")

    def add_values(
        self, values: list[Tensor], integers: list[Tensor], refused: Tensor, **items: Unpack[ResamplingUnits]
    ) -> None:
        # values, integers, refused: (N,) each
        self.num_invalid = self.num_invalid + refused.sum()
        ones = _one(refused).expand(len(refused))
        rows = torch.stack([*values, ones, *(column.long().view(torch.float64) for column in integers)], 1).detach()
        rows[:, : len(values)].mul_(GRID).round_().div_(GRID)
        self.add_items(rows, **items)

    def compute(self) -> Tensor:
        # ->  () float64
        return self.read_sums(self.sums)


class BrierScore(_Calibration):
    """Mean square of probability minus truth, lower is better; see `brier_score`.

    metric = BrierScore(replicates=1000)
    metric.update(torch.rand(100), torch.arange(100) % 2)
    value, low, high = metric.interval()
    """

    multiclass: Tensor

    def __init__(self, *, replicates: int | None = None, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(2, replicates=replicates, seed=seed, **kwargs)
        if self._keeps_items:
            self.add_rows("multiclass")  # a row where items have several probabilities

    def update(self, preds: Tensor, target: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add a batch.

        Shapes: preds: (N,) probabilities of 1, or (N, C); target: (N,) integer; ids, groups: (N,) integers or names.
        """
        checks.shape("target", target, "N")
        squares, refused = _squares(preds, target)
        self.add_values([squares], [target], refused, **items)
        if self._keeps_items and preds.ndim > target.ndim and len(target):
            self.multiclass = _one(squares)

    def _add_state(self, state: dict[str, Tensor]) -> None:
        if self._keeps_items and len(self.multiclass):
            state = {**state, "multiclass": self._defaults["multiclass"]}
        super()._add_state(state)

    def value_range(self) -> tuple[float, float]:
        return 0.0, 2.0 if self._keeps_items and len(self.multiclass) else 1.0

    def item_bounds(self) -> Bounds:
        return mean_bounds(1, *self.value_range())

    def read_sums(self, sums: Tensor) -> Tensor:
        # sums: (..., 2)  ->  (...)
        return sums[..., 0] / sums[..., 1]


class CalibrationError(_Calibration):
    """Expected calibration error; see `calibration_error`.

    Replicates add the bias of few items once more, so that their quantiles are no interval. With `norm="rms"` twice the
    variance of each bin is taken from the mean squares of the replicates, and the interval holds the error of the
    population in about `confidence` of data sets, 0 included. With "l1" it is mirrored at the value, and begins at 0
    where that of "rms" does; it is too short for small errors, and the value may be its end; `debiased()` is the value
    without its bias. Use `norm="rms"` for inference. Bins of one item do not count for "rms". Kumar, Liang & Ma 2019,
    arXiv:1909.10155.

    Args:
        bins: Number of bins of equal width in [0, 1].
        norm: "l1", mean absolute gap of the bins, or "rms", the root of the mean squared gap without its bias.

    >>> metric = CalibrationError(norm="rms", replicates=1000)
    >>> metric.update(torch.full((50,), 0.75), torch.arange(50) % 2)
    >>> print(f"{metric.interval():.2f}")
    0.24 [0.06, 0.37]
    """

    plot_upper_bound: float | None = 1.0

    def __init__(
        self,
        bins: int = 15,
        *,
        norm: str = "l1",
        replicates: int | None = None,
        seed: int = 0,
        **kwargs: Unpack[Options],
    ) -> None:
        checks.check_choice("norm", norm, NORMS)
        self.bins, self.norm = checks.check_int("bins", bins, 1), norm
        super().__init__(3 * bins, replicates=replicates, seed=seed, **kwargs)

    def update(self, preds: Tensor, target: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add a batch.

        Shapes: preds: (N,) probabilities of 1, or (N, C); target: (N,) integer; ids, groups: (N,) integers or names.
        """
        checks.shape("target", target, "N")
        gap, bin_index, refused = _gaps(preds, target, self.bins)
        self.add_values([gap, gap.square()], [bin_index, target], refused, **items)

    def item_rows(self, entries: Tensor) -> Tensor:
        # entries: (n, 5): gap, its square, 1, bin and target  ->  (n, 3 bins)
        bin_index = entries[:, None, 3:4].view(torch.int64).expand(-1, 3, -1)
        return entries.new_zeros(len(entries), 3, self.bins).scatter_(2, bin_index, entries[:, :3, None]).flatten(1)

    def read_sums(self, sums: Tensor) -> Tensor:
        # sums: (..., 3 bins)  ->  (...)
        return READERS[self.norm](sums, sums[..., 2 * self.bins :].sum(-1), self.bins)

    def debiased(self) -> Tensor:
        # ->  () float64
        """Return the error less what few items add to it, as the replicates of an "l1" show it; at least 0.

        With `norm="rms"` that is the value. ValueError with `replicates=0`.
        """
        value = self.compute()
        if self.norm == "rms":
            return value
        with self._whole_state("debiased"):
            bias = self.read_sums(self._resampled_state(None, None).weighted).mean() - value
        return (value - bias).clamp(min=0)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        # Draws without bias replace sums, since they are no function of them.
        sums = self._resampled_state(replicates, seed)
        items, units = sums.weighted[:, 2 * self.bins :].sum(-1), sums.units
        variances = _variances(sums.observed, self.bins)
        squares = _mean_square(sums.weighted, items, variances, 2)  # replicates add the variance once more
        draws = squares.clamp(min=0).sqrt()
        if self.norm == "l1":
            draws = (2 * self.compute() - self.read_sums(sums.weighted)).clamp(min=0)
            zeros = (squares <= 0).sum()
            draws = draws.masked_fill(draws.argsort().argsort() < zeros, 0.0)  # as many zeros as "rms" has
        return sums._replace(
            observed=self.compute(),
            weighted=draws,
            half=None,
            read=lambda values: values,
            units=None if units is None else units._replace(rows=torch.zeros_like(units.sizes)),
            is_smooth=False,
        )
