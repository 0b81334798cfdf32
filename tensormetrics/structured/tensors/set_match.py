"""Precision, recall and F-scores of matched sets, multisets and sequences."""

from abc import abstractmethod
from typing import Any

from torch import Tensor

from . import _lengths
from .constraints import Constraint
from .overlap import Overlap, multiset_overlap, set_overlap
from .reduction import OverlapMetric
from .sequence import sequence_overlap


class SimilarityMatch(OverlapMetric):
    """Base of the metrics over matrices of similarities."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.policy.duplicates == "set":
            raise ValueError(
                "duplicates: got 'set' for similarities, which do not say what items are equal; wanted 'multiset'"
            )

    @abstractmethod
    def overlap(self, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        # similarity: (..., N, M)  n_pred, n_ref: (...)  ->  (...)
        """The overlap of the two sides."""

    def update(
        self,
        similarity: Tensor,  # (..., N, M)
        n_pred: Tensor | None = None,  # (...)
        n_ref: Tensor | None = None,  # (...)
        *,
        pred_self: Tensor | None = None,  # (...)
        ref_self: Tensor | None = None,  # (...)
    ) -> None:
        """Add documents. A self-overlap left out is the number of items: right where an item's similarity to itself is
        1 and none is higher, but under `~` it must be given."""
        if self.constraint is Constraint.MANY_TO_MANY and (pred_self is None or ref_self is None):
            raise ValueError("pred_self, ref_self: got None under '~', wanted the overlap of each side with itself")
        cross = self.overlap(similarity, n_pred, n_ref)
        *batch, n, m = similarity.shape
        n_pred = _lengths.full_or_clamped("n_pred", n_pred, similarity, batch, n)
        n_ref = _lengths.full_or_clamped("n_ref", n_ref, similarity, batch, m)
        selves = (n_pred if pred_self is None else pred_self, n_ref if ref_self is None else ref_self)
        self.add_overlap(Overlap(cross, *selves), n_pred, n_ref)


class SetMatch(SimilarityMatch):
    """Scores of sets matched by similarity; see `set_overlap`, `normalize` and `Policy`."""

    def overlap(self, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        return set_overlap(similarity, n_pred, n_ref, self.constraint)


class SequenceMatch(SimilarityMatch):
    """Scores of sequences matched in order; see `sequence_overlap`, `normalize` and `Policy`."""

    def overlap(self, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        return sequence_overlap(similarity, n_pred, n_ref, self.constraint)


class MultisetMatch(OverlapMetric):
    """Scores of multisets of equal or unequal items, one per document; see `multiset_overlap`, `normalize`, `Policy`.

    `columns=True`: keys are rows of columns.
    """

    def __init__(self, *args: Any, columns: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.columns = columns

    def update(
        self,
        pred_keys: Tensor,  # (..., N) int, or (..., N, F) with columns=True
        ref_keys: Tensor,  # (..., M) int, or (..., M, F)
        n_pred: Tensor | None = None,  # (...)
        n_ref: Tensor | None = None,  # (...)
    ) -> None:
        overlap = multiset_overlap(
            pred_keys, ref_keys, n_pred, n_ref, self.constraint, self.policy.duplicates, columns=self.columns
        )
        # Under every constraint a self-overlap is 0 for the empty multiset alone.
        self.add_overlap(overlap, overlap.pred, overlap.ref)
