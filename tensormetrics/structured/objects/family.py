"""Scores of a corpus of objects: families of averages of one metric, and suites of families."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from ... import _checks
from ..._metric import Lock, NoDataError, one_at_a_time
from ..._plots import plot_values, steps_of
from ...uncertainty.engine.estimates import Estimate, check_confidence
from ...uncertainty.engine.intervals import interval as intervals
from ...uncertainty.engine.resampling import Joined, together
from ...uncertainty.engine.weights import Identity
from ..tensors.normalizers import Normalizer, parse_normalizers, selves_read
from ..tensors.overlap import Overlap
from ..tensors.policy import Policy
from ..tensors.reduction import CountMetric, OverlapMetric
from .by_label import ByLabel
from .columns import shared_columns
from .invalid import EMPTY, INVALID, InvalidCount, overlap_of_valid, with_empty
from .matching import Hook, Path
from .metric import StructuredMetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Extra = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Reduction(NamedTuple):
    """An average of normalised scores; made by `micro_average` and `macro_average`."""

    average: str
    normalizers: tuple[Normalizer, ...]


def micro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Overlaps are summed over documents, then normalised.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> scores = Family(metric_of(Bag), micro_average(["f1"]))
    >>> scores.update([Bag(["a"]), Bag(["b"])], [Bag(["a", "c", "d"]), Bag(["b"])])
    >>> scores.compute()
    {'f1': tensor(0.6667, dtype=torch.float64)}
    """
    return Reduction("micro", parse_normalizers("normalizers", normalizers))


def macro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Overlaps are normalised in each document; the mean is over the documents where the score is defined.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> scores = Family(metric_of(Bag), macro_average(["f1"]))
    >>> scores.update([Bag(["a"]), Bag(["b"])], [Bag(["a", "c", "d"]), Bag(["b"])])
    >>> scores.compute()
    {'f1': tensor(0.7500, dtype=torch.float64)}
    """
    return Reduction("macro", parse_normalizers("normalizers", normalizers))


class OverlapScores(OverlapMetric):
    """Scores of overlaps that are known already; see `normalize`."""

    def update(self, overlap: Overlap, **items: Unpack[Identity]) -> None:
        # overlap: (B,) each
        self.add_documents(torch.stack(overlap, -1), **items)


class Prepared(NamedTuple):
    """What a family has found in some documents, before any of it is counted."""

    preds: Sequence[Any]  # EMPTY where one is invalid
    refs: Sequence[Any]
    overlap: Overlap  # (B,) each
    by_label: list[dict[Hashable, Tensor]]


class Corpus(nn.Module):
    """Base of what scores a corpus of objects: lists of predictions and references in, numbers by key out.

    Threads may share it: what reads or writes the sums does so one after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self.extras: list[Extra] = []

    @abstractmethod
    def update(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[Identity]) -> None:
        """Add documents; ValueError for lists of different lengths."""

    @abstractmethod
    def compute(self) -> dict[str, Tensor]:
        """Key -> () float64."""

    def update_single(self, pred: Any, ref: Any) -> None:
        """Add one document."""
        self.update([pred], [ref])

    def update_batch(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        """`update` under the name that it has in metametric."""
        self.update(preds, refs)

    def interval(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Key -> `Estimate`, for the averages of families made with `replicates`; those of single labels have none."""
        return intervals(self._resampled("interval"), check_confidence(confidence))

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """As `plot` of every metric: of what `compute` or `interval` answered, or a list of such answers."""
        steps = steps_of(self.compute() if val is None else val)
        shares = [{key: step[key] for key in step if key.rpartition("-")[2] != INVALID} for step in steps]
        return plot_values(shares, type(self).__name__, (0.0, None), True, ax)

    @abstractmethod
    def _resampled(self, asked: str, *options: Any) -> Joined:
        """As that of a `Metric`; `replicates` and `seed` are those of the constructor."""

    def _better(self, name: str) -> int:
        return 1

    def with_extra(self, function: Extra) -> Self:
        """Let `function` of the computed values add values of its own."""
        self.extras.append(function)
        return self

    def extended(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        # values: name -> ()
        for extra in self.extras:
            values |= extra(values)
        return values


class Family(Corpus):
    """Averages of one metric over a corpus: `update(preds, refs)` with lists of B objects each, then `compute()`.

    reduction: `micro_average([...])`, `macro_average([...])`, or several by prefix. A key is the prefix and the name
    of the normalizer, such as "micro-f1"; before the first document its value is NaN. "none" is the metric as it is,
    under its own normalizer if it has one; its name is empty, or "overlap" on its own.
    by: the path, from an item of the one collection of an object, to the value that is its label: also "f1[label]" and
    the averages "types-f1" and "weighted-f1". labels: those that count, in this order; default all that are met.
    hooks: selector -> function, called at each update for the matches whose predicted path the selector selects, with
    the number of the document. policy, empty, zero_division, duplicates: see `Policy`, default the metric's own.
    replicates, seed: of `interval`. on_invalid: "raise", or "empty" for predictions that are no values
    of their type, such as None for an answer that a parser refused: they count as empty, and `compute` adds how many
    there were as "invalid". References are always to be valid.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> scores = Family(metric_of(Bag), {"micro": micro_average(["f1"]), "macro": macro_average(["f1"])})
    >>> scores.update([Bag(["a"]), Bag([])], [Bag(["a"]), Bag(["b"])])
    >>> {name: round(float(value), 3) for name, value in scores.compute().items()}
    {'micro-f1': 0.667, 'macro-f1': 0.5}
    """

    def __init__(
        self,
        metric: StructuredMetric,
        reduction: Reduction | Mapping[str, Reduction],
        *,
        by: str | None = None,
        labels: Sequence[Hashable] | None = None,
        hooks: Mapping[Path | str, Hook] | None = None,
        policy: str | Policy | None = None,
        empty: str | None = None,
        zero_division: float | str | None = None,
        duplicates: str | None = None,
        on_invalid: str = "raise",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _checks.one_of("on_invalid", on_invalid, ("raise", "empty"))
        if not isinstance(metric, StructuredMetric):
            raise TypeError(f"metric: got {metric!r:.60}, wanted the metric of a class, such as Document.metric")
        reductions = dict(reduction) if isinstance(reduction, Mapping) else {"": reduction}
        for prefix, given in reductions.items():
            if not isinstance(given, Reduction):
                raise TypeError(
                    f"reduction {prefix!r}: got {given!r}, wanted micro_average([...]) or macro_average([...])"
                )
        own = Policy.parse(policy or metric.policy, empty=empty, zero_division=zero_division, duplicates=duplicates)
        self.metric = metric.under(own)
        self.prefixes = list(reductions)
        averages = nn.ModuleList(
            OverlapScores(scores=given.normalizers, average=given.average, policy=self.metric.policy, **kwargs)
            for given in reductions.values()
        )
        self.averages = cast(Sequence[OverlapScores], averages)
        scores: dict[str, Normalizer] = {}
        for average in self.averages:
            if "overlap" in average.scores:
                average.scores["overlap"] = metric.normalizer
            scores |= average.scores
        self.reads = selves_read(scores.values(), self.metric.policy.zero_division)
        self.by_label = [] if by is None else [ByLabel(self.metric, by, scores, labels)]
        invalid = nn.ModuleList([InvalidCount()] if on_invalid == "empty" else [])
        self.invalid = cast(Sequence[InvalidCount], invalid)
        self.hooks = dict(hooks or {})
        self.documents = 0

    @one_at_a_time
    def update(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[Identity]) -> None:
        """Add documents; ValueError for lists of different lengths."""
        self._add(self._prepared(preds, refs), **items)

    @one_at_a_time
    def forward(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[Identity]) -> dict[str, Tensor]:
        """Add documents; key -> () float64, of these alone, and of this rank alone."""
        return self._add_and_score(self._prepared(preds, refs), **items)

    def _prepared(self, preds: Sequence[Any], refs: Sequence[Any]) -> Prepared:
        """All that can fail: what is to be added for some documents."""
        preds, overlap = self._read(preds, refs)
        return Prepared(preds, refs, overlap, [scores.sums_of(preds, refs) for scores in self.by_label])

    @one_at_a_time
    def _add(self, batch: Prepared, **items: Unpack[Identity]) -> None:
        """Add what was prepared."""
        for average in self.averages:
            average.update(batch.overlap, **items)
        for count in self.invalid:
            count.update(batch.preds)
        for scores, sums in zip(self.by_label, batch.by_label, strict=True):
            scores.add(sums)
        self._run_hooks(batch.preds, batch.refs)

    @one_at_a_time
    def _add_and_score(self, batch: Prepared, **items: Unpack[Identity]) -> dict[str, Tensor]:
        """Add what was prepared; the values of it alone."""
        values = self._keyed([average(batch.overlap, **items) for average in self.averages])
        for count in self.invalid:
            values |= count(batch.preds)
        for scores, sums in zip(self.by_label, batch.by_label, strict=True):
            scores.add(sums)
            values |= scores.scores(sums)
        self._run_hooks(batch.preds, batch.refs)
        return self.extended(values)

    @one_at_a_time
    def compute(self) -> dict[str, Tensor]:
        """Key -> () float64."""
        values = self._keyed(list(map(computed, self.averages)))
        for count in self.invalid:
            values |= computed(count)
        for scores in self.by_label:
            values |= scores.compute(self.averages[0])
        return self.extended(values)

    def _resampled(self, asked: str, *options: Any) -> Joined:
        return together([average._resampled(asked, *options) for average in self.averages], self._keyed)

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Normalizer -> (B,) float64; the state is left as it is."""
        overlap = torch.stack(self._read(preds, refs)[1], -1)
        return {name: value for average in self.averages for name, value in average.read_scores(overlap).items()}

    @one_at_a_time
    def reset(self) -> None:
        """Forget all documents."""
        self.documents = 0
        sums: list[CountMetric | ByLabel] = [*self.averages, *self.invalid, *self.by_label]
        for scores in sums:
            scores.reset()

    def new(self, hooks: Mapping[Path | str, Hook] | None = None) -> "Family":
        """The same without documents."""
        fresh = copy.deepcopy(self)
        fresh.reset()
        fresh.hooks = dict(hooks or {})
        return fresh

    def _read(self, preds: Sequence[Any], refs: Sequence[Any]) -> tuple[Sequence[Any], Overlap]:
        # -> predictions, EMPTY for invalid ones; their overlaps (B,)
        if not self.invalid:
            return preds, self.metric.cross_and_selves(preds, refs, self.reads)
        _checks.same_length(preds=preds, refs=refs)
        with shared_columns():  # so that what is looked at twice is read once
            preds = with_empty(self.metric, preds, refs)
            return preds, overlap_of_valid(self.metric, preds, refs, self.reads)

    def _keyed(self, scores: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        named = zip(self.prefixes, scores, strict=True)
        return {keyed(prefix, name): value for prefix, part in named for name, value in part.items()}

    def _run_hooks(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        if self.hooks:
            for number, (pred, ref) in enumerate(zip(preds, refs, strict=True), self.documents):
                if pred is EMPTY:
                    continue
                self.metric.compute(pred, ref)[1].run_with_hooks(self.hooks, number)
        self.documents += len(preds)


class Suite(Corpus):
    """Families and suites by name, fed with the same objects; the names are the first part of the keys.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> suite = Suite({"all": Family(metric_of(Bag), micro_average(["recall"]))})
    >>> suite.update([Bag(["a"])], [Bag(["a", "b"])])
    >>> suite.compute()
    {'all-recall': tensor(0.5000, dtype=torch.float64)}
    """

    def __init__(self, members: Mapping[str, "Family | Suite"]) -> None:
        super().__init__()
        for name, member in members.items():
            if not isinstance(member, Corpus):
                raise TypeError(f"member {name!r}: got {member!r:.60}, wanted a Family or a Suite")
        parts = nn.ModuleList(members.values())  # a ModuleDict refuses some names
        self.names, self.parts = list(members), cast("Sequence[Family | Suite]", parts)

    @property
    def members(self) -> dict[str, "Family | Suite"]:
        """Families and suites by name."""
        return dict(zip(self.names, self.parts, strict=True))

    @one_at_a_time
    def update(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[Identity]) -> None:
        """Add documents; ValueError for lists of different lengths."""
        self._add(self._prepared(preds, refs), **items)

    @one_at_a_time
    def forward(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[Identity]) -> dict[str, Tensor]:
        """Add documents; key -> () float64, of these alone."""
        return self._add_and_score(self._prepared(preds, refs), **items)

    def _prepared(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Any]:
        """All that can fail: what is to be added to each member for some documents."""
        _checks.same_length(preds=preds, refs=refs)
        with shared_columns():
            return {name: member._prepared(preds, refs) for name, member in self.members.items()}

    @one_at_a_time
    def _add(self, batch: dict[str, Any], **items: Unpack[Identity]) -> None:
        """Add what was prepared."""
        for name, member in self.members.items():
            member._add(batch[name], **items)

    @one_at_a_time
    def _add_and_score(self, batch: dict[str, Any], **items: Unpack[Identity]) -> dict[str, Tensor]:
        """Add what was prepared; the values of it alone."""
        found = {name: member._add_and_score(batch[name], **items) for name, member in self.members.items()}
        return self.extended(self._named(found))

    @one_at_a_time
    def compute(self) -> dict[str, Tensor]:
        """Key -> () float64."""
        return self.extended(self._named({name: member.compute() for name, member in self.members.items()}))

    def _resampled(self, asked: str, *options: Any) -> Joined:
        parts = [member._resampled(asked, *options) for member in self.parts]

        def named(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
            return self._named(dict(zip(self.names, parts, strict=True)))

        return together(parts, named)

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Key -> (B,) float64; the state is left as it is."""
        with shared_columns():
            return self._named({name: member.per_document(preds, refs) for name, member in self.members.items()})

    @one_at_a_time
    def reset(self) -> None:
        """Forget all documents."""
        for member in self.members.values():
            member.reset()

    def new(self, hooks: Mapping[Path | str, Hook] | None = None) -> "Suite":
        """The same without documents; every family runs the hooks, in order."""
        fresh = Suite({name: member.new(hooks) for name, member in self.members.items()})
        fresh.extras = list(self.extras)
        return fresh

    def _named(self, found: Mapping[str, dict[str, Tensor]]) -> dict[str, Tensor]:
        return {keyed(name, key): value for name, part in found.items() for key, value in part.items()}


def computed(average: CountMetric) -> dict[str, Tensor]:
    """Its scores; NaN before the first document, so that a logging hook need not care."""
    try:
        return average.compute()
    except NoDataError:
        scores = average.read_scores(torch.zeros(average.n_counts, dtype=torch.float64, device=average.device))
        return {name: torch.full_like(score, torch.nan) for name, score in scores.items()}


def keyed(prefix: str, name: str) -> str:
    """The key of a score: both, joined, or that which is not empty; the prefix alone for what is called overlap."""
    return prefix if prefix and name == "overlap" else "-".join(filter(None, (prefix, name)))
