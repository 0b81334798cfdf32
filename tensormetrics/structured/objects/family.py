"""Averages of one metric over a corpus of objects."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Options
from ...core.metric.sum_metric import SumMetric
from ...core.resampling.resampling import Joined, combine
from ...core.resampling.weights import ResamplingUnits
from ...core.results.estimates import Estimate
from ...core.results.score_table import ScoreTable
from ..comparators.base import Answers, reuse_answers
from ..tensors.normalizers import Normalizer, parse_normalizers, required_self_overlaps
from ..tensors.policy import Policy
from ..tensors.reduction import DocumentAverage, bounds_of_overlaps, scores_of_overlaps
from .by_label import ByLabel, add_rows, decode_sums, encode_label, encode_sums
from .derive import TypePlan
from .matching import Hook, Path
from .metric import StructuredMetric


class Reduction(NamedTuple):
    """Average of normalized scores; made by `micro_average` and `macro_average`."""

    average: str
    normalizers: tuple[Normalizer, ...]


def micro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Make the reduction that sums overlaps over documents, then normalizes the sums.

    Args:
        normalizers: Names or normalizers, such as ``["precision", "f1"]``; others are a ValueError.

    Returns:
        The reduction, an argument of `Family`.

    Example:
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
    """Make the reduction that normalizes overlaps by document, then averages over documents where the score is defined.

    Args:
        normalizers: Names or normalizers, such as ``["precision", "f1"]``; others are a ValueError.

    Returns:
        The reduction, an argument of `Family`.

    Example:
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


class Family(SumMetric[ScoreTable[Estimate]]):
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

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    nan_without_data = True
    model_options = (*SumMetric.model_options, "hooks")

    num_documents: Tensor
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
        replicates: int | None = None,
        seed: int = 0,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
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
            DocumentAverage(part.average, 3, partial(scores_of_overlaps, scores, resolved.zero_division))
            for part, scores in zip(reductions.values(), self.scores, strict=True)
        ]
        all_scores = {name: score for scores in self.scores for name, score in scores.items()}
        self.reads = required_self_overlaps(all_scores.values(), resolved.zero_division)
        self.by_label = None if by is None else ByLabel(self.metric, by, all_scores, labels)
        self.hooks = dict(hooks or {})
        self._first_document = 0  # index of the first document of a batch of `forward`
        self._answers = Answers()  # of users' functions for the documents of an update that failed
        self.add_sums(sum(average.width for average in self.averages))
        self.add_state("num_documents", torch.zeros((), dtype=torch.int64, device="cpu"), "sum")
        if by is not None:
            self.add_rows("label_names")
            self.add_rows("label_sums")

    @property
    def documents(self) -> int:
        """The number of documents so far."""
        return int(self.num_documents)

    def update(self, preds: Sequence[Any], refs: Sequence[Any], **items: Unpack[ResamplingUnits]) -> None:
        """Add documents.

        Raises:
            ValueError: If the lists have different lengths.
        """
        first = self._first_document + self.documents if self.hooks else 0
        with reuse_answers(self._answers):
            overlap = torch.stack(self.metric.cross_and_self_overlaps(preds, refs, self.reads), -1).double()
            labels = self.by_label.sums_of(preds, refs) if self.by_label else {}
            self.add_items(torch.cat([average.rows(overlap) for average in self.averages], -1), **items)
            self.num_documents = self.num_documents + len(preds)
            if labels:
                sums = ((encode_label(label), row.to(self.sums.device)) for label, row in labels.items())
                self._keep_labels(add_rows([*self._label_sums().items(), *sums]))
            for document, pair in enumerate(zip(preds, refs, strict=True) if self.hooks else (), first):
                self.metric.compute(*pair)[1].run_with_hooks(self.hooks, document)
        self._answers.clear()

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
        if self.by_label:
            values |= self.by_label.scores(self._label_sums(), self.sums.device)
        return values

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
        plan = self.metric.plan  # of a type and its constraint, or the function that builds it
        kind = [repr(plan.tp), plan.constraint] if isinstance(plan, TypePlan) else [getattr(plan, "func", plan)]
        return {"metric": [*kind, self.metric.normalizer], **scores, **labels, **resampling}

    def update_options(self) -> dict[str, Any]:
        # Families with hooks never share an update, so that each calls its hooks.
        return {**super().update_options(), "hooks": self if self.hooks else None}

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Compute the scores of each document without changing the state: normalizer -> (B,) float64."""
        overlap = torch.stack(self.metric.cross_and_self_overlaps(preds, refs, self.reads), -1)
        return {name: score for average in self.averages for name, score in average.read(overlap).items()}

    def _number_after(self, state: dict[str, Any]) -> None:
        super()._number_after(state)
        if self.hooks:
            self._first_document = int(state["num_documents"]) + state["_first_document"]

    def reset(self) -> None:
        """Forget all documents."""
        super().reset()
        self._answers.clear()
        self._first_document = 0

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
