"""The base of every metric: torchmetrics' Metric, with states that cost what a batch costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from typing_extensions import Self, TypeVar, Unpack  # torch brings it

from ..resampling import intervals, resampling
from ..resampling.weights import check_draws
from ..results.estimates import Estimate, check_confidence
from ..results.plots import plot_values, steps_of
from ..results.score_table import ScoreTable, scored
from ..results.table import Table, table_of
from .exchanged_metric import ExchangedMetric
from .exchanged_metric import NoDataError as NoDataError
from .state_metric import Lock, StateMetric
from .state_metric import Options as Options

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Answer = TypeVar("Answer", default=Estimate, covariant=True)  # of `interval`
Scores = Estimate | ScoreTable[Estimate]
K = TypeVar("K", bound=int | Sequence[int] | None, default=None, covariant=True)


class Metric(ExchangedMetric, Generic[Answer]):
    """Metric with running sums (`add_state(name, zeros, "sum")`) or stored rows (`add_rows(name)`) as states.

    Subclasses write `update` and `compute`. An `update` that fails leaves no trace, because it assigns new tensors to
    sums and never changes one in place. Two states are combined by `merge_state`, on which `forward` is built.
    Threads may share a metric: methods that read or write its state run one after the other. `forward` and
    `merge_state` never hold two locks, so that metrics may be merged into each other.
    """

    is_differentiable = False  # the result of `forward`
    no_interval = "it has no interval"  # and why
    # Options that say how a model answers, or where and how fast it is scored, but not what is scored: two metrics of a
    # comparison may differ in them. A subclass adds its own.
    model_options: tuple[str, ...] = ("device", "memory_budget", *Options.__annotations__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the value of a batch, and add the batch to the state, which is neither copied nor recomputed."""
        batch = self._batch()
        batch.update(*args, **kwargs)
        value = batch.batch_value()
        with self._lock:
            if self._device_of_rows() is None:
                self._settle(batch._device_of_rows())
            self._merge([batch])
            self._kind = batch._kind
            self._forward_cache = tree_map_only(Tensor, torch.detach, value)  # which holds no graph until the next
        return value

    def _batch(self, **attributes: Any) -> Self:
        """Return a metric of these options without data, for a batch of `forward`; `attributes` are not shared."""
        batch = type(self).__new__(type(self))
        with self._lock:
            state = super(StateMetric, self).__getstate__()
        batch.__setstate__({**state, **attributes, "_lock": Lock()})
        batch.reset()
        batch._number_after(state)
        batch._enable_grad, batch._to_sync, batch._is_batch = True, self.dist_sync_on_step, True
        return batch

    def _number_after(self, state: dict[str, Any]) -> None:
        """Continue the numbers of items in a batch of `forward` after those of the metric whose `state` it is."""

    def batch_value(self) -> Any:
        """Return the value of a batch in `forward`; metrics override it if `compute` is too slow for every step."""
        return self.compute()

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot values as points, those of several steps as lines; of a dict each scalar, of an estimate its interval.

        Args:
            val: A result of `compute`, `interval` or `forward`, a list of results, one for each step, or a dictionary
                of such lists; default `compute()` with the intervals of `interval()`.
            ax: Axes to draw on, by default those of a new figure. Several metrics on the same axes have colors of
                their own, and a legend.

        Returns:
            The figure and its axes.

        Raises:
            ImportError: Without matplotlib.
        """
        bounds = self.plot_lower_bound, self.plot_upper_bound
        steps = steps_of(self._shown() if val is None else val)
        return plot_values(steps, type(self).__name__, bounds, self.higher_is_better, ax)

    def _shown(self) -> Any:
        """Return the value, with an interval for each part that has one."""
        value = self.compute()
        try:
            found: Any = self.interval()
        except (NotImplementedError, ValueError):
            return value
        if not isinstance(value, Mapping):
            return found
        found = found if isinstance(found, Mapping) else found.by_label()
        return {name: part for name, part in {**value, **found}.items() if name.rpartition("/")[0] not in found}

    def interval(self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None) -> Answer:
        """Return the score and an interval that holds the true one in about `confidence` of data sets like this.

        Also with 5 items, 3 groups or a score near 0 or 1: items (or groups) are reweighted (Bayesian bootstrap, Rubin
        1981, doi:10.1214/aos/1176345338) together with one imagined item, half of it right and half wrong, and the
        scale is that of the jackknife. With few items the interval is rather too wide than too narrow. Without known
        bounds of a score, and with skewed scores, it is too narrow below some 100 items (log-normal, 10 items: .84).
        Give `groups=` to `update` whenever items belong together: no method can know.

        Args:
            confidence: Mass of the interval, in (0, 1).
            replicates: Number of random draws, by default 1000, or that with which a metric was made.
            seed: Seed of the draws, by default 0; they depend on it and on the items' `ids` alone.

        Returns:
            An `Estimate` of `compute()`, or a `Table` of several, which is also a mapping by name.

        Raises:
            ValueError: If an option is out of range, or differs from that with which a metric was made.
            NotImplementedError: If the metric has no interval.
        """
        confidence = check_confidence(confidence)
        estimates = self._estimates(self._resampled("interval", replicates, seed), confidence)
        return scored(estimates, self._direction, type(self).__name__)

    def _estimates(self, resampled: "resampling.Resampled | resampling.Joined", confidence: float) -> Any:
        """Return the interval of each value, with the values of `compute`."""
        estimates = intervals.interval(resampled, confidence)
        return intervals.with_values(estimates, self.compute(), type(self).__name__)

    def _resampled(
        self, method: str, replicates: int | None = None, seed: int | None = None
    ) -> "resampling.Resampled | resampling.Joined":
        """Return the sums of the data and of each replicate, from which values are computed."""
        self.compute()  # a metric that keeps rows finds its items there
        with torch.no_grad(), self._whole_state(method):
            return self._resampled_sums(replicates, seed)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> "resampling.Resampled | resampling.Joined":
        if self._items is None:
            raise NotImplementedError(f"{type(self).__name__}: {self.no_interval}")
        return self._items().resampled(*check_draws(replicates, seed))

    def value_range(self) -> tuple[Any, Any]:
        """Return the smallest and the largest possible value, infinite where none is known."""
        ends = (self.plot_lower_bound, -torch.inf), (self.plot_upper_bound, torch.inf)
        low, high = (unknown if end is None else end for end, unknown in ends)
        return low, high

    def _direction(self, name: str) -> bool | None:
        """Return whether more is better, of one of several values by its name; None where neither is."""
        return self.higher_is_better

    def table(self, name: str | None = None, **options: Any) -> Table:
        """Return a table of one row: each value with its interval.

        Args:
            name: Name of the row, by default that of the class.
            **options: Options of `interval`.

        Raises:
            ValueError: As `interval`.
        """
        return table_of({name or type(self).__name__: self.interval(**options)}, self._direction)


class DrawOptions(TypedDict, total=False):
    """Options of `Metric.interval`."""

    confidence: float
    replicates: int | None
    seed: int | None


class AtK(Generic[K]):
    """Metric with a score at one k, or at each of several: for type checkers, which infer the answer from k."""

    if TYPE_CHECKING:

        @overload
        def interval(self: "AtK[int] | AtK[None]", **options: Unpack[DrawOptions]) -> Estimate: ...
        @overload
        def interval(self: "AtK[Sequence[int]]", **options: Unpack[DrawOptions]) -> ScoreTable[Estimate]: ...
        def interval(self, **options: Any) -> Any: ...
