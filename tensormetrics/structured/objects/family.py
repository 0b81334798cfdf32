"""Scores of a corpus of objects: families of averages of one metric."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self, Unpack

from ...core.arguments import checks
from ...core.metric.base import Metric, Options
from ...core.metric.sum_metric import SumMetric
from ...core.resampling.resampling import Joined, combine
from ...core.resampling.weights import ResamplingUnits
from ...core.results.plots import steps_of
from ..tensors.normalizers import required_self_overlaps
from ..tensors.overlap import Overlap
from ..tensors.policy import Policy
from ..tensors.reduction import Average, bounds_of_overlaps, scores_of_overlaps
from .by_label import ByLabel, add_tables, decode_sums, encode_label, encode_sums
from .derive import Plan
from .invalid import INVALID, INVALID_DOCUMENT, INVALID_FIELDS, invalid_mask, mark_invalid, overlap_of_valid
from .matching import Hook, Path
from .metric import StructuredMetric
from .reductions import Reduction
from .values.answers import Answers, reuse_answers
from .values.columns import shared_columns
from .values.tolerance import Tolerance, tolerate_invalid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Extra = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Prepared(NamedTuple):
    """Overlaps of a batch of documents, before they are added to the state."""

    preds: Sequence[Any]  # INVALID_DOCUMENT for invalid ones
    refs: Sequence[Any]
    overlap: Tensor  # (B, 3)
    labels: dict[Hashable, Tensor]  # (3,) each
    num_invalid: int  # number of invalid fields


class Read(NamedTuple):
    """Predictions, INVALID_DOCUMENT for invalid ones, their overlaps (B,), and the number of invalid fields."""

    preds: Sequence[Any]
    overlap: Overlap
    num_invalid: int


class Corpus(Metric):
    """Base of metrics of a corpus of objects: lists of predictions and references in, scores by key out."""

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    nan_without_data = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.extras: list[Extra] = []
        self._answers = Answers()  # of users' functions for the documents of an update that failed

    def update(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[ResamplingUnits]) -> None:
        """Add documents.

        Raises:
            ValueError: If the lists have different lengths.
        """
        with reuse_answers(self._answers):
            self._add(self._prepared(preds, refs), **items)
        self._answers.clear()

    def reset(self) -> None:
        """Forget all documents."""
        super().reset()
        self._answers.clear()

    @abstractmethod
    def compute(self) -> dict[str, Tensor]:
        """Compute all scores: key -> () float64."""

    @abstractmethod
    def _prepared(self, preds: Sequence[Any], refs: Sequence[Any]) -> Any:
        """Compute the batch that `_add` adds; all errors are raised here."""

    @abstractmethod
    def _add(self, batch: Any, **items: Unpack[ResamplingUnits]) -> None:
        """Add a prepared batch to the state."""

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot the result of `compute` or `interval`, or a list of such results, as every metric does."""
        steps = steps_of(self.compute() if val is None else val)
        plotted = [
            {key: step[key] for key in step if key.rpartition("-")[2] not in (INVALID, INVALID_FIELDS)}
            for step in steps
        ]
        return super().plot(plotted, ax)

    @abstractmethod
    def scoring_options(self) -> dict[str, Any]:
        """Return the options that two metrics must share to be compared."""

    def with_extra(self, function: Extra) -> Self:
        """Add a function that computes further values from the computed ones."""
        self.extras.append(function)
        return self

    def extended(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        # values: name -> ()
        for extra in self.extras:
            values |= extra(values)
        return values


class Family(Corpus, SumMetric):
    """Averages of one metric over a corpus: `update(preds, refs)` with lists of B objects each, then `compute()`.

    A key is the prefix and the name of the normalizer, such as "micro-f1"; before the first document its value is NaN.

    Args:
        metric: The metric of a class, such as ``Document.metric``.
        reduction: `micro_average([...])`, `macro_average([...])`, or several by prefix. The normalizer "none" denotes
            the metric under its own normalizer, if it has one; its name is empty, or "overlap" without a prefix.
        by: Path from an item, of an object that consists of one collection, to its label: adds "f1[label]" and the
            averages "types-f1" and "weighted-f1".
        labels: The labels that count, in this order; default all that occur.
        hooks: Selector -> function, called at each update with the index of the document for the matches whose
            predicted path matches the selector.
        policy, empty, zero_division, duplicates: See `Policy`; default the policy of the metric.
        on_invalid: Treatment of predictions of a wrong type, such as None for an answer that a parser refused:
            "raise"; "wrong": they have overlap 0, count as one item of the prediction, and score 0; "empty": they count
            as empty, which rewards a refusal if the reference is empty too and the policy gives credit for that.
            `compute` adds their number as "invalid". If only a field of a prediction has a wrong type, the field has
            similarity 0 and counts as one item of the prediction; a missing key of a dictionary is None, or an empty
            collection. `compute` adds the number of such fields as "invalid_fields". With `by`, or a similarity
            function, a prediction with such a field is invalid. References must be valid.
        replicates, seed: For `interval`.

    Example:
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

    model_options = (*Metric.model_options, "hooks", "on_invalid")

    num_documents: Tensor
    invalid: Tensor
    invalid_fields: Tensor
    label_names: Tensor  # (n,) uint8, see `by_label.encode_label`
    label_sums: Tensor  # (L, 3)

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
        replicates: int = 0,
        seed: int = 0,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        checks.check_choice("on_invalid", on_invalid, ("raise", "wrong", "empty"))
        if not isinstance(metric, StructuredMetric):
            raise TypeError(f"metric: got {metric!r:.60}, wanted the metric of a class, such as Document.metric")
        checks.check_type("by", by, str | None, "the path of a field, such as 'label'")
        checks.check_type("hooks", hooks, Mapping | None, "functions by path")
        if by is None and labels is not None:
            raise ValueError("labels: got labels without by, wanted the path of the field that holds them")
        labels = None if labels is None else checks.as_list("labels", labels)
        reductions = _reductions_by_prefix(reduction)
        resolved = Policy.parse(
            policy or metric.policy, empty=empty, zero_division=zero_division, duplicates=duplicates
        )
        self.metric = metric.under(resolved)
        self.prefixes = list(reductions)
        self.scores = [
            {score.name or "overlap": score if score.name else metric.normalizer for score in part.normalizers}
            for part in reductions.values()
        ]
        self.averages = [
            Average(part.average, 3, partial(scores_of_overlaps, scores, resolved.zero_division))
            for part, scores in zip(reductions.values(), self.scores, strict=True)
        ]
        all_scores = {name: score for scores in self.scores for name, score in scores.items()}
        self.reads = required_self_overlaps(all_scores.values(), resolved.zero_division)
        self.by_label = None if by is None else ByLabel(self.metric, by, all_scores, labels)
        self.on_invalid = on_invalid
        self.hooks = dict(hooks or {})
        self._first_document = 0  # index of the first document of a batch of `forward`
        self.add_sums(sum(average.width for average in self.averages))
        self.add_state("num_documents", torch.zeros((), dtype=torch.int64, device="cpu"), "sum")
        if on_invalid != "raise":
            self.add_state("invalid", torch.zeros((), dtype=torch.float64), "sum")
            self.add_state("invalid_fields", torch.zeros((), dtype=torch.float64), "sum")
        if by is not None:
            self.add_rows("label_names")
            self.add_rows("label_sums")

    def rows_of_items(self) -> list[tuple[str, ...]]:
        return []  # the rows of labels are names and sums of different lengths

    @property
    def documents(self) -> int:
        """The number of documents so far."""
        return int(self.num_documents)

    def _prepared(self, preds: Sequence[Any], refs: Sequence[Any]) -> Prepared:
        preds, overlap, num_invalid = self._read(preds, refs)
        labels = self.by_label.sums_of(preds, refs) if self.by_label else {}
        return Prepared(preds, refs, torch.stack(overlap, -1).double(), labels, num_invalid)

    def _add(self, batch: Prepared, **items: Unpack[ResamplingUnits]) -> None:
        first = self._first_document + self.documents if self.hooks else 0
        self.add_items(torch.cat([self._rows(average, batch) for average in self.averages], -1), **items)
        self.num_documents = self.num_documents + len(batch.preds)
        if self.on_invalid != "raise":
            self.invalid = self.invalid + sum(pred is INVALID_DOCUMENT for pred in batch.preds)
            self.invalid_fields = self.invalid_fields + batch.num_invalid
        if batch.labels:
            sums = {encode_label(label): row.to(self.sums.device) for label, row in batch.labels.items()}
            self._keep_labels(add_tables([self._label_sums(), sums]))
        for document, (pred, ref) in enumerate(zip(batch.preds, batch.refs, strict=True) if self.hooks else (), first):
            if pred is not INVALID_DOCUMENT:
                with self._tolerance():
                    self.metric.compute(pred, ref)[1].run_with_hooks(self.hooks, document)

    def _rows(self, average: Average, batch: Prepared) -> Tensor:  # ->  (B, width)
        rows = average.rows(batch.overlap)
        if self.on_invalid != "wrong" or average.kind == "micro":
            return rows
        wrong = invalid_mask(batch.preds, rows.device)[:, None]  # score 0 even if the policy defines 0 / 0 otherwise
        scores, counted = rows.tensor_split(2, -1)
        return torch.cat([scores.masked_fill(wrong, 0), counted.masked_fill(wrong, 1)], -1)

    def _label_sums(self) -> dict[str, Tensor]:
        """Return the sums by encoded label."""
        return decode_sums(self.label_names, self.label_sums)

    def _keep_labels(self, sums: dict[str, Tensor]) -> None:
        self.label_names, self.label_sums = encode_sums(sums)

    def _add_state(self, state: dict[str, Tensor]) -> None:
        super()._add_state(state)
        if self.by_label and len(self.label_sums):
            self._keep_labels(self._label_sums())  # in one row each

    def compute(self) -> dict[str, Tensor]:
        """Compute all scores: key -> () float64."""
        values = self.read_sums(self.sums)
        if self.on_invalid != "raise":
            values[INVALID] = self.invalid.masked_fill(self.num_documents == 0, torch.nan)
            values[INVALID_FIELDS] = self.invalid_fields.masked_fill(self.num_documents == 0, torch.nan)
        if self.by_label:
            values |= self.by_label.scores(self._label_sums(), self.sums.device)
        return self.extended(values)

    def read_sums(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., K)  ->  key: (...)
        parts = sums.split([average.width for average in self.averages], -1)
        return self._keyed([average.scores(part) for average, part in zip(self.averages, parts, strict=True)])

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Joined:
        """Resample each average separately, because each has its own bounds of a document."""
        resampled, parts = self._resampled_state(replicates, seed), []
        ends = accumulate([average.width for average in self.averages], initial=0)
        for average, (start, stop) in zip(self.averages, pairwise(ends), strict=True):
            half, units = resampled.half, resampled.units
            parts.append(
                resampled._replace(
                    observed=resampled.observed[..., start:stop],
                    weighted=resampled.weighted[..., start:stop],
                    half=None if half is None else half[..., start:stop],
                    units=None if units is None else units._replace(rows=units.rows[..., start:stop]),
                    read=average.scores,
                    bounds=average.bounds(
                        bounds_of_overlaps(self.sums[start:stop]) if average.kind == "micro" else None
                    ),
                )
            )
        return combine(parts, self._keyed)

    def scoring_options(self) -> dict[str, Any]:
        """Return the options that two families must share to be compared: the metric, its averages and options."""
        averages = [(prefix, average.kind) for prefix, average in zip(self.prefixes, self.averages, strict=True)]
        labels = {} if self.by_label is None else {"by": self.by_label.by, "labels": self.by_label.labels}
        scores = {"reduction": averages, "scores": self.scores, "policy": self.metric.policy}
        resampling = {"replicates": self.replicates, "seed": self.seed}
        return {"metric": _kind_of(self.metric), **scores, **labels, **resampling}

    def update_options(self) -> dict[str, Any]:
        # Families with hooks never share an update, so that each calls its hooks.
        return {**super().update_options(), "hooks": self if self.hooks else None}

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Compute the scores of each document without changing the state: normalizer -> (B,) float64."""
        preds, overlap, _ = self._read(preds, refs)
        scores = {k: v for average in self.averages for k, v in average.read(torch.stack(overlap, -1)).items()}
        if self.on_invalid != "wrong":
            return scores
        wrong = invalid_mask(preds, self.metric.device)
        return {name: score.masked_fill(wrong, 0) for name, score in scores.items()}

    def _number_after(self, state: dict[str, Any]) -> None:
        super()._number_after(state)
        if self.hooks:
            self._first_document = int(state["num_documents"]) + state["_first_document"]

    def reset(self) -> None:
        """Forget all documents."""
        super().reset()
        self._first_document = 0

    def _read(self, preds: Sequence[Any], refs: Sequence[Any]) -> Read:
        if self.on_invalid == "raise":
            return Read(preds, self.metric.cross_and_self_overlaps(preds, refs, self.reads), 0)
        checks.check_consistent_length(preds=preds, refs=refs)
        self_overlap = float(self.on_invalid == "wrong")
        with shared_columns(), self._tolerance() as tolerance:  # valid documents are read once
            preds = mark_invalid(self.metric, preds, refs)
            if tolerance.num_invalid:
                tolerance.num_invalid = 0  # counted again in each reading
                self.metric.read([pred for pred in preds if pred is not INVALID_DOCUMENT], [])
            num_invalid = tolerance.num_invalid
            overlap = overlap_of_valid(self.metric, preds, refs, self.reads, self_overlap)
            return Read(preds, overlap, num_invalid)

    def _tolerance(self) -> AbstractContextManager[Tolerance]:
        """Tolerate invalid fields of predictions, unless labels are read from them."""
        is_tolerant = self.on_invalid != "raise" and self.by_label is None and self.metric.node().tolerant
        return tolerate_invalid() if is_tolerant else nullcontext(Tolerance())

    def _keyed(self, scores: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        named = zip(self.prefixes, scores, strict=True)
        return {join_key(prefix, name): value for prefix, part in named for name, value in part.items()}


def _reductions_by_prefix(reduction: Reduction | Mapping[str, Reduction]) -> dict[str, Reduction]:
    reductions = dict(reduction) if isinstance(reduction, Mapping) else {"": reduction}
    for prefix, part in reductions.items():
        if not isinstance(part, Reduction):
            raise TypeError(f"reduction {prefix!r}: got {part!r}, wanted micro_average([...]) or macro_average([...])")
    return reductions


def join_key(prefix: str, name: str) -> str:
    """Join a prefix and the name of a score; either may be empty, and the name "overlap" is omitted after a prefix."""
    return prefix if prefix and name == "overlap" else "-".join(filter(None, (prefix, name)))


def _kind_of(metric: StructuredMetric) -> list[Any]:
    """Return the type and its constraint, or the function that builds the plan, and the normalizer."""
    plan = metric.plan
    kind = [repr(plan.tp), plan.constraint] if isinstance(plan, Plan) else [getattr(plan, "func", plan)]
    return [*kind, metric.normalizer]
