"""A torchmetrics metric of posterior distributions of scores."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Metric, Options
from ...core.metric.state_metric import MERGED
from ...core.resampling.draws import Bounds
from ...core.resampling.resampling import Items, Resampled
from ...core.resampling.units import unit_counts
from ...core.resampling.weights import ResamplingUnits, check_draws, identity
from ...core.results.cells import as_scalars
from ...core.results.estimates import Estimate, check_confidence
from ...core.results.score_table import ScoreTable
from ...uncertainty.statistics.samples import check_probability, equal_tailed, estimate
from ..metrics.parse import ConfusionMetricCollection, get_metric
from ..metrics.quantity import Quantity, observed_values
from ..metrics.sample_metrics import sample_metrics
from ..plots.distributions import Shown, plot_distributions
from ..sampling import paired
from ..sampling.confusion_matrix import checked_labels
from ..sampling.confusion_sums import METHODS, Method
from ..sampling.dirichlet import DTYPES, checked_prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CELLS = 2**18  # of items without ids, which are kept to be paired by position


class ConfusionPosterior(Metric[ScoreTable[Estimate]]):
    """Classification metrics with credible intervals, from the posterior of the confusion matrix.

    `compute()` gives tensors, float64, of `batch_shape`, then (C,) for one value per class: "acc", the observed score,
    and "acc/low" and "acc/high", the ends of its interval; `interval()` gives the same as an `Estimate` of each metric,
    with the posterior's median and mean. `forward` answers with the observed scores of its batch, without sampling.
    Of two classes one score an item is a probability, with the threshold 0.5.

    The default priors add one item to the full table, half of it classified correctly: intervals of the accuracy cover
    it as often as they say for any number of classes. Intervals of single classes are too narrow with fewer than about
    20 items each.

    Args:
        num_classes: Number of classes C, at least 2.
        metrics: Names such as "acc", "tpr" (one value per class) or "f1@macro": see `get_metric`;
            `metrics.classification.SCORES` has formulas, ranges and directions.
        confidence: Mass of the intervals, in (0, 1].
        interval: "hdi", highest density, or "eti", equal-tailed.
        replicates: Number of samples of the posterior.
        prevalence_prior, confusion_prior: Counts added to the rows and cells, see `dirichlet_prior`; "hierarchical" is
            for scores of single classes and macro scores, without `ids` and `groups`. 0: what was never observed is
            impossible.
        method: Distribution of the samples: "posterior", "prior", "random" (guesses) or "input" (the observed value).
        zero_division: Value of undefined scores; None: 0 for f1, fbeta and p4, nan for others.
        seed, name: Address of the draws, with "/0", "/1", ... for a `batch_shape`: equal counts give equal answers.
        ignore_index: Target of items that are left out.
        threshold: Score above which an item is of class 1, if `update` takes one score an item.
        batch_shape: Shape of a batch of matrices, such as checkpoints or the labels of a multilabel task.
        dtype: Dtype of the samples, torch.float32 or torch.float64.
        labels: Names of the classes in `interval`, `as_scalars` and `plot_posterior`.

    Example:
        >>> metric = ConfusionPosterior(2, ["acc", "tpr"])
        >>> metric.update(torch.tensor([0, 1, 1, 0] * 10), torch.tensor([0, 1, 0, 0] * 10))  # predictions, targets
        >>> print(f"{metric.interval()['acc']:.2f}")  # compute() has "acc", "acc/low", "acc/high", "tpr", ...
        0.75 [0.61, 0.86]
        >>> labels = ConfusionPosterior(2, "f1", threshold=0.5, batch_shape=(3,))  # of a multilabel task, (N, 3)
        >>> labels.update(torch.rand(9, 3).mT, torch.randint(0, 2, (9, 3)).mT)

    References:
        doi:10.7717/peerj-cs.398
    """

    model_options = (*Metric.model_options, "labels", "name", "threshold")

    counts: Tensor
    ids: Tensor
    groups: Tensor
    cells: Tensor

    def __init__(
        self,
        num_classes: int,
        metrics: str | Iterable[str] = ("acc",),
        *,
        confidence: float = 0.95,
        interval: Literal["hdi", "eti"] = "hdi",
        replicates: int = 10_000,
        prevalence_prior: Any = "perks",
        confusion_prior: Any = "balanced",
        method: Method = "posterior",
        zero_division: float | None = None,
        seed: int = 0,
        name: str = "posterior",
        ignore_index: int | None = None,
        threshold: float | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
        labels: Sequence[str] | None = None,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        C = self.num_classes = checks.check_int("num_classes", num_classes, 2)
        collection = ConfusionMetricCollection(metrics, zero_division)
        if not collection:
            raise ValueError(f"metrics: got {metrics!r}, wanted at least one, such as 'acc'")
        self.zero_division = zero_division
        for metric in collection:
            metric(torch.zeros(0, C, C, dtype=torch.float32, device="cpu"))  # refuses options that do not fit C
        self.per_class = {spelling: not metric.is_multiclass for spelling, metric in collection.items()}
        self.metrics = tuple(self.per_class)
        check_probability("confidence", confidence)
        checks.check_choice("interval", interval, ("hdi", "eti"))
        self.confidence, self.interval_kind = confidence, interval
        self.replicates = checks.check_int("replicates", replicates, 1)
        self.prevalence_prior = checked_prior(prevalence_prior, (C,), "prevalence_prior")
        self.confusion_prior = checked_prior(confusion_prior, (C, C), "confusion_prior")
        checks.check_choice("method", method, METHODS)
        self.method = method
        self.seed = checks.check_int("seed", seed, 0)
        checks.check_type("name", name, str, "a text")
        self.name = name
        if ignore_index is not None:
            checks.check_number("ignore_index", ignore_index, "None or an integer", lambda x: x.is_integer())
        self.ignore_index = ignore_index
        if threshold is not None:
            checks.check_number("threshold", threshold, "None or a number", math.isfinite)
            if C != 2:
                raise ValueError(f"threshold: got {threshold} for {C} classes, wanted num_classes=2")
        self.threshold = threshold
        self.labels = checked_labels(labels, C)
        if not isinstance(batch_shape, Sequence):
            raise ValueError(f"batch_shape: got {batch_shape!r}, wanted a tuple of integers; write ({batch_shape!r},)")
        self.batch_shape = tuple(checks.check_int("batch_shape", size, 0) for size in batch_shape)
        checks.check_choice("dtype", dtype, DTYPES)
        self.sample_dtype = dtype
        self.add_state("counts", torch.zeros(*self.batch_shape, C, C, dtype=torch.int64), "sum")
        for name in ("cells", "ids", "groups"):  # of items
            self.add_rows(name)
        self.add_invalid(f"items with a label outside 0..{C - 1} or with nan scores")  # and no `ignore_index`

    def update_options(self) -> dict[str, Any]:
        names = ("num_classes", "ignore_index", "threshold", "batch_shape")
        return {"class": type(self)} | {name: getattr(self, name) for name in names}

    def update(self, preds: Tensor, target: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Count a batch. Labels outside 0..C-1 or nan scores: ValueError, on CUDA raised by `compute` instead.

        Shapes: preds: (*batch, N, ...) labels, or scores if there is a threshold, or probabilities of class 1 if there
        are two classes, or (*batch, N, C, ...) scores, of which the largest counts; target: (*batch, N, ...) labels;
        ids, groups: (N,) integers or names.

        Infinite scores are compared like others. With `groups`, such as patients or documents, the posterior resamples
        groups; `ids` are for `compare`, which else pairs by position. With either, or up to 2^18 items, the cell of
        every item is kept; dimensions after N, such as
        pixels, belong to their item.
        """
        C, batch = self.num_classes, self.batch_shape
        checks.tensor("preds", preds)
        checks.integral("target", target)
        checks.same_device(preds=preds, target=target, state=self.counts)
        scored = preds.is_floating_point()
        if not scored:
            checks.integral("preds", preds)
        if target.ndim <= len(batch) or target.shape[: len(batch)] != batch:
            expected = ", ".join(map(str, (*batch, "N", "...")))
            raise ValueError(f"target: got shape {tuple(target.shape)}, wanted ({expected})")
        axis = len(batch) + 1
        threshold = self.threshold
        is_probability = C == 2 and threshold is None and scored and preds.shape == target.shape
        if is_probability:
            threshold = 0.5
            preds = preds.masked_fill((preds < 0) | (preds > 1), torch.nan)
        one_each = threshold is not None
        scores = (*target.shape[:axis], *([] if one_each else [C]), *target.shape[axis:])
        if preds.shape != (scores if scored else target.shape):
            raise ValueError(
                f"preds: got {preds.dtype} of shape {tuple(preds.shape)} with a target of shape {tuple(target.shape)}, "
                f"wanted integer labels {tuple(target.shape)} or floating scores {scores}"
            )
        if scored and threshold is not None:
            preds = (preds > threshold).long().masked_fill(preds.isnan(), -1)
        elif scored:
            best, preds = preds.max(axis)
            preds = preds.masked_fill(best.isnan(), -1)
        count = target.shape[len(batch)]
        positions = math.prod(target.shape[len(batch) :])
        # A comparison in uint8 would wrap C and ignore_index.
        preds, target = (labels.long().reshape(math.prod(batch), positions) for labels in (preds, target))
        if self.ignore_index is None and _labels_below(C, preds, target):
            cell = torch.add(preds, target, alpha=C)
            self._keep_items(cell, count, **items)
            self.counts = self.counts + _count_cells(cell, C * C).view(*batch, C, C)
            return
        valid = (preds >= 0) & (preds < C) & (target >= 0) & (target < C)
        cell = torch.where(valid, target * C + preds, C * C)
        if self.ignore_index is not None:
            cell = cell.masked_fill(target == self.ignore_index, C * C + 1)
        self._keep_items(cell, count, **items)
        counted = _count_cells(cell, C * C + 2)
        spilled = counted[:, C * C].sum()
        if cell.device.type == "cpu" and spilled:
            fault = "a score that is no probability" if is_probability else "nan scores" if scored else None
            self._refuse(preds[cell == C * C], target[cell == C * C], fault)
        self.counts = self.counts + counted[:, : C * C].view(*batch, C, C)
        self.num_invalid = self.num_invalid + spilled

    def _keep_items(self, cell: Tensor, count: int, **items: Unpack[ResamplingUnits]) -> None:
        # cell: (batch, positions), of `count` items
        columns = identity(count, cell.device, **items)
        if columns and self.batch_shape:
            raise ValueError("ids, groups: got some with a batch_shape, wanted a metric for each of the batch")
        for name in ("ids", "groups"):
            if self.update_count > 1 and (name in columns) != (len(getattr(self, name)) > 0):
                raise ValueError(f"{name}: got some for a part of the updates, wanted them in every update or in none")
        for name, ids in columns.items():
            self.append_rows(name, ids.repeat_interleave(cell.shape[1] // max(count, 1)))
        if columns or (not self.batch_shape and len(self.cells) + cell.shape[1] <= MAX_CELLS):
            self.append_rows("cells", cell[0], room=2 * cell.shape[1])

    def _add_state(self, state: dict[str, Tensor]) -> None:
        if MERGED in state and len(self.cells) and not len(self.ids) and not len(self.groups):
            self.append_rows("cells", torch.full_like(self.cells[:1], self.num_classes**2 + 2))
        super()._add_state(state)

    def compute(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for metric, (value, low, high), _, _ in self._intervals(self.confidence):
            tensors |= {metric: value, f"{metric}/low": low, f"{metric}/high": high}
        return tensors

    def interval(
        self, *, confidence: float | None = None, replicates: int | None = None, seed: int | None = None
    ) -> ScoreTable[Estimate]:
        """Return the observed scores with credible intervals.

        An end that lies beyond the observed score, as with few items and a strong prior, is moved to it.

        Args:
            confidence: Mass of the intervals, in (0, 1), by default that of the constructor.
            replicates: Number of samples, by default that of the constructor.
            seed: Seed of the draws, by default that of the constructor.

        Returns:
            An `Estimate` for each metric; `details` has the posterior's "median" and "mean", and "nan_fraction", the
            fraction of undefined samples, which all others leave out. `items` are those counted, None if a batch of
            matrices differs in their number.

        Raises:
            ValueError: If an option is out of range, or labels were no class.
        """
        confidence = self.confidence if confidence is None else check_confidence(confidence)
        replicates = None if replicates is None else checks.check_int("replicates", replicates, 1)
        with self._whole_state("interval"):
            counts = self._number_of_items()
            estimates = {
                metric: Estimate(
                    *ends,
                    confidence=confidence,
                    method=f"{self.method} ({self.interval_kind})",
                    name=metric,
                    labels=self.labels if self.per_class[metric] else None,
                    details={
                        "median": median,
                        "mean": self._shaped(metric, samples.double().nanmean(0)),
                        "nan_fraction": self._shaped(metric, samples.isnan().double().mean(0)),
                    },
                    **counts,
                )
                for metric, ends, median, samples in self._intervals(confidence, replicates=replicates, seed=seed)
            }
        return ScoreTable.by_name(estimates, self._direction, type(self).__name__)

    def _intervals(
        self, confidence: float, **draws: int | None
    ) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor], Tensor, Tensor]]:
        """Yield the name of each metric, its observed score and interval, the posterior's median and the samples."""
        summary = estimate if self.interval_kind == "hdi" else equal_tailed
        sampled = self._samples(self.metrics, **draws)
        for (metric, value), samples in zip(self.batch_value().items(), sampled, strict=True):
            median, low, high = (self._shaped(metric, x) for x in summary(samples, confidence))
            low = torch.where(value < low, value, low)  # neither where one of them is NaN
            high = torch.where(value > high, value, high)
            yield metric, (value, low, high), median, samples

    def _number_of_items(self) -> dict[str, Any]:
        """Count items and groups as the fields of an `Estimate`."""
        sizes = set(self._matrices().sum((1, 2)).tolist())
        items = sizes.pop() if len(sizes) == 1 else None
        if not len(self.groups) or not items:
            return {"items": items, "groups": items, "effective_groups": None if items is None else float(items)}
        groups, effective_groups = unit_counts(self.groups[self.cells < self.num_classes**2])
        return {"items": items, "groups": groups, "effective_groups": effective_groups}

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        C = self.num_classes
        valid = self.cells < C**2
        columns = [x[valid] for x in (self.ids, self.groups) if len(x)]
        is_named, is_whole = len(columns) > 0, bool(valid.sum() == self.counts.sum()) and not self.batch_shape
        if not is_whole:
            got = f"none for more than {MAX_CELLS:,} items, or for a batch of matrices"
            raise ValueError(f"ids: got {got}, so that items cannot be paired; write update(preds, target, ids=...)")
        pairing = None if is_named else "merged" if bool((self.cells > C**2 + 1).any()) else "position"
        columns = columns or [valid.nonzero()[:, 0]]
        cells = self.cells[valid]
        items = Items(
            rows=torch.ones(len(cells), 1, dtype=torch.float64, device=cells.device),
            units=columns[-1],
            read=self._read_matrices,
            cells=cells,
            width=C**2,
            bounds=self._item_bounds(),
            range=self.value_range(),
            identity=(*columns, cells // C),
        )
        return items.resampled(*check_draws(replicates, seed))._replace(pairing=pairing)

    def _item_bounds(self) -> Bounds:
        """Return one item distributed over the wrong cells, and one over the right ones."""
        C = self.num_classes
        right = torch.eye(C, dtype=torch.float64, device="cpu").view(C * C, 1)
        return Bounds(worst=(1 - right) / (C * (C - 1)), best=right / C)

    def value_range(self) -> tuple[Tensor, Tensor]:
        # ->  (V,) each, in the order of `metrics`, one class after the other
        C = self.num_classes
        ranges = [
            quantity.bounds_of(C)
            for metric, quantity in self._quantities()
            for _ in range(C if self.per_class[metric] else 1)
        ]
        low, high = torch.tensor(ranges, dtype=torch.float64, device="cpu").unbind(1)
        return low, high

    def _direction(self, name: str) -> bool | None:
        return get_metric(name, self.zero_division).higher_is_better

    def _quantities(self) -> Iterable[tuple[str, Quantity]]:
        return ConfusionMetricCollection(self.metrics, self.zero_division).items()

    def _read_matrices(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., C * C, 1)  ->  name: (...) or (..., C)
        shape, C = sums.shape[:-2], self.num_classes
        values = observed_values(sums.reshape(-1, C, C))
        return {
            metric: values[quantity].reshape((*shape, C) if self.per_class[metric] else shape)
            for metric, quantity in self._quantities()
        }

    def _resampled(self, method: str, replicates: int | None = None, seed: int | None = None) -> Resampled:
        with torch.no_grad(), self._whole_state(method):
            return self._resampled_sums(replicates, seed)

    def as_scalars(self, prefix: str = "") -> dict[str, float]:
        """Return what a logger takes, classes by `labels`: "tpr/cat", "tpr/cat/low". See `as_scalars`."""
        return as_scalars(self.interval(), prefix)

    def plot_posterior(self, metric: str | None = None, **options: Any) -> "tuple[Figure, list[Axes]]":
        """Plot the posterior of each value of a metric; `plot` has the intervals of all metrics.

        Args:
            metric: One of the metrics, by default the first.
            **options: Options of `plot_distributions` and of `drawing.Look`.

        Returns:
            The figure and an axes for each distribution.

        Raises:
            ImportError: Without matplotlib.
            ValueError: If the metric or an option is unknown.
        """
        metric = self.metrics[0] if metric is None else metric
        checks.check_choice("metric", metric, self.metrics)
        quantity = get_metric(metric, self.zero_division)
        with self._whole_state("plot_posterior"):
            (samples,) = self._samples([metric])
            points = observed_values(self._matrices())[quantity].flatten().tolist()
        names = ["/".join(map(str, index)) for index in np.ndindex(self.batch_shape)]
        if self.per_class[metric]:
            classes = self.labels or range(self.num_classes)
            names = [f"{name}, class {c}".removeprefix(", ") for name in names for c in classes]
        elif not self.batch_shape:
            names = [metric]
        shown = list(map(Shown, names, samples.flatten(1).unbind(1), points))
        label, bounds = quantity.full_name, quantity.bounds_of(self.num_classes)
        return plot_distributions(shown, label, bounds, self.confidence, **options)

    def batch_value(self) -> dict[str, Tensor]:
        """Return the observed scores, without sampling."""
        values = observed_values(self._matrices())
        return {metric: self._shaped(metric, values[quantity]) for metric, quantity in self._quantities()}

    def _matrices(self) -> Tensor:  # (B, C, C), B = prod(batch_shape)
        return self.counts.reshape(math.prod(self.batch_shape), self.num_classes, self.num_classes)

    def _samples(
        self, metrics: Iterable[str], replicates: int | None = None, seed: int | None = None
    ) -> list[Tensor]:  # (S, B, C) or (S, B, 1) each
        matrices, grouped = self._matrices(), None
        if len(self.groups):
            valid = self.cells < self.num_classes**2
            grouped = paired.PairedItems(self.name, self.cells[valid], self.groups[valid])
        return sample_metrics(
            matrices,
            ConfusionMetricCollection(metrics, self.zero_division),
            self.replicates if replicates is None else replicates,
            items=grouped,
            prevalence_prior=self.prevalence_prior,
            confusion_prior=self.confusion_prior,
            method=self.method,
            seed=self.seed if seed is None else seed,
            names=[f"{self.name}/{i}" for i in range(len(matrices))] if self.batch_shape else [self.name],
            dtype=self.sample_dtype,
        )

    def _shaped(self, metric: str, values: Tensor) -> Tensor:  # (batch, C) -> (*batch, C), or (batch, 1) -> (*batch)
        return values.reshape((*self.batch_shape, *([self.num_classes] if self.per_class[metric] else [])))

    def _refuse(self, preds: Tensor, target: Tensor, fault: str | None) -> None:
        last = self.num_classes - 1
        for name, labels in ("target", target), ("preds", preds):
            if labels.min() < 0 or labels.max() > last:
                got = fault if fault and name == "preds" else f"labels from {labels.min()} to {labels.max()}"
                raise ValueError(f"{name}: got {got}, wanted 0 to {last}")


def _labels_below(size: int, *labels: Tensor) -> bool:
    """Return whether all labels lie in 0..size-1; False also where the answer would wait for the device."""
    if not all(batch.device.type == "cpu" and batch.numel() for batch in labels):
        return False
    ends = [end.item() for batch in labels for end in batch.aminmax()]
    return min(ends) >= 0 and max(ends) < size


def _count_cells(cell: Tensor, size: int) -> Tensor:
    # cell: (batch, positions) in 0..size-1  ->  (batch, size)
    if len(cell) == 1 and cell.device.type == "cpu":
        return cell[0].bincount(minlength=size).unsqueeze(0)
    return cell.new_zeros(len(cell), size).scatter_add_(1, cell, torch.ones_like(cell))
