"""Scores from the counts of documents: of summed counts, or means of scores, with their uncertainty."""

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.sum_metric import SumMetric
from ...core.resampling.draws import Bounds, mean_bounds
from ...core.resampling.weights import ResamplingUnits
from ...core.results.estimates import Estimate
from ...core.results.score_table import ScoreTable
from .constraints import Constraint
from .normalizers import Normalizer, normalize, parse_normalizers
from .overlap import Overlap
from .policy import Policy


class DocumentAverage(NamedTuple):
    """Average over documents: scores of the summed counts ("micro") or means of scores without NaN ("macro")."""

    kind: str
    counts: int  # K
    read: Callable[[Tensor], dict[str, Tensor]]  # counts: (..., K)  ->  name: (...)

    @property
    def names(self) -> list[str]:
        """Names of the scores."""
        return list(self.read(torch.zeros(self.counts, dtype=torch.float64, device="cpu")))

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.counts + 1 if self.kind == "micro" else 2 * len(self.names)

    def rows(self, counts: Tensor) -> Tensor:
        # counts: (B, K) float64  ->  (B, width)
        """Return the summands of each document."""
        if self.kind == "micro":
            return torch.cat([counts, torch.ones_like(counts[:, :1])], -1)
        scores = torch.stack(list(self.read(counts).values()), -1)
        return torch.cat([scores.masked_fill(scores.isnan(), 0), (~scores.isnan()).double()], -1)

    def scores(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., width)  ->  name: (...)
        """Compute the scores from sums; NaN without a document."""
        if self.kind == "micro":
            empty = sums[..., -1] == 0
            return {name: s.masked_fill(empty, torch.nan) for name, s in self.read(sums[..., :-1]).items()}
        score_sums, counts = sums.tensor_split(2, -1)
        return dict(zip(self.names, (score_sums / counts).unbind(-1), strict=True))

    def bounds(self, counts: Bounds | None) -> Bounds | None:
        # counts: (K,) each  ->  (width,) each
        """Return the sums of the worst and the best document from their counts; None if these are unknown."""
        if self.kind == "macro":
            return mean_bounds(len(self.names))
        if counts is None:
            return None
        none = counts.worst.new_zeros(1)  # document: the column that distinguishes no data from empty documents
        return Bounds(torch.cat([counts.worst, none]), torch.cat([counts.best, none]))


class CountMetric(SumMetric[ScoreTable[Estimate]]):
    """Base of the metrics that compute named scores from counts of each document.

    `average="micro"` scores the sums of the counts; "macro" takes the mean of the documents' scores, leaving out NaN.
    After updates without documents every score is NaN. Every update takes `ids` and `groups` of its documents,
    integers or names: items of one id, or group, share a weight in every replicate of `interval`.

    Args:
        average: "micro": scores of the sums of the counts; "macro": mean of the documents' scores.

    >>> class Share(CountMetric):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(2, **kwargs)
    ...
    ...     def update(self, right, all):
    ...         self.add_documents(torch.stack([right, all], -1))
    ...
    ...     def read_scores(self, counts):
    ...         return {"share": counts[..., 0] / counts[..., 1]}
    >>> metric = Share()
    >>> metric.update(torch.tensor([3, 1]), torch.tensor([4, 4]))  # two documents
    >>> metric.compute()
    {'share': tensor(0.5000, dtype=torch.float64)}
    """

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0
    update_of_lists: str | None = None  # the method that `update` calls if its first argument is a list

    def __init__(
        self,
        counts: int,  # K
        average: str = "micro",
        *,
        replicates: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        checks.check_choice("average", average, ("micro", "macro"))
        self.average, self.n_counts = average, counts
        self.add_sums(self._average.width)

    @property
    def _average(self) -> DocumentAverage:
        return DocumentAverage(self.average, self.n_counts, self.read_scores)

    @abstractmethod
    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        """Compute the scores from the counts of one document, or from sums of counts.

        Shapes: counts: (..., K) -> name: (...).
        """

    def add_documents(self, counts: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add documents to the running sums.

        Shapes: counts: (..., K).
        """
        counts = torch.atleast_2d(counts.detach().double()).flatten(0, -2)
        self.add_items(self._average.rows(counts), **items)

    def add_update(self, counts: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add documents like an update, for methods that read objects: once, and not at all if they fail.

        Shapes: counts: (..., K).
        """
        self._wrap_update(self.add_documents)(counts, **items)

    def _wrap_update(self, update: Callable) -> Callable:
        guarded = super()._wrap_update(update)
        if self.update_of_lists is None:
            return guarded

        @functools.wraps(update)
        def of_tensors_or_lists(*args: Any, **kwargs: Any) -> None:
            if args and isinstance(args[0], Sequence):
                return getattr(self, cast(str, self.update_of_lists))(*args, **kwargs)
            guarded(*args, **kwargs)

        return of_tensors_or_lists

    def item_bounds(self) -> Bounds | None:
        return self._average.bounds(None if self.average == "macro" else self.count_bounds())

    def count_bounds(self) -> Bounds | None:
        # ->  (K,) each
        """Return the counts of the worst and the best possible document of usual size; None if these are unknown."""
        return None

    def compute(self) -> dict[str, Tensor]:
        """name -> () float64."""
        return self.read_sums(self.sums)

    def read_sums(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., width)  ->  name: (...)
        return self._average.scores(sums)


def scores_of_overlaps(
    scores: Mapping[str, Normalizer], zero_division: float | str, overlaps: Tensor
) -> dict[str, Tensor]:
    # overlaps: (..., 3)  ->  name: (...)
    """Compute the normalized scores of overlaps (cross, pred, ref)."""
    cross, pred, ref = overlaps.unbind(-1)
    return {name: normalize(cross, pred, ref, score, zero_division) for name, score in scores.items()}


def bounds_of_overlaps(sums: Tensor) -> Bounds:
    # sums: (4,)  ->  (3,) each
    """Return the overlaps of the worst and best document of average size from sums over documents and their number."""
    cross, pred, ref, documents = sums.unbind()
    size = ((pred + ref - cross) / documents).nan_to_num(1.0).clamp(min=1.0).cpu()
    return Bounds(size * size.new_tensor([0, 0.5, 0.5]), size * size.new_tensor([1, 1, 1]))


class OverlapMetric(CountMetric):
    """Base of the metrics whose counts are the overlaps cross, pred and ref, and whose scores are normalizers.

    Args:
        constraint: Pairs that may match: "<->" one to one, "->" and "<-" many to one, "~" all.
        scores: Names of scores or normalizers, such as "precision", "f0.5" or "jaccard"; see `normalize`.
        policy: "conventional", "agree" or "metametric", or a `Policy`: values of empty documents and of repeats.
        empty: Score of two documents without items, in place of that of `policy`.
        zero_division: Value of a ratio 0 / 0, in place of that of `policy`.
        duplicates: "multiset", equal items count as often as they occur, or "set", once; in place of that of `policy`.

    >>> class Lengths(OverlapMetric):
    ...     def update(self, pred, ref):
    ...         self.add_overlap(Overlap(pred.minimum(ref), pred, ref), pred, ref)
    >>> metric = Lengths()
    >>> metric.update(torch.tensor([3, 1]), torch.tensor([4, 1]))
    >>> metric.compute()["recall"]
    tensor(0.8000, dtype=torch.float64)
    """

    plot_upper_bound = None  # scores exceed 1 if items are matched several times

    def __init__(
        self,
        constraint: str | Constraint = "<->",
        scores: Sequence[str | Normalizer] = ("precision", "recall", "f1"),
        average: str = "micro",
        policy: str | Policy = "conventional",
        *,
        empty: str | None = None,
        zero_division: float | str | None = None,
        duplicates: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.constraint = Constraint.parse(constraint)
        self.scores = {score.name or "overlap": score for score in parse_normalizers("scores", scores)}
        self.policy = Policy.parse(policy, empty=empty, zero_division=zero_division, duplicates=duplicates)
        super().__init__(3, average, **kwargs)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 3)  ->  name: (...)
        return scores_of_overlaps(self.scores, self.policy.zero_division, counts)

    def count_bounds(self) -> Bounds:
        return bounds_of_overlaps(self.sums)

    def add_overlap(self, overlap: Overlap, n_pred: Tensor, n_ref: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add the overlaps of documents with collections of these lengths.

        Shapes: overlap, n_pred, n_ref: (...).
        """
        overlap = self.policy.count_empty(*overlap, n_pred, n_ref)
        self.add_documents(torch.stack([o.double() for o in overlap], -1), **items)
