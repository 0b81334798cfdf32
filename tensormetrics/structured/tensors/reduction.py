"""From the counts of documents to scores: sums of counts, or means of scores, and how sure they are."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ... import _checks
from ..._sum_metric import SumMetric
from ...uncertainty.engine.draws import Bounds, mean_bounds
from ...uncertainty.engine.weights import Identity
from .constraints import Constraint
from .normalizers import Normalizer, normalize, parse_normalizers
from .overlap import Overlap
from .policy import Policy


class CountMetric(SumMetric):
    """Base of the metrics that count something in each document and read named scores off the counts.

    `average="micro"` scores the sums of the counts; "macro" takes the mean of the documents' scores, leaving out NaN.
    Without a document every score is NaN. Every `update` takes `ids` and `groups` of its documents,
    integers or names: items of one id, or group, share a weight in every replicate of `interval`.

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

    def __init__(
        self,
        counts: int,  # K
        average: str = "micro",
        *,
        replicates: int = 0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        _checks.one_of("average", average, ("micro", "macro"))
        self.average, self.n_counts = average, counts
        self.add_sums(counts + 1 if average == "micro" else 2 * len(self.read_scores(torch.zeros(counts))))

    @abstractmethod
    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        """The scores that counts of one document, or of many together, stand for.

        Shapes: counts: (..., K) -> name: (...).
        """

    def add_documents(self, counts: Tensor, **items: Unpack[Identity]) -> None:
        """Add documents to the running sums.

        Shapes: counts: (..., K).
        """
        counts = torch.atleast_2d(counts.detach().double()).flatten(0, -2)
        if self.average == "micro":
            return self.add_items(torch.cat([counts, torch.ones_like(counts[:, :1])], -1), **items)
        scores = torch.stack(list(self.read_scores(counts).values()), -1)
        self.add_items(torch.cat([scores.masked_fill(scores.isnan(), 0), (~scores.isnan()).double()], -1), **items)

    def add_update(self, counts: Tensor, **items: Unpack[Identity]) -> None:
        """Add documents as an `update` does, for what reads objects: once, and not at all where it fails.

        Shapes: counts: (..., K).
        """
        self._wrap_update(self.add_documents)(counts, **items)

    def item_bounds(self) -> Bounds | None:
        if self.average == "macro":
            return mean_bounds(len(self.read_scores(torch.zeros(self.n_counts))))
        bounds = self.count_bounds()
        if bounds is None:
            return None
        none = bounds.worst.new_zeros(1)  # document: the column by which no data are told from empty ones
        return Bounds(torch.cat([bounds.worst, none]), torch.cat([bounds.best, none]))

    def count_bounds(self) -> Bounds | None:
        # ->  (K,) each
        """Return the counts of the worst and the best possible document of usual size; None if these are unknown."""
        return None

    def compute(self) -> dict[str, Tensor]:
        """name -> () float64."""
        return self.read_sums(self.sums)

    def read_sums(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., width)  ->  name: (...)
        if self.average == "micro":
            empty = sums[..., -1] == 0
            return {name: s.masked_fill(empty, torch.nan) for name, s in self.read_scores(sums[..., :-1]).items()}
        totals, numbers = sums.tensor_split(2, -1)
        names = self.read_scores(sums.new_zeros(self.n_counts)).keys()
        return dict(zip(names, (totals / numbers).unbind(-1), strict=True))


class OverlapMetric(CountMetric):
    """Base of the metrics over overlaps: counts are cross, pred and ref, the scores are normalizers.

    >>> class Lengths(OverlapMetric):
    ...     def update(self, pred, ref):
    ...         self.add_overlap(Overlap(pred.minimum(ref), pred, ref), pred, ref)
    >>> metric = Lengths()
    >>> metric.update(torch.tensor([3, 1]), torch.tensor([4, 1]))
    >>> metric.compute()["recall"]
    tensor(0.8000, dtype=torch.float64)
    """

    plot_upper_bound = None  # an item that is matched again and again may take a score above 1

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
        cross, pred, ref = counts.unbind(-1)
        zero_division = self.policy.zero_division
        return {name: normalize(cross, pred, ref, score, zero_division) for name, score in self.scores.items()}

    def count_bounds(self) -> Bounds:
        cross, pred, ref, documents = self.sums.unbind()
        size = ((pred + ref - cross) / documents).nan_to_num(1.0).clamp(min=1.0).cpu()
        return Bounds(size * size.new_tensor([0, 0.5, 0.5]), size * size.new_tensor([1, 1, 1]))

    def add_overlap(self, overlap: Overlap, n_pred: Tensor, n_ref: Tensor, **items: Unpack[Identity]) -> None:
        """Add the overlaps of documents whose collections have these lengths.

        Shapes: overlap, n_pred, n_ref: (...).
        """
        overlap = self.policy.count_empty(*overlap, n_pred, n_ref)
        self.add_documents(torch.stack([o.double() for o in overlap], -1), **items)
