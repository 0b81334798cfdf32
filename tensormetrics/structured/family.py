"""Scores of a corpus of objects: families of averages of one metric, and suites of families."""

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import _checks
from .._metric import NoDataError
from .labels import LabelScores
from .matching import Hook, Path
from .metric import SolvedOverlap, StructuredMetric
from .normalizers import Normalizer
from .overlap import Overlap
from .policy import Policy
from .reduction import OverlapMetric

Extra = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Reduction(NamedTuple):
    """An average of normalised scores; made by `micro_average` and `macro_average`."""

    average: str
    normalizers: tuple[Normalizer, ...]


def micro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Overlaps are summed over documents, then normalised."""
    return Reduction("micro", tuple(map(Normalizer.parse, normalizers)))


def macro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Overlaps are normalised in each document; the mean is over the documents where the score is defined."""
    return Reduction("macro", tuple(map(Normalizer.parse, normalizers)))


class OverlapScores(OverlapMetric):
    """Scores of overlaps that are known already; see `normalize`."""

    def update(self, overlap: Overlap) -> None:
        # overlap: (B,) each
        self.add_documents(torch.stack(overlap, -1))


class Corpus(nn.Module):
    """Base of what scores a corpus of objects: lists of predictions and references in, numbers by key out."""

    def __init__(self) -> None:
        super().__init__()
        self.extras: list[Extra] = []

    def update_single(self, pred: Any, ref: Any) -> None:
        """Add one document."""
        self.update([pred], [ref])

    def with_extra(self, function: Extra) -> "Corpus":
        """Let `function` of the computed values add values of its own."""
        self.extras.append(function)
        return self

    def extended(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        for extra in self.extras:
            values |= extra(values)
        return values


class Family(Corpus):
    """Averages of one metric over a corpus: `update(preds, refs)` with lists of B objects each, then `compute()`.

    reduction: `micro_average([...])`, `macro_average([...])`, or several by prefix. A key is the prefix and the name
    of the normalizer, such as "micro-f1"; before the first document its value is NaN. by, labels: see `LabelScores`.
    hooks: selector -> function, called at each update for the matches whose predicted path the selector selects, with
    the number of the document. policy, empty, zero_division, duplicates: see `Policy`, default the metric's own.
    bootstrap, confidence, seed: see `CountMetric`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__()
        reductions = dict(reduction) if isinstance(reduction, Mapping) else {"": reduction}
        for prefix, given in reductions.items():
            if not isinstance(given, Reduction):
                raise TypeError(
                    f"reduction {prefix!r}: got {given!r}, wanted micro_average([...]) or macro_average([...])"
                )
        own = {"empty": empty, "zero_division": zero_division, "duplicates": duplicates}
        self.metric = metric.under(Policy.parse(policy or metric.policy, **own))
        self.prefixes = list(reductions)
        self.averages = nn.ModuleList(
            OverlapScores(scores=given.normalizers, average=given.average, policy=self.metric.policy, **kwargs)
            for given in reductions.values()
        )
        names = {score.name: score for given in reductions.values() for score in given.normalizers}
        self.by_label = [] if by is None else [LabelScores(self.metric, by, list(names.values()), labels)]
        self.hooks = dict(hooks or {})
        self.documents = 0

    def update(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        """Add documents; ValueError for lists of different lengths."""
        self._add(preds, refs)

    def forward(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Add documents; key -> () float64, of these alone."""
        overlap = self._add(preds, refs)
        alone = self.new()
        for average in alone.averages:
            average.update(Overlap(*overlap[:3]))
        for scores in alone.by_label:
            scores.update(preds, refs)
        return alone.compute()

    def compute(self) -> dict[str, Tensor]:
        """Key -> () float64."""
        return self.extended(
            {
                keyed(prefix, name): value
                for prefix, average in zip(self.prefixes, self.averages, strict=True)
                for name, value in computed(average).items()
            }
            | {key: value for scores in self.by_label for key, value in scores.compute().items()}
        )

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Normalizer -> (B,) float64; the state is left as it is."""
        overlap = self.metric.overlap(preds, refs)
        return {
            name: value
            for average in self.averages
            for name, value in average.read_scores(torch.stack(overlap[:3], -1)).items()
        }

    def reset(self) -> None:
        """Forget all documents."""
        self.documents = 0
        for scores in (*self.averages, *self.by_label):
            scores.reset()

    def new(self, hooks: Mapping[Path | str, Hook] | None = None) -> "Family":
        """The same without documents."""
        fresh = copy.deepcopy(self)
        fresh.reset()
        fresh.hooks = dict(hooks or {})
        return fresh

    def _add(self, preds: Sequence[Any], refs: Sequence[Any]) -> SolvedOverlap:
        overlap = self.metric.overlap(preds, refs)
        for average in self.averages:
            average.update(Overlap(*overlap[:3]))
        for scores in self.by_label:
            scores.update(preds, refs)
        if self.hooks:
            for number, (pred, ref) in enumerate(zip(preds, refs, strict=True), self.documents):
                self.metric.compute(pred, ref)[1].run_with_hooks(self.hooks, number)
        self.documents += len(preds)
        return overlap


class Suite(Corpus):
    """Families and suites by name, fed with the same objects; the names are the first part of the keys."""

    def __init__(self, members: Mapping[str, "Family | Suite"]) -> None:
        super().__init__()
        self.members = nn.ModuleDict(members)

    def update(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        """Add documents; ValueError for lists of different lengths."""
        _checks.same_length(preds=preds, refs=refs)
        for member in self.members.values():
            member.update(preds, refs)

    def forward(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Add documents; key -> () float64, of these alone."""
        return self.extended(self._named({name: member(preds, refs) for name, member in self.members.items()}))

    def compute(self) -> dict[str, Tensor]:
        """Key -> () float64."""
        return self.extended(self._named({name: member.compute() for name, member in self.members.items()}))

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Key -> (B,) float64; the state is left as it is."""
        return self._named({name: member.per_document(preds, refs) for name, member in self.members.items()})

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


def computed(average: OverlapScores) -> dict[str, Tensor]:
    """Its scores; NaN before the first document, so that a logging hook need not care."""
    try:
        return average.compute()
    except NoDataError:
        scores = average.read_scores(torch.zeros(3, dtype=torch.float64, device=average.device))
        return {name: torch.full_like(score, torch.nan) for name, score in scores.items()}


def keyed(*parts: str) -> str:
    """The parts of a key that are not empty, joined."""
    if len(parts) > 1 and parts[0] and parts[1] == "overlap":
        parts = parts[:1]
    return "-".join(filter(None, parts))
