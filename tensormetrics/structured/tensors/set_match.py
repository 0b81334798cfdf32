"""Precision, recall and F-scores of matched sets, multisets and sequences."""

import functools
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.resampling.weights import ResamplingUnits
from . import _lengths
from ._lengths import cuts, documents, in_chunks, read_tables, total
from .constraints import Constraint
from .normalizers import FScore, Jaccard, Precision, Recall
from .overlap import Overlap, multiset_overlap, set_overlap
from .reduction import OverlapMetric
from .sequence import sequence_overlap


class SimilarityMatch(OverlapMetric):
    """Base of the metrics computed from similarity matrices."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.policy.duplicates == "set":
            raise ValueError(
                "duplicates: got 'set' for similarities, which do not define equal items; wanted 'multiset'"
            )

    @abstractmethod
    def overlap(self, similarity: Tensor, n_pred: Tensor | None, n_ref: Tensor | None) -> Tensor:
        """Compute the overlap of prediction and reference.

        Shapes: similarity: (..., N, M); n_pred, n_ref: (...) -> (...).
        """

    def update(
        self,
        similarity: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        *,
        pred_self: Tensor | None = None,
        ref_self: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents.

        A self-overlap defaults to the number of items, which is right if an item's similarity to itself is 1 and no
        similarity is higher; under `~` it is required.

        Shapes: similarity: (..., N, M); n_pred: (...); n_ref: (...); pred_self: (...); ref_self: (...).
        """
        if self.constraint is Constraint.MANY_TO_MANY and (pred_self is None or ref_self is None):
            raise ValueError("pred_self, ref_self: got None under '~', wanted the self-overlaps")
        ragged, lengths = n_pred is not None or n_ref is not None, (n_pred, n_ref)
        checks.shape("similarity", similarity, "...", "N", "M")
        checks.floating("similarity", similarity)
        *batch, n, m = similarity.shape
        n_pred = _lengths.full_or_clamped("n_pred", n_pred, similarity, batch, n)
        n_ref = _lengths.full_or_clamped("n_ref", n_ref, similarity, batch, m)
        for name, self_overlap in (("pred_self", pred_self), ("ref_self", ref_self)):
            if self_overlap is not None:
                checks.shape(name, self_overlap, *batch)
        checks.same_device(similarity=similarity, pred_self=pred_self, ref_self=ref_self)
        if ragged and similarity.device.type == "cpu":
            cross = self._trimmed(similarity.detach(), n_pred, n_ref)
        else:
            cross = self.overlap(similarity, *lengths)
        self_overlaps = (n_pred if pred_self is None else pred_self, n_ref if ref_self is None else ref_self)
        self.add_overlap(Overlap(cross, *self_overlaps), n_pred, n_ref, **items)

    def _trimmed(self, similarity: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        # similarity: (..., N, M)  n_pred, n_ref: (...)  ->  (...)
        """Compute overlaps in chunks of documents of similar length, each padded to its longest."""
        tables, lengths = documents(similarity, 2), [documents(n, 0) for n in (n_pred, n_ref)]
        cross = tables.new_empty(len(tables), dtype=torch.float64)
        for index, (n, m) in cuts(lengths, tables.shape[1:]):
            cross[index] = self.overlap(tables[:, :n, :m][index], *(length[index] for length in lengths))
        return cross.reshape(n_pred.shape)


class SetMatch(SimilarityMatch):
    """Precision, recall and F1 of items under the matching of largest total similarity; see `set_overlap`.

    `update(similarity, n_pred, n_ref)`; `duplicates="set"` is a ValueError, since similarities define no equal items.

    >>> SetMatch()(torch.tensor([[0.9, 0.5], [0.8, 0.1]]))["f1"]  # predicted and reference items
    tensor(0.6500, dtype=torch.float64)
    """

    def overlap(self, similarity: Tensor, n_pred: Tensor | None, n_ref: Tensor | None) -> Tensor:
        return set_overlap(similarity, n_pred, n_ref, self.constraint)


class SequenceMatch(SimilarityMatch):
    """Precision, recall and F1 of sequences matched in order, by similarity; see `sequence_overlap`.

    >>> SequenceMatch()(torch.tensor([[0.9, 0.5], [0.8, 0.1]]))["f1"]  # predicted and reference items
    tensor(0.5000, dtype=torch.float64)
    """

    def overlap(self, similarity: Tensor, n_pred: Tensor | None, n_ref: Tensor | None) -> Tensor:
        return sequence_overlap(similarity, n_pred, n_ref, self.constraint)


class MultisetMatch(OverlapMetric):
    """Scores of multisets of equal or unequal items, one per document; see `multiset_overlap`, `normalize`, `Policy`.

    Args:
        columns: Whether keys are rows of columns.

    >>> MultisetMatch()(torch.tensor([7, 7, 8]), torch.tensor([7, 9]))["f1"]
    tensor(0.4000, dtype=torch.float64)
    """

    def __init__(self, *args: Any, columns: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        checks.check_flag("columns", columns)
        self.columns = columns

    def update(
        self,
        pred_keys: Tensor,
        ref_keys: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents.

        Shapes: pred_keys: (..., N) int, or (..., N, F) with columns=True; ref_keys: (..., M) int, or (..., M, F);
        n_pred: (...); n_ref: (...).
        """
        overlap = functools.partial(
            multiset_overlap, constraint=self.constraint, duplicates=self.policy.duplicates, columns=self.columns
        )
        if n_pred is None and n_ref is None:
            overlaps = overlap(pred_keys, ref_keys)
        else:
            row, lengths_by_name = ["F"] if self.columns else [], {"n_pred": n_pred, "n_ref": n_ref}
            tables, lengths = read_tables(row, lengths_by_name, pred_keys=pred_keys, ref_keys=ref_keys)
            counts = in_chunks(lambda *chunk: torch.stack(overlap(*chunk), -1), tables, lengths, total)
            overlaps = Overlap(*counts.unbind(-1))
        # Under every constraint a self-overlap is 0 only for the empty multiset.
        self.add_overlap(overlaps, overlaps.pred, overlaps.ref, **items)

    def value_range(self) -> tuple[Any, Any]:
        # Equal items count 1 each: matched at most once, their number exceeds neither self-overlap.
        normalized = all(isinstance(score, FScore | Jaccard | Precision | Recall) for score in self.scores.values())
        is_bounded = normalized and self.constraint is Constraint.ONE_TO_ONE
        return (0.0, 1.0) if is_bounded else super().value_range()
